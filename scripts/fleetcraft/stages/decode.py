"""Stage decode: latents to frames, for those samples of whose frames something is to be made.

Beside each file of frames lies the record of how it was decoded, which becomes part of the video's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.ground.files import new_directory
from fleetcraft.ground.ledger import Ledger, held
from fleetcraft.ground.records import write_records
from fleetcraft.media.frames import write_frames
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import Decoder, DecodeSettings, Latents
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample
from fleetcraft.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def run(job: Job) -> None:
    """Leave a directory with the frames of each sample for which the store lacks something that is made of them."""
    store = Store(job.store)
    todo = [sample for sample in job.samples if any(store.find(kind, key) is None for kind, key in sample["makes"])]
    print(f"decode: {len(job.samples)} samples, {len(todo)} of whose frames something is to be made from")
    with new_directory(Path(job.output)) as directory:
        if todo:
            _decode(job, store, todo, directory)


def _decode(job: Job, store: Store, todo: list[Sample], directory: Path) -> None:
    from fleetcraft.pipelines import numerics
    from fleetcraft.pipelines.latents import LatentsFile

    settings, loading = job.settings, Ledger()
    numerics.pin(settings["device"], settings["hardware"])
    family = FAMILIES[settings["family"]].load()
    with loading.phase("load_decoder"):
        decoder = family.load_decoder(
            Path(settings["model_directory"]), settings["device"], DecodeSettings.from_json(settings["decode"])
        )
        for part, size in decoder.weights().items():
            loading.holds(part, size)
    start = time.monotonic()
    for number, sample in enumerate(todo, 1):
        latents, ledger = LatentsFile(store.verified("latents", sample["sample"])), Ledger(loading)
        frames = directory / f"{sample['sample']}.npy"
        with ledger.phase("decode"):
            write_frames(frames, _accounted(decoder, latents, ledger), tuple(settings["shape"]))
        record = {
            "seconds": {**loading.seconds, **ledger.seconds},
            "memory": {**loading.memory, **ledger.memory},
            "made": provenance(job.packages),
        }
        write_records(frames.with_suffix(".jsonl"), [record])
        print(f"decode: {number}/{len(todo)} decoded, {time.monotonic() - start:.1f} s")


def _accounted(decoder: Decoder, latents: Latents, ledger: Ledger) -> Iterator[NDArray[np.uint8]]:
    for chunk in decoder.decode(latents):
        ledger.holds("feature_cache", decoder.remembered())
        ledger.holds("staging", held(chunk.nbytes))
        yield chunk
