"""Lay out frames of an arm's videos, the same prompts in every arm."""

from fleetcraft.stages.launch import launch

launch("contact_sheet", snakemake)
