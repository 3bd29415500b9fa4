"""Check existing videos, and take them into the store as they are."""

from fleetcraft.stages.launch import launch

launch("ingest", snakemake)
