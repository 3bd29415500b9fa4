"""Compute latencies and their ratios from the records of timed passes alone."""

from pathlib import Path

from fleetcraft.analysis.drawing import colours_of
from fleetcraft.analysis.figures import latency_figure, phases_figure
from fleetcraft.analysis.latency import latency_tables, measured
from fleetcraft.ground.files import write_text
from fleetcraft.ground.records import read_records
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    records = read_records(Path(snakemake.input[0]))
    tables = latency_tables(records, plan.document())
    write_text(Path(snakemake.output.latency), tables["latency"])
    write_text(Path(snakemake.output.ratios), tables["latency_ratios"])
    arms = list(plan.experiment.generated)
    latency_figure(records, arms, colours_of(plan.arms), Path(snakemake.output.pairs))
    phases_figure(measured(records), arms, Path(snakemake.output.phases))
