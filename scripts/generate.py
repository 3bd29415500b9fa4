"""Denoise to latents those samples of a shard that the store lacks."""

from fleetcraft.stages.launch import launch

launch("generate", snakemake)
