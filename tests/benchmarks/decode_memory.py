"""Host memory from latents to a video, of a short and of a long one, with the tiny Wan VAE.

    .envs/diffusion/bin/python tests/benchmarks/decode_memory.py

Each video is decoded, encoded and checked as the stages do it, in a process of its own. Prints a row a video: seconds,
peaks of the process by phase, and beside them what the frames would take if they were staged whole in float32. Fails
where a peak of the long one is more than 1.2 times that of the short one. Takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

LENGTHS_S, RATE, LIMIT = (10, 240), 16, 1.2
PHASES = ("decode", "encode", "check")


def frames_of(seconds: int) -> int:
    """Frames of a video of so many seconds: the first, and as many as the rate has in a second."""
    return seconds * RATE + 1


def whole_mb(width: int, height: int, frames: int) -> float:
    """MiB of a video's pixels in float32."""
    return width * height * frames * 3 * 4 / 2**20


def prepare(directory: Path, width: int, height: int) -> None:
    """The tiny model, and random latents of each length."""
    import torch
    from safetensors.torch import save_file

    from fleetcraft.pipelines.families import FAMILIES

    family = FAMILIES["wan"]
    family.load().build_tiny(directory / "model", 0)
    for seconds in LENGTHS_S:
        shape = family.geometry.latent_shape(width, height, frames_of(seconds))
        latents = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        save_file({"latents": latents}, directory / f"{seconds}.safetensors")


def measure(directory: Path, width: int, height: int, seconds: int) -> None:
    """From latents to a checked video; prints the ledger."""
    from fleetcraft.ground.ledger import Ledger
    from fleetcraft.media.encoder import check_video, encode
    from fleetcraft.media.frames import read_frames, write_frames
    from fleetcraft.media.presets import encoder_settings
    from fleetcraft.pipelines import numerics
    from fleetcraft.pipelines.families import FAMILIES
    from fleetcraft.pipelines.latents import LatentsFile

    numerics.pin("cpu")
    ledger, count = Ledger(), frames_of(seconds)
    frames, video = directory / f"{seconds}.npy", directory / f"{seconds}.mp4"
    decoder = FAMILIES["wan"].load().load_decoder(directory / "model", "cpu")
    with ledger.phase("decode"):
        chunks = decoder.decode(LatentsFile(directory / f"{seconds}.safetensors"))
        write_frames(frames, chunks, (count, height, width))
    with ledger.phase("encode"):
        settings = encoder_settings("h264-crf18", platform.machine())
        encode(video, read_frames(frames), width, height, RATE, settings)
    with ledger.phase("check"):
        check_video(video, width, height, count, RATE)
    print(json.dumps({"seconds": ledger.seconds, "memory": ledger.memory}))


def in_own_process(step: str, directory: Path, width: int, height: int, seconds: int) -> str:
    """What a step prints."""
    command = [sys.executable, __file__, "--width", str(width), "--height", str(height)]
    command += ["--step", step, "--directory", str(directory), "--seconds", str(seconds)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return answer.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128, help="pixels (default: %(default)s)")
    parser.add_argument("--height", type=int, default=96, help="pixels (default: %(default)s)")
    parser.add_argument("--step", choices=("prepare", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    size = (chosen.width, chosen.height)
    if chosen.step == "prepare":
        return prepare(chosen.directory, *size)
    if chosen.step == "measure":
        return measure(chosen.directory, *size, chosen.seconds)

    peaks: dict[str, list[float]] = {phase: [] for phase in PHASES}
    print(f"{chosen.width}×{chosen.height} pixels, {RATE} frames a second; peaks of the process in MiB")
    print(f"{'length':>7} {'frames':>7} {'decode':>9} " + " ".join(f"{phase:>8}" for phase in PHASES) + "  whole fp32")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        in_own_process("prepare", directory, *size, 0)
        for seconds in LENGTHS_S:
            found = json.loads(in_own_process("measure", directory, *size, seconds).splitlines()[-1])
            for phase in PHASES:
                peaks[phase].append(found["memory"][phase]["peak"]["host_mb"])
            row = " ".join(f"{peaks[phase][-1]:8.1f}" for phase in PHASES)
            frames = frames_of(seconds)
            took = found["seconds"]["decode"]
            print(f"{seconds:5} s {frames:7,} {took:7.1f} s {row} {whole_mb(*size, frames):11,.1f}", flush=True)
    ratios = {phase: values[1] / values[0] for phase, values in peaks.items()}
    print("long to short: " + ", ".join(f"{phase} {ratio:.3f}" for phase, ratio in ratios.items()))
    frames = frames_of(LENGTHS_S[1])
    gigabytes = whole_mb(832, 480, frames) * 2**20 / 1e9
    print(f"for comparison: 832×480 pixels, {frames:,} frames, staged whole in float32: {gigabytes:.1f} GB a sample")
    if max(ratios.values()) > LIMIT:
        raise SystemExit(f"memory grows with the video: more than {LIMIT} times")


if __name__ == "__main__":
    main()
