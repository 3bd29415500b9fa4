"""Stage score: one dimension for the videos of one shard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from typing import cast

from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import Record
from fleetcraft.scoring.interface import Pair, Scorer
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Leave the score of every sample in the store, and the shard's manifest."""

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        dimension, ledger = job.settings["dimension"], Ledger()
        scorer = cast("Scorer", import_module(f"fleetcraft.scoring.{job.settings['scorer']}"))
        pairs = [
            Pair(
                sample["prompt"],
                store.verified("videos", sample["video"]),
                store.verified("videos", sample["baseline_video"]) if sample["baseline_video"] else None,
            )
            for sample in samples
        ]
        device = job.settings.get("device")
        if device is not None:
            from fleetcraft.pipelines import numerics

            numerics.pin(device, job.settings["hardware"])
        with ledger.phase("score"):
            values = scorer.score(dimension, pairs, job.settings)
        for sample, value in zip(samples, values, strict=True):
            if not math.isfinite(value):
                raise BadResult(
                    f"{dimension} of a video is {value}",
                    file=store.file("videos", sample["video"]),
                    remedy="Look at the video; a score that isn't a number can't enter a table",
                )
            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "video": sample["video"],
                "baseline_video": sample["baseline_video"],
                "dimension": dimension,
                "value": value,
                "seconds": ledger.seconds,
                "memory": ledger.memory,
                "made": provenance(job.packages),
            }
            yield store.commit_record("scores", sample["score"], record)

    fill(job, "scores", "score", make)
