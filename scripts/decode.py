"""Decode latents to frames, for those samples whose video the store lacks."""

from fleetcraft.stages.launch import launch

launch("decode", snakemake)
