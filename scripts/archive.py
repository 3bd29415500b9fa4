"""Gather the evidence that every number resolves to."""

from pathlib import Path

from fleetcraft.evidence.archive import archive
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    latency = [Path(file) for file in snakemake.input.get("latency", [])]
    concluded = [*map(Path, snakemake.input.tables), *latency]
    figures = [*map(Path, snakemake.input.figures), *map(Path, snakemake.input.sheets)]
    archive(
        plan,
        tables=[file for file in concluded if file.suffix == ".csv"],
        figures=[*figures, *(file for file in latency if file.suffix == ".png")],
        vbench=[file for file in concluded if file.suffix == ".json"],
    )
