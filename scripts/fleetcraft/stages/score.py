"""Stage score: one dimension for the videos of one shard."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import cast

from fleetcraft.ground.errors import BadResult, FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import Record
from fleetcraft.scoring.interface import Pair, Score, Scorer
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store

WRITERS = 8
"""Records that are made durable at the same time: each waits for the disk or the server, and nothing else."""


def run(job: Job) -> None:
    """Leave the score of every sample in the store, and the shard's manifest.

    A video that can't be scored keeps no other from it: the others are in the store before its error ends the job.
    """

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        sound: list[Sample] = []
        pairs: list[Pair] = []
        failed: list[FleetcraftError] = []
        for sample in samples:
            try:
                pairs.append(_pair(store, sample))
                sound.append(sample)
            except FleetcraftError as error:
                failed.append(error)
        pending: deque[Future[Record]] = deque()
        with ThreadPoolExecutor(WRITERS) as writers:
            for sample, (value, ledger, seconds) in zip(sound, _scored(job, pairs), strict=True):
                problem = value if isinstance(value, FleetcraftError) else _not_finite(job, store, sample, value)
                if problem is not None:
                    failed.append(problem)
                    continue
                record = {
                    "sample": sample["sample"],
                    "prompt": sample["prompt"],
                    "seed": sample["seed"],
                    "video": sample["video"],
                    "baseline_video": sample["baseline_video"],
                    "dimension": job.settings["dimension"],
                    "value": value,
                    "seconds": seconds,
                    "memory": copy.deepcopy(ledger.memory),
                    "made": provenance(job.packages),
                }
                pending.append(writers.submit(store.commit_record, "scores", sample["score"], record))
                while pending and pending[0].done():
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        for other in failed[1:]:
            print(f"score: {other}")
        if failed:
            raise failed[0]

    fill(job, "scores", "score", make)


def _scored(job: Job, pairs: list[Pair]) -> Iterator[tuple[Score, Ledger, dict[str, float]]]:
    """The score of each pair as soon as it is known, with the ledger so far, and what it took in seconds."""
    if not pairs:
        return
    scorer = cast("Scorer", import_module(f"fleetcraft.scoring.{job.settings['scorer']}"))
    device, ledger = job.settings.get("device"), Ledger()
    if device is not None:
        from fleetcraft.pipelines import numerics

        numerics.pin(device, job.settings["hardware"])
    before = 0.0
    for scores in scorer.score(job.settings["dimension"], pairs, job.settings, ledger):
        # Time is shared by what was scored together, so that sums over records are the time that it took.
        total = ledger.seconds["score"]
        seconds = ledger.seconds | {"score": round((total - before) / len(scores), 6)}
        before = total
        for value in scores:
            yield value, ledger, seconds


def _not_finite(job: Job, store: Store, sample: Sample, value: float | None) -> BadResult | None:
    """What is wrong with a score that no table could hold."""
    if value is None or math.isfinite(value):
        return None
    return BadResult(
        f"{job.settings['dimension']} of a video is {value}",
        file=store.file("videos", sample["video"]),
        remedy="Look at the video; a score that isn't a number can't enter a table",
    )


def _pair(store: Store, sample: Sample) -> Pair:
    baseline = store.verified("videos", sample["baseline_video"]) if sample["baseline_video"] else None
    return Pair(sample["prompt"], store.verified("videos", sample["video"]), baseline)
