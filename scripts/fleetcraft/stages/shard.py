"""What the stages of a shard have in common: make what the store lacks, then write the manifest of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import PurgedScratch
from fleetcraft.ground.records import Record, write_records
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store

Sample = dict[str, Any]


def lacking(job: Job, store: Store, kind: str, key: str) -> list[Sample]:
    """The samples whose artifact the store lacks; `key` is the field of a sample that names it."""
    return [sample for sample in job.samples if store.find(kind, sample[key]) is None]


def fill(job: Job, kind: str, key: str, make: Callable[[Store, list[Sample]], Iterator[Record]]) -> None:
    """Let `make` commit what is lacking, one record a sample as it is done, and write the shard's manifest.

    An interrupted shard resumes at the next sample, for each is in the store as soon as it is done.
    """
    store = Store(job.store)
    todo = lacking(job, store, kind, key)
    print(f"{job.stage}: {len(job.samples)} samples, {len(job.samples) - len(todo)} in the store, {len(todo)} to make")
    start = time.monotonic()
    if todo:
        for number, _ in enumerate(make(store, todo), 1):
            print(f"{job.stage}: {number}/{len(todo)} made, {time.monotonic() - start:.1f} s")
    write_records(Path(job.output), _manifest(job, store, kind, key))


def _manifest(job: Job, store: Store, kind: str, key: str) -> Iterator[Record]:
    for sample in job.samples:
        record = store.find(kind, sample[key])
        if record is None:
            raise PurgedScratch(
                f"an artifact vanished from the store while its shard was being made ({kind} {sample[key]})",
                file=store.record_file(kind, sample[key]),
                remedy="Start again; if scratch is being purged, touch or move the campaign first",
            )
        entry = record | {"arm": sample["arm"]}
        if "for_seed" in sample:  # a search has drawn another seed for it: tables know it by the experiment's
            entry |= {"seed": sample["for_seed"], "drawn_seed": sample["seed"]}
        yield entry
