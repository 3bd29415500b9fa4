"""Build a tiny model from its seed, or verify a checkpoint against its list of digests."""

from fleetcraft.stages.launch import launch

launch("models", snakemake)
