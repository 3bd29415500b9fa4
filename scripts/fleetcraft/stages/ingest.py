"""Stage ingest: existing videos into the store, as they are, after a look at every frame of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadInput, Damaged
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


def run(job: Job) -> None:
    """Leave a copy of every sample's file in the store, and the shard's manifest of videos, as encode does.

    A copy, no link: whoever edits or removes the original afterwards must not change what was scored.
    """

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        check_ffmpeg(job.settings["ffmpeg_sha256"])
        video = job.settings["video"]
        planned = Planned(**video)
        for sample in samples:
            original = Path(job.settings["directory"]) / sample["file"]
            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "shape": [video["frames"], video["height"], video["width"], 3],
                "fps": video["fps"],
                "source": {"file": str(original.absolute()), "sha256": sample["sha256"]},
                "made": provenance(job.packages),
            }
            ledger = Ledger()

            def write(path: Path, original: Path = original, record: Record = record, ledger: Ledger = ledger) -> None:
                with ledger.phase("copy"):
                    _copy(original, path, record["source"]["sha256"])
                with ledger.phase("check"):
                    facts = _facts(original, path)
                    refuse(facts, planned)
                record.update(encoder={"foreign": facts.as_json()}, seconds=ledger.seconds, memory=ledger.memory)

            yield store.commit("videos", sample["video"], record, write)

    fill(job, "videos", "video", make)


def _copy(original: Path, copy: Path, sha256: str) -> None:
    try:
        source = original.open("rb")
    except OSError as error:
        raise BadInput(
            f"this video can't be read any more ({error.strerror})",
            file=original,
            remedy="Put it back, readable for you",
        ) from error
    with source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, _BLOCK)
    if (found := sha256_file(copy)) != sha256:
        raise Damaged(
            f"the SHA-256 of this video is not {sha256}, as its list of digests says",
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
