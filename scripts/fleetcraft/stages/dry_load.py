"""Stage dry_load: a checkpoint is loaded without its weights, and what is incomplete is written down."""

from __future__ import annotations

from pathlib import Path

from fleetcraft.ground.records import write_records
from fleetcraft.mirror.inspection import inspect
from fleetcraft.pipelines.dry_load import dry_load
from fleetcraft.stages.completeness import record_of
from fleetcraft.stages.job import Job


def run(job: Job) -> None:
    """Leave a record of each finding."""
    findings = dry_load(inspect(Path(job.settings["directory"])))
    write_records(Path(job.output), [record_of(finding) for finding in findings])
