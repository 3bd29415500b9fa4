"""Stage score: one dimension for the videos of one shard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
        dimension, ledger = job.settings["dimension"], Ledger()
        scorer = cast("Scorer", import_module(f"fleetcraft.scoring.{job.settings['scorer']}"))
        found: list[tuple[Sample, Score]] = []
        sound: list[Sample] = []
        pairs: list[Pair] = []
        for sample in samples:
            try:
                pairs.append(_pair(store, sample))
                sound.append(sample)
            except FleetcraftError as error:
                found.append((sample, error))
        device = job.settings.get("device")
        if device is not None:
            from fleetcraft.pipelines import numerics

            numerics.pin(device, job.settings["hardware"])
        with ledger.phase("score"):
            values = scorer.score(dimension, pairs, job.settings) if pairs else []
        # A job's time is shared by what it scored, so that sums over records are the time that it took.
        seconds = {phase: round(total / len(pairs), 6) for phase, total in ledger.seconds.items() if pairs}
        found += zip(sound, values, strict=True)
        failed: list[FleetcraftError] = []
        records: list[tuple[str, Record]] = []
        for sample, value in found:
            if isinstance(value, float) and not math.isfinite(value):
                value = BadResult(
                    f"{dimension} of a video is {value}",
                    file=store.file("videos", sample["video"]),
                    remedy="Look at the video; a score that isn't a number can't enter a table",
                )
            if isinstance(value, FleetcraftError):
                failed.append(value)
                continue
            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "video": sample["video"],
                "baseline_video": sample["baseline_video"],
                "dimension": dimension,
                "value": value,
                "seconds": seconds,
                "memory": ledger.memory,
                "made": provenance(job.packages),
            }
            records.append((sample["score"], record))
        with ThreadPoolExecutor(WRITERS) as writers:
            yield from writers.map(lambda keyed: store.commit_record("scores", *keyed), records)
        for other in failed[1:]:
            print(f"score: {other}")
        if failed:
            raise failed[0]

    fill(job, "scores", "score", make)


def _pair(store: Store, sample: Sample) -> Pair:
    baseline = store.verified("videos", sample["baseline_video"]) if sample["baseline_video"] else None
    return Pair(sample["prompt"], store.verified("videos", sample["video"]), baseline)
