"""Stage examine: what existing videos are, and what is wrong with each, without taking any into a store."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.records import Record, write_records
from fleetcraft.media.faults import Planned, refuse
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.probe import probe
from fleetcraft.stages.completeness import record_of
from fleetcraft.stages.ingest import reading, refuse_other_bytes
from fleetcraft.stages.job import Job
from fleetcraft.stages.shard import Sample


def run(job: Job) -> None:
    """Leave a record of each video: its facts, None where it can't be played, and what ingest would refuse it for.

    As many videos are played at once as there are processors, each by an ffmpeg of its own.
    """
    check_ffmpeg(job.settings["ffmpeg_sha256"])
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        write_records(Path(job.output), pool.map(partial(_examined, job.settings), job.samples))


def _examined(settings: dict[str, Any], sample: Sample) -> Record:
    file = Path(settings["directory"]) / sample["file"]
    facts, findings = None, []
    try:
        if sample["sha256"] is not None:
            with reading(file) as source:
                refuse_other_bytes(file, hashlib.file_digest(source, "sha256").hexdigest(), sample["sha256"])
    except FleetcraftError as error:
        findings.append(record_of(error))
    try:
        found = probe(file)
        facts = found.as_json()
        refuse(found, Planned(**settings["video"], stream=settings["stream"]))
    except FleetcraftError as error:
        findings.append(record_of(error))
    return {"file": sample["file"], "facts": facts, "findings": findings}
