"""Stage timing: all timed arms in one process on one node, one sample at a time, taking turns.

Bulk jobs batch, share their node and run in any order: what they measure says where time went and is no latency.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.files import new_file
from fleetcraft.ground.records import write_records
from fleetcraft.media.encoder import encode
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.frames import read_frames, write_frames
from fleetcraft.media.presets import EncoderSettings
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import Decoder, DecodeSettings, Denoiser, DenoiseSettings
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.timing.order import Pass, interleaved
from fleetcraft.timing.passes import Timed
from fleetcraft.timing.surroundings import disturbances, foreign_cores, moment, neighbours, snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Timeable:
    """A loaded arm. shape : (frames, height, width) of its videos."""

    denoiser: Denoiser
    decoder: Decoder
    shape: tuple[int, int, int]
    fps: int
    encoder: EncoderSettings


def run(job: Job) -> None:
    """Leave the record of every pass, and of the job as a whole."""
    from fleetcraft.pipelines import numerics

    settings = job.settings
    before, node = snapshot(), neighbours()
    numerics.pin(settings["device"], settings["hardware"])
    encoder = EncoderSettings.from_json(settings["encoder"])
    check_ffmpeg(encoder.ffmpeg_sha256)
    arms, load_s = _loaded(settings, encoder)
    samples = [(sample["prompt"], sample["seed"]) for sample in job.samples]
    planned = list(interleaved(list(arms), len(samples), settings["warmup"], settings["repeats"]))
    timed, start = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleetcraft-timing-", dir=Path(job.output).parent) as scratch:
        for number, one in enumerate(passes(planned, samples, arms, settings["device"], Path(scratch)), 1):
            timed.append(one)
            what = "warm-up" if one.planned.warmup else f"round {one.planned.round + 1}"
            seconds = ", ".join(f"{name} {value:.3f}" for name, value in one.seconds.items())
            elapsed = time.monotonic() - start
            print(f"timing: {number}/{len(planned)} {one.planned.arm}, {what}: {seconds} s; {elapsed:.1f} s in all")
    after = snapshot()
    found, made = disturbances(before, after, node), provenance(job.packages)
    where = {"host": made["host"], "slot": made["slot"], "stack": settings["stack"], "job": made["created"]}
    surroundings = {
        "kind": "surroundings",
        "load_s": load_s,
        "before": before.as_json(),
        "after": after.as_json(),
        "node": node,
        "disturbances": found,
        "where": where,
        "made": made,
    }
    write_records(Path(job.output), [surroundings, *(one.record(where, found, made) for one in timed)])
    for problem in found:
        print(f"timing: not alone: {problem}; no pass of this job will be counted")


def _loaded(settings: Mapping[str, Any], encoder: EncoderSettings) -> tuple[dict[str, Timeable], dict[str, float]]:
    """Every timed arm, all of them at once so that they can take turns; and the seconds that each took to load."""
    arms, load_s, decoders = {}, {}, {}
    for name, arm in settings["arms"].items():
        family, directory = FAMILIES[arm["family"]].load(), Path(arm["model_directory"])
        start = time.monotonic()
        denoiser = family.load_denoiser(directory, DenoiseSettings(**arm["denoise"]), settings["device"])
        if directory not in decoders:
            decode = DecodeSettings.from_json(settings["decode"])
            decoders[directory] = family.load_decoder(directory, settings["device"], decode)
        arms[name] = Timeable(denoiser, decoders[directory], tuple(settings["shape"]), settings["fps"], encoder)
        load_s[name] = round(time.monotonic() - start, 3)
        print(f"timing: loaded {name} in {load_s[name]:.1f} s")
    return arms, load_s


def passes(
    planned: list[Pass], samples: list[tuple[str, int]], arms: Mapping[str, Timeable], device: str, scratch: Path
) -> Iterator[Timed]:
    """Run the passes in their order, each from the prompt to a video that is whole on disk."""
    for one in planned:
        prompt, seed = samples[one.prompt]
        yield _timed(one, prompt, seed, arms[one.arm], device, scratch)


def _timed(planned: Pass, prompt: str, seed: int, arm: Timeable, device: str, scratch: Path) -> Timed:
    from fleetcraft.pipelines.clock import Clock, running, watched

    clock, before = Clock(device), moment()
    frames, video = scratch / "frames.npy", scratch / "video.mp4"
    with running(clock):
        with clock.phase("denoise"), watched(arm.denoiser.pipeline, clock):
            latents, _ = arm.denoiser.denoise([prompt], [seed])
        write_frames(frames, _clocked(arm.decoder.decode(latents[0]), clock), arm.shape)
        _, height, width = arm.shape
        encoded = scratch / "encoded.mp4"
        with clock.phase("encode"):
            encode(encoded, read_frames(frames), width, height, arm.fps, arm.encoder)
        with clock.phase("write"), new_file(video) as temporary:
            encoded.rename(temporary)
    return Timed(
        planned, prompt, seed, clock.seconds, clock.steps_s, foreign_cores(before, moment()), sha256_file(video)
    )


def _clocked(chunks: Iterator[NDArray[Any]], clock: Any) -> Iterator[NDArray[Any]]:
    """Chunks of frames, the time between asking for one and having it counted as decoding."""
    while True:
        with clock.phase("decode"):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk
