"""Encode frames to videos with the experiment's one encoder."""

from fleetcraft.stages.launch import launch

launch("encode", snakemake)
