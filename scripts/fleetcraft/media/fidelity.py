"""How close two videos are to the frames that both were encoded from, and to each other: PSNR, SSIM and VMAF.

One run of ffmpeg reads the frames and both videos once. Videos with other colour matrices can't be compared as they are
stored: PSNR and SSIM are of the pixels as red, green and blue, each video decoded by its own tags (BT.601 where it has
none); VMAF is of the brightness, model vmaf_v0.6.1.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetcraft.ground.errors import BadResult
from fleetcraft.media.ffmpeg import ffmpeg_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAIRS = (("declared", "frames"), ("compared", "frames"), ("compared", "declared"))
"""(video, what it is measured against)."""

_FILTERS = {"psnr": "psnr", "ssim": "ssim", "vmaf": "libvmaf"}
# As common readers convert; `accurate_rnd` would take another, worse way to planar colours.
_EXACT = "flags=bicubic+bitexact"
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
    graph, outputs = _graph()
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-i", "pipe:0"]
    videos = [part for video in (declared, compared) for part in ("-threads", "1", "-i", f"file:{video}")]
    sinks = [part for output in outputs for part in ("-map", output, "-f", "null", "-")]
    command = [part for part in ffmpeg_command(*raw, *videos, "-filter_complex", graph, *sinks) if part != "-nostdin"]
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
    found = {(name, of, to): value for name, of, to, value in _RESULT.findall(text)}
    if process.returncode != 0 or len(found) != len(outputs):
        errors = re.findall(r"\[(?:error|fatal)\] (.+)", text) or [f"exit status {process.returncode}"]
        raise BadResult(
            f"ffmpeg could not measure this video against its frames: {errors[0]}",
            file=compared,
            remedy="Delete the video and its record beside it, then start again: it is encoded anew",
        )
    return [
        {
            "of": of,
            "against": against,
            "mse": 255**2 / 10 ** (float(found["psnr", of, against]) / 10) if measured()["psnr"] else None,
            "ssim": float(found["ssim", of, against]) if measured()["ssim"] else None,
            "vmaf": float(found["vmaf", of, against]) if measured()["vmaf"] else None,
        }
        for of, against in PAIRS
    ]


def _graph() -> tuple[str, list[str]]:
    """The filters, and the names of their outputs. Frames are matched by number, whatever rate the files have."""
    names = [name for name, there in measured().items() if there]
    parts = []
    copies: dict[str, list[str]] = {"frames": [], "declared": [], "compared": []}
    measures, outputs = [], []
    for of, against in PAIRS:
        for name in names:
            link = f"{name}_of_{of}_to_{against}"
            for side in (of, against):
                copies[side].append(f"[{link}_{side}]")
            # libvmaf knows only Y'CbCr; both sides are brought there in the same way.
            same = f"scale=out_color_matrix=bt709:out_range=tv:{_EXACT},format=yuv420p" if name == "vmaf" else "null"
            measures += [f"[{link}_{side}]{same}[{link}_{side}_]" for side in (of, against)]
            measures.append(f"[{link}_{of}_][{link}_{against}_]{_FILTERS[name]}@{link}[{link}]")
            outputs.append(f"[{link}]")
    for number, links in enumerate(copies.values()):
        parts.append(f"[{number}:v]settb=1/1,setpts=N,scale={_EXACT},format=gbrp,split={len(links)}{''.join(links)}")
    return ";".join([*parts, *measures]), outputs


@cache
def _filters() -> set[str]:
    listing = subprocess.run(ffmpeg_command("-filters"), capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in listing.splitlines() if "->" in line}
