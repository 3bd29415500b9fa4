"""Gather the evidence that every number resolves to."""

from pathlib import Path

from fleetcraft.evidence.archive import archive
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    figures = [*snakemake.input.figures, *snakemake.input.sheets]
    archive(plan, map(Path, snakemake.input.tables), map(Path, figures))
