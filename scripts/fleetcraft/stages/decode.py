"""Stage decode: latents to frames, for those samples whose video the store lacks."""

from __future__ import annotations

import time
from pathlib import Path

from fleetcraft.ground.files import new_directory
from fleetcraft.media.frames import write_frames
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.stages.job import Job
from fleetcraft.stages.shard import Sample, lacking
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Leave a directory with one file of frames for each video that has to be encoded."""
    store = Store(job.store)
    todo = lacking(job, store, "videos", "video")
    print(
        f"decode: {len(job.samples)} samples, {len(job.samples) - len(todo)} videos in the store, {len(todo)} to decode"
    )
    with new_directory(Path(job.output)) as directory:
        if todo:
            _decode(job, store, todo, directory)


def _decode(job: Job, store: Store, todo: list[Sample], directory: Path) -> None:
    from safetensors.torch import load_file

    from fleetcraft.pipelines import numerics

    settings = job.settings
    numerics.pin(settings["device"])
    family = FAMILIES[settings["family"]].load()
    decoder = family.load_decoder(Path(settings["model_directory"]), settings["device"])
    start = time.monotonic()
    for number, sample in enumerate(todo, 1):
        latents = load_file(store.verified("latents", sample["sample"]))["latents"]
        write_frames(directory / f"{sample['video']}.npy", decoder.decode(latents), tuple(settings["shape"]))
        print(f"decode: {number}/{len(todo)} decoded, {time.monotonic() - start:.1f} s")
