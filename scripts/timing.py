"""Time all arms on one node that nobody else uses."""

from fleetcraft.stages.launch import launch

launch("timing", snakemake)
