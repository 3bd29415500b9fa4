"""Gather the evidence that every number resolves to."""

from pathlib import Path

from fleetcraft.evidence.archive import archive
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    results = [Path(file) for name in ("latency", "search") for file in snakemake.input.get(name, [])]
    concluded = [*map(Path, snakemake.input.tables), *results]
    figures = [*map(Path, snakemake.input.figures), *map(Path, snakemake.input.sheets)]
    archive(
        plan,
        tables=[file for file in concluded if file.suffix == ".csv"],
        figures=[*figures, *(file for file in results if file.suffix == ".png")],
        vbench=[file for file in concluded if file.suffix == ".json"],
    )
