"""Show what a search chose among, and the winners in full."""

from fleetcraft.stages.launch import launch

launch("candidate_sheet", snakemake)
