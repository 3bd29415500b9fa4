"""How close two videos are to each other, and to the frames that both were encoded from: PSNR, SSIM and VMAF.

One run of ffmpeg reads everything once. Videos with other colour matrices can't be compared as they are stored: PSNR
and SSIM are of the pixels as red, green and blue, each video decoded by its own tags (BT.601 where it has none); VMAF
is of the brightness, model vmaf_v0.6.1.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetcraft.ground.errors import BadEnvironment, BadResult
from fleetcraft.media.ffmpeg import EXACT_SCALING, ffmpeg_binary, ffmpeg_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIRS = (("declared", "frames"), ("compared", "frames"), ("compared", "declared"))
"""(video, what it is measured against)."""

_FILTERS = {"psnr": "psnr", "ssim": "ssim", "vmaf": "libvmaf"}
_RESULT = re.compile(r"\[\w+@(\w+)_of_(\w+)_to_(\w+) @ .*(?:average:|All:|VMAF score: )(\S+)")


def measured() -> dict[str, bool]:
    """Measure → whether this ffmpeg has the filter for it."""
    return {name: filter in _filters() for name, filter in _FILTERS.items()}


def measure(
    frames: Iterable[NDArray[np.uint8]], width: int, height: int, declared: Path, compared: Path
) -> list[dict[str, float | str | None]]:
    """For each of `PAIRS`, {of, against, mse, ssim, vmaf} over all frames; None for what can't be measured here.

    mse : mean squared difference of 8-bit values, over all pixels, channels and frames; 0 for the same pixels.

    Memory holds some frames; `frames` are uint8 [height, width, 3].
    """
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-i", "pipe:0"]
    inputs = {"frames": raw, "declared": _file(declared), "compared": _file(compared)}
    names = [name for name, there in measured().items() if there]
    found, problem = _run(inputs, PAIRS, names, frames)
    if problem is not None:
        raise BadResult(
            f"ffmpeg could not measure this video against its frames: {problem}",
            file=compared,
            remedy="Delete the video and its record beside it, then start again: it is encoded anew",
        )
    return [
        {
            "of": of,
            "against": against,
            "mse": mse(found["psnr", of, against]) if "psnr" in names else None,
            "ssim": found["ssim", of, against] if "ssim" in names else None,
            "vmaf": found["vmaf", of, against] if "vmaf" in names else None,
        }
        for of, against in PAIRS
    ]


def measure_pair(name: str, video: Path, against: Path) -> float:
    """`psnr` (dB, infinite for the same pixels), `ssim` or `vmaf` of one video to another, over all frames.

    Raises
    ------
    BadEnvironment : this ffmpeg has no filter for it.
    BadResult : one of the videos can't be read, or they are of different sizes.
    """
    if not measured()[name]:
        raise BadEnvironment(
            f"this ffmpeg can't measure {name}: it was built without the filter {_FILTERS[name]}",
            file=ffmpeg_binary()[0],
            remedy=f"Leave {name} out of `scoring.dimensions`, or use the ffmpeg that imageio-ffmpeg ships",
        )
    inputs = {"video": _file(video), "other": _file(against)}
    found, problem = _run(inputs, [("video", "other")], [name])
    if problem is not None:
        raise BadResult(
            f"ffmpeg could not compare this video with {against}: {problem}",
            file=video,
            remedy="Delete the one that is damaged and run `fleetcraft audit --repair`: it is made or taken in anew",
        )
    return found[name, "video", "other"]


def mse(psnr: float) -> float:
    """Mean squared difference of 8-bit values whose peak signal-to-noise ratio is `psnr` dB."""
    return 255**2 / 10 ** (psnr / 10)


def _file(video: Path) -> list[str]:
    return ["-threads", "1", "-i", f"file:{video}"]


def _run(
    inputs: dict[str, list[str]],
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str],
    frames: Iterable[NDArray[np.uint8]] = (),
) -> tuple[dict[tuple[str, str, str], float], str | None]:
    """{(measure, video, against): value}, and what ffmpeg says is wrong; `frames` go to its standard input."""
    graph, outputs = _graph(list(inputs), pairs, names)
    sources = [part for source in inputs.values() for part in source]
    sinks = [part for output in outputs for part in ("-map", output, "-f", "null", "-")]
    command = ffmpeg_command("-xerror", *sources, "-filter_complex", graph, *sinks)
    if "pipe:0" in sources:
        command.remove("-nostdin")
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log) as process:
            assert process.stdin is not None
            try:
                for frame in frames:
                    process.stdin.write(frame.tobytes())
                process.stdin.close()
            except BrokenPipeError:
                pass  # ffmpeg has ended, and says why
        log.seek(0)
        text = log.read()
    found = {(name, of, to): float(value) for name, of, to, value in _RESULT.findall(text)}
    problem = None
    if process.returncode != 0 or len(found) != len(outputs) or any(map(math.isnan, found.values())):
        errors = re.findall(r"\[(?:error|fatal)\] (.+)", text) or [f"exit status {process.returncode}"]
        problem = str(errors[0])
    return found, problem


def _graph(inputs: Sequence[str], pairs: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[str, list[str]]:
    """The filters, and the names of their outputs. Frames are matched by number, whatever rate the files have."""
    parts = []
    copies: dict[str, list[str]] = {name: [] for name in inputs}
    measures, outputs = [], []
    for of, against in pairs:
        for name in names:
            link = f"{name}_of_{of}_to_{against}"
            for side in (of, against):
                copies[side].append(f"[{link}_{side}]")
            # libvmaf knows only Y'CbCr; both sides are brought there in the same way.
            same = (
                f"scale=out_color_matrix=bt709:out_range=tv:{EXACT_SCALING},format=yuv420p"
                if name == "vmaf"
                else "null"
            )
            measures += [f"[{link}_{side}]{same}[{link}_{side}_]" for side in (of, against)]
            measures.append(f"[{link}_{of}_][{link}_{against}_]{_FILTERS[name]}@{link}[{link}]")
            outputs.append(f"[{link}]")
    for number, links in enumerate(copies.values()):
        start = f"[{number}:v]settb=1/1,setpts=N,scale={EXACT_SCALING},format=gbrp"
        parts.append(f"{start},split={len(links)}{''.join(links)}")
    return ";".join([*parts, *measures]), outputs


@cache
def _filters() -> set[str]:
    listing = subprocess.run(ffmpeg_command("-filters"), capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in listing.splitlines() if "->" in line}
