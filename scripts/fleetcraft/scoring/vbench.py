"""VBench's own code on a set of videos.

Runs in VBench's tool chain and process. The videos are shown to VBench as a directory of links whose names are their
numbers; its results are matched by name, because it returns them in the order of the directory and leaves out videos
that it can't read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vbench import VBench

from fleetcraft.ground.errors import BadResult
from fleetcraft.scoring.interface import Pair


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any]) -> list[float]:
    """VBench's result for each video in one dimension."""
    with tempfile.TemporaryDirectory(prefix="fleetcraft-vbench-") as scratch:
        videos, results = Path(scratch) / "videos", Path(scratch) / "results"
        videos.mkdir()
        names = [f"{number:06}.mp4" for number in range(len(pairs))]
        for name, pair in zip(names, pairs, strict=True):
            (videos / name).symlink_to(pair.video.absolute())
        VBench("cpu", "", str(results)).evaluate(
            videos_path=str(videos),
            name="shard",
            prompt_list={name: pair.prompt for name, pair in zip(names, pairs, strict=True)},
            dimension_list=[dimension],
            mode="custom_input",
        )
        _, rows = json.loads((results / "shard_eval_results.json").read_text())[dimension]
    values = {Path(row["video_path"]).name: float(row["video_results"]) for row in rows}
    for name, pair in zip(names, pairs, strict=True):
        if name not in values:
            raise BadResult(
                f"VBench gave no result in {dimension} for this video: it left it out as unreadable",
                file=pair.video,
                remedy="Delete the video and run `fleetcraft audit --repair`: it is encoded anew",
            )
    return [values[name] for name in names]
