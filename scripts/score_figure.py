"""Draw every video's score in one dimension, arms side by side."""

from pathlib import Path

from fleetcraft.analysis.figures import score_figure
from fleetcraft.analysis.tables import read_results
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    results = read_results(plan.document(), snakemake.input.scores)
    dimension = snakemake.wildcards.dimension
    score_figure(results, dimension, plan.known[dimension].label, Path(snakemake.output[0]))
