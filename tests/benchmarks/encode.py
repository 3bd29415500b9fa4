"""What our way of encoding costs beside ffmpeg alone, given the same frames in a file and the same arguments.

    .envs/diffusion/bin/python tests/benchmarks/encode.py

Prints, for each preset, seconds of both in turn, by the clock and of processors, and how their medians compare. The
check that follows in a campaign, one decode of the whole video, stands beside them with a plain decode.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from fleetcraft.media.encoder import encode
from fleetcraft.media.ffmpeg import ffmpeg_binary, ffmpeg_command
from fleetcraft.media.frames import read_frames, write_frames
from fleetcraft.media.presets import EncoderSettings, encoder_settings
from fleetcraft.media.probe import probe

WIDTH, HEIGHT, FPS = 832, 480, 16

Seconds = tuple[float, float]


def make_frames(directory: Path, count: int) -> tuple[Path, Path]:
    """The same moving gradients with noise, as a stage has them and as raw bytes."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    still = np.stack([x * 255 / WIDTH, y * 255 / HEIGHT, (x + y) * 255 / (WIDTH + HEIGHT)], axis=-1)
    frames = np.stack(
        [
            np.clip(np.roll(still, 3 * index, axis=1) + generator.normal(0, 4, still.shape), 0, 255).astype(np.uint8)
            for index in range(count)
        ]
    )
    write_frames(directory / "frames.npy", iter([frames]), (count, HEIGHT, WIDTH))
    frames.tofile(directory / "frames.rgb")
    return directory / "frames.npy", directory / "frames.rgb"


def by_ffmpeg(raw: Path, video: Path, settings: EncoderSettings) -> None:
    """What a person would type."""
    binary, _ = ffmpeg_binary()
    given = ["-f", "rawvideo", "-s", f"{WIDTH}x{HEIGHT}", "-pix_fmt", "rgb24", "-r", str(FPS), "-i", str(raw)]
    made = ["-an", "-c:v", settings.codec, "-pix_fmt", settings.pixel_format, "-crf", str(settings.crf)]
    command = [binary, "-nostdin", "-v", "error", "-y", *given, *made, *settings.arguments, str(video)]
    subprocess.run(command, check=True)


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """On the clock, and of processors, in this process and in ffmpeg."""
    clock, before = time.perf_counter(), os.times()
    call()
    after = os.times()
    return time.perf_counter() - clock, sum(after[:4]) - sum(before[:4])


def alternate(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int
) -> tuple[list[Seconds], list[Seconds]]:
    """Both in turn, each first half of the time, after a warm-up."""
    ours(), theirs()
    times: tuple[list[Seconds], list[Seconds]] = ([], [])
    for number in range(repeats):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(seconds((ours, theirs)[which]))
    return times


def report(name: str, ours: list[Seconds], theirs: list[Seconds]) -> None:
    for kind, what in enumerate(("clock", "processor")):
        medians = [statistics.median(each[kind] for each in times) for times in (ours, theirs)]
        shown = [" ".join(f"{each[kind]:.2f}" for each in times) for times in (ours, theirs)]
        print(f"{name:<17}{what:<10} ours {shown[0]} s   ffmpeg {shown[1]} s   ratio {medians[0] / medians[1]:.3f}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=81)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--presets", nargs="+", default=["h264-crf18", "imageio-quality", "lossless"])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetcraft-encode-") as name:
        directory = Path(name)
        frames, raw = make_frames(directory, chosen.frames)
        for preset in chosen.presets:
            settings = encoder_settings(preset, platform.machine())
            ours, theirs = directory / "ours.mp4", directory / "theirs.mp4"
            times = alternate(
                lambda to=ours, by=settings: encode(to, read_frames(frames), WIDTH, HEIGHT, FPS, by),
                lambda to=theirs, by=settings: by_ffmpeg(raw, to, by),
                chosen.repeats,
            )
            assert ours.read_bytes() == theirs.read_bytes(), "the same arguments give the same bytes"
            report(preset, *times)
            decode = ffmpeg_command("-i", str(ours), "-f", "null", "-", level="error")
            times = alternate(
                lambda of=ours: probe(of), lambda by=decode: subprocess.run(by, check=True), chosen.repeats
            )
            report("  its check", *times)


if __name__ == "__main__":
    main()
