"""How much frames differ from the ones before them: what VBench's temporal_flickering is made of, by code of our own.

VBench's score is 1 − the difference / 255, of frames that OpenCV decodes as BT.601; here they are decoded by the
video's own tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.playing import play
from fleetcraft.scoring.interface import Pair, Score, one_by_one


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """The mean difference of consecutive frames, 0 to 255, for each video."""
    check_ffmpeg(settings["ffmpeg_sha256"])
    return one_by_one(pairs, lambda pair: mean_frame_difference(pair.video), ledger)


def mean_frame_difference(video: Path, matrix: str | None = None) -> float:
    """Mean absolute difference of 8-bit values between each frame and the next, over all pixels and channels.

    The sum is of integers, so no order of adding changes it. `matrix` is as in `play`.

    Raises
    ------
    BadResult : the video has fewer than two frames, or can't be played.
    """
    total = values = 0
    last = None
    for frame in play(video, matrix):
        if last is not None:
            total += int(np.abs(frame.astype(np.int16) - last).sum(dtype=np.int64))
            values += frame.size
        last = frame
    if not values:
        raise BadResult(
            "this video has fewer than two frames: there is nothing to compare",
            file=video,
            remedy="Leave this dimension out, or take videos of two frames or more",
        )
    return total / values
