"""Stage fidelity: how close two encodings of the same frames are to the frames and to each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetcraft.ground.errors import PurgedScratch
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import Record
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.fidelity import measure
from fleetcraft.media.frames import read_frames
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Leave what was measured of every sample in the store, and the shard's manifest."""

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        settings = job.settings
        check_ffmpeg(settings["ffmpeg_sha256"])
        for sample in samples:
            frames = Path(settings["frames_directory"]) / f"{sample['sample']}.npy"
            if not frames.is_file():
                raise PurgedScratch(
                    "the decoded frames have gone", file=frames, remedy="Start again: they are decoded anew"
                )
            declared, compared = (store.verified("videos", sample[side]) for side in ("declared", "compared"))
            ledger = Ledger()
            with ledger.phase("measure"):
                measures = measure(read_frames(frames), settings["width"], settings["height"], declared, compared)
            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "declared_video": sample["declared"],
                "compared_video": sample["compared"],
                "bytes": {"declared": declared.stat().st_size, "compared": compared.stat().st_size},
                "measures": measures,
                "seconds": ledger.seconds,
                "memory": ledger.memory,
                "made": provenance(job.packages),
            }
            yield store.commit_record("fidelity", sample["fidelity"], record)

    fill(job, "fidelity", "fidelity", make)
