"""Choose among the candidates of one round of a search, by their scores alone."""

from fleetcraft.stages.choose import choose_in_shard
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    choose_in_shard(plan, snakemake.wildcards.arm, int(snakemake.wildcards.search_round), snakemake.wildcards.shard)
