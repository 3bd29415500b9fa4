"""Compute every table from the records alone."""

from pathlib import Path

from fleetcraft.analysis.tables import make_tables, read_results
from fleetcraft.ground.files import write_text
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    manifests = [*snakemake.input.latents, *snakemake.input.videos, *snakemake.input.scores]
    tables = make_tables(read_results(plan.document(), manifests))
    for name, text in tables.items():
        write_text(Path(snakemake.output[name]), text)
