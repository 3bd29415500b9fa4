"""Link an arm's videos under the names that people and VBench expect."""

from fleetcraft.stages.launch import analysis
from fleetcraft.stages.views import make_views

with analysis(snakemake) as plan:
    make_views(plan, snakemake.wildcards.arm)
