"""Score a shard's videos in one dimension."""

from fleetcraft.stages.launch import launch

launch("score", snakemake)
