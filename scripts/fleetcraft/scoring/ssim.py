"""Structural similarity of a video to the baseline's video, by ffmpeg's `ssim` filter on the planes as they are stored.

`media/fidelity.py` measures SSIM of decoded colours, which is another number. This one weighs brightness twice as
much as both colour planes together (of yuv420p), and is meant for videos of one encoder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg, ffmpeg_binary
from fleetcraft.scoring.interface import Pair, Score, one_by_one

_ALL = re.compile(r"\bSSIM .*\bAll:(\d+\.\d+)")


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """SSIM over all planes and frames, for each pair."""
    check_ffmpeg(settings["ffmpeg_sha256"])
    return one_by_one(pairs, lambda pair: _ssim(pair.video, pair.paired), ledger)


def _ssim(video: Path, baseline: Path) -> float:
    binary, _ = ffmpeg_binary()
    # Without `-xerror`, what can be decoded of a damaged video is compared.
    command = [binary, "-hide_banner", "-nostdin", "-xerror", "-threads", "1"]
    command += ["-i", f"file:{video}", "-i", f"file:{baseline}"]
    answer = subprocess.run(
        [*command, "-lavfi", "ssim", "-f", "null", "-"], capture_output=True, text=True, check=False
    )
    found = _ALL.search(answer.stderr)
    if answer.returncode != 0 or found is None:
        raise BadResult(
            f"ffmpeg could not compare this video with {baseline}: {answer.stderr.strip().splitlines()[-1:]}",
            file=video,
            remedy="Delete the one that is damaged and run `fleetcraft audit --repair`: it is made or taken in anew",
        )
    return float(found[1])
