"""Compute what searches cost and gave, from the records alone, and draw quality against compute."""

from pathlib import Path

from fleetcraft.analysis.figures import search_figure
from fleetcraft.analysis.search import search_tables
from fleetcraft.analysis.tables import read_results
from fleetcraft.ground.files import write_text
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    manifests = [*snakemake.input.latents, *snakemake.input.videos, *snakemake.input.scores]
    results = read_results(plan.document(), manifests)
    for name, text in search_tables(results).items():
        write_text(Path(snakemake.output[name]), text)
    labels = {name: plan.known[name].label for name in plan.dimensions}
    search_figure(results, labels, Path(snakemake.output.figure))
