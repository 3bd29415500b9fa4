"""Build a tiny model from its seed, or verify a checkpoint: its bytes, and that it would load completely."""

from fleetcraft.stages.launch import launch

launch("models", snakemake)
