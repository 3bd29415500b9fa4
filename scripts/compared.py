"""A stage of the comparison of encoders: the rule's name says which."""

from fleetcraft.stages.launch import launch

launch(snakemake.rule, snakemake)
