"""Structural similarity of a video to the baseline's video, by ffmpeg's `ssim` filter on the planes as they are stored.

`media/fidelity.py` measures SSIM of decoded colours, which is another number. This one weighs brightness twice as
much as both colour planes together (of yuv420p), and is meant for videos of one encoder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadResult
from fleetcraft.media.ffmpeg import check_ffmpeg, ffmpeg_binary
from fleetcraft.scoring.interface import Pair

_ALL = re.compile(r"\bSSIM .*\bAll:(\d+\.\d+)")


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any]) -> list[float]:
    """SSIM over all planes and frames, for each pair."""
    check_ffmpeg(settings["ffmpeg_sha256"])
    return [_ssim(pair.video, pair.paired) for pair in pairs]


def _ssim(video: Path, baseline: Path) -> float:
    binary, _ = ffmpeg_binary()
    command = [binary, "-hide_banner", "-nostdin", "-threads", "1", "-i", str(video), "-i", str(baseline)]
    answer = subprocess.run(
        [*command, "-lavfi", "ssim", "-f", "null", "-"], capture_output=True, text=True, check=False
    )
    found = _ALL.search(answer.stderr)
    if answer.returncode != 0 or found is None:
        raise BadResult(
            f"ffmpeg could not compare this video with the baseline's: {answer.stderr.strip().splitlines()[-1:]}",
            file=video,
            remedy="Delete the video and run `fleetcraft audit --repair`: it is encoded anew",
        )
    return float(found[1])
