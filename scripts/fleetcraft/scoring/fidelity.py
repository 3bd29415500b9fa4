"""How close a video is to the baseline's video: `psnr` and `vmaf`, as `media/fidelity.py` measures them.

Both are of what a viewer sees, each video decoded by its own tags. `ssim` isn't: it compares the stored planes
(`ssim.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.fidelity import measure_pair
from fleetcraft.scoring.interface import Pair, Score, one_by_one

HIGHEST_PSNR = 100.0
"""In dB, for videos that are the same and those that differ by less than one 8-bit value in 150,000: the same pixels
have no finite ratio, which no mean and no figure could hold."""


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """The measure that `dimension` is the name of, over all frames, for each pair."""
    check_ffmpeg(settings["ffmpeg_sha256"])
    highest = HIGHEST_PSNR if dimension == "psnr" else math.inf
    return one_by_one(pairs, lambda pair: min(highest, measure_pair(dimension, pair.video, pair.paired)), ledger)
