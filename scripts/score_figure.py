"""Draw every video's score in one dimension, arms side by side."""

from pathlib import Path

from fleetcraft.analysis.figures import score_figure
from fleetcraft.analysis.tables import read_results
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    results = read_results(plan.document(), snakemake.input.scores)
    score_figure(results, snakemake.wildcards.dimension, Path(snakemake.output[0]))
