"""Stage ingest: existing videos into the store, as they are, after a look at every frame of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadInput, Damaged, FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import Record
from fleetcraft.media.faults import Planned, refuse
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.probe import Facts, probe
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store

_BLOCK = 2**20
_SHOWN = 3


def run(job: Job) -> None:
    """Leave a copy of every sample's file in the store, and the shard's manifest of videos, as encode does.

    A copy, no link: whoever edits or removes the original afterwards must not change what was scored. All videos are
    looked at before the first that can't be used fails the job, so that its owner learns of all at once.
    """

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        check_ffmpeg(job.settings["ffmpeg_sha256"])
        refused = []
        for sample in samples:
            try:
                yield _take_in(job, store, sample)
            except (BadInput, Damaged) as error:
                print(f"ingest: {error}")
                refused.append(error)
        if refused:
            raise _together(refused, len(job.samples))

    fill(job, "videos", "video", make)


def _take_in(job: Job, store: Store, sample: Sample) -> Record:
    video, ledger = job.settings["video"], Ledger()
    original = Path(job.settings["directory"]) / sample["file"]
    found = Record()

    def write(path: Path) -> None:
        with ledger.phase("copy"):
            _copy(original, path, sample["sha256"])
        with ledger.phase("check"):
            facts = _facts(original, path)
            refuse(facts, Planned(**video, stream=job.settings["stream"]))
            found.update(facts.as_json())

    record = {
        "sample": sample["sample"],
        "prompt": sample["prompt"],
        "seed": sample["seed"],
        "shape": [video["frames"], video["height"], video["width"], 3],
        "fps": video["fps"],
        "source": {"file": str(original.absolute()), "sha256": sample["sha256"]},
        "probe": found,
        # Its settings are known to those who made the video; what became of them stands in the probe.
        "encoder": "foreign",
        "seconds": ledger.seconds,
        "memory": ledger.memory,
        "made": provenance(job.packages),
    }
    return store.commit("videos", sample["video"], record, write)


def _copy(original: Path, copy: Path, sha256: str) -> None:
    with reading(original) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, _BLOCK)
    refuse_other_bytes(original, sha256_file(copy), sha256)


@contextmanager
def reading(original: Path) -> Iterator[BufferedReader]:
    """The bytes of an existing video; BadInput where they can't be read."""
    try:
        source = original.open("rb")
    except OSError as error:
        raise BadInput(
            f"this video can't be read any more ({error.strerror})",
            file=original,
            remedy="Put it back, readable for you",
        ) from error
    with source:
        yield source


def refuse_other_bytes(original: Path, found: str, listed: str) -> None:
    """Damaged where the SHA-256 that was found isn't the listed one."""
    if found != listed:
        raise Damaged(
            f"the SHA-256 of this video is not {listed}, as its list of digests says",
            file=original,
            value=found,
            remedy="Put back the video that was listed or, if this is the one that is meant, make the list again",
        )


def _facts(original: Path, copy: Path) -> Facts:
    """What the copy is, for it is what will be scored; named is the original, which its owner knows."""
    try:
        return replace(probe(copy), file=original)
    except BadInput as error:
        raise error.located(original) from error


def _together(refused: list[BadInput | Damaged], count: int) -> FleetcraftError:
    """One error for all of a shard's videos that can't be used: the first in full, the others by name."""
    first, *others = refused
    if not others:
        return first
    names = ", ".join(repr(Path(other.file or "").name) for other in others[:_SHOWN])
    return type(first)(
        f"{first.problem} ({len(others):,} others of this job's {count:,} videos can't be used either, for reasons "
        f"that its log has: {names}{', …' if len(others) > _SHOWN else ''})",
        file=first.file,
        value=first.value,
        remedy=first.remedy,
    )
