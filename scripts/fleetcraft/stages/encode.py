"""Stage encode: frames to videos, with the campaign's one encoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetcraft.ground.errors import PurgedScratch
from fleetcraft.ground.ledger import Ledger, held
from fleetcraft.ground.records import Record, read_records
from fleetcraft.media.encoder import check_video, encode
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.frames import read_frames
from fleetcraft.media.presets import EncoderSettings
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Leave the video of every sample in the store, and the shard's manifest."""

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        settings = EncoderSettings.from_json(job.settings["encoder"])
        check_ffmpeg(settings.ffmpeg_sha256)
        frame_count, height, width = job.settings["shape"]
        fps = job.settings["fps"]
        for sample in samples:
            frames = Path(job.settings["frames_directory"]) / f"{sample['sample']}.npy"
            if not frames.is_file():
                raise PurgedScratch(
                    "the decoded frames have gone", file=frames, remedy="Start again: they are decoded anew"
                )
            (decoded,) = read_records(frames.with_suffix(".jsonl"), remedy="Start again: they are decoded anew")
            ledger, found = Ledger(), Record()
            ledger.holds("staging", held(height * width * 3))  # one frame

            def write(path: Path, frames: Path = frames, ledger: Ledger = ledger, found: Record = found) -> None:
                with ledger.phase("encode"):
                    encode(path, read_frames(frames), width, height, fps, settings)
                with ledger.phase("check"):
                    found.update(check_video(path, width, height, frame_count, fps).as_json())

            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "shape": [frame_count, height, width, 3],
                "fps": fps,
                "probe": found,
                "encoder": settings.as_json(),
                "decoded": decoded,
                "seconds": ledger.seconds,
                "memory": ledger.memory,
                "made": provenance(job.packages),
            }
            yield store.commit("videos", sample["video"], record, write)

    fill(job, "videos", "video", make)
