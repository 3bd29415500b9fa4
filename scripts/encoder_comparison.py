"""Compute the tables of a comparison of encoders, and draw its figure, from the records alone."""

import json
from pathlib import Path

from fleetcraft.analysis.drawing import colours_of
from fleetcraft.analysis.encoder_comparison import Compared, comparison_figure, make_tables
from fleetcraft.analysis.tables import read_results
from fleetcraft.experiment.encoder_comparison import Comparison
from fleetcraft.ground.files import write_text
from fleetcraft.ground.records import read_records, write_records
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    comparison = Comparison(plan)
    manifests = {
        side: [*snakemake.input[f"{side}_videos"], *snakemake.input[f"{side}_scores"]] for side in comparison.plans
    }
    results = {side: read_results(comparison.plans[side].document(), files) for side, files in manifests.items()}
    fidelity = [record for manifest in snakemake.input.fidelity for record in read_records(Path(manifest))]
    compared = Compared.of(results, fidelity)
    for name, text in make_tables(compared).items():
        write_text(Path(snakemake.output[name]), text)
    comparison_figure(compared, colours_of(plan.arms), Path(snakemake.output.figure))
    scores = [record for files in manifests.values() for file in files for record in read_records(Path(file))]
    write_records(Path(snakemake.output.records), [*scores, *fidelity])
    write_text(Path(snakemake.output.plan), json.dumps(comparison.document(), indent=1, ensure_ascii=False) + "\n")
