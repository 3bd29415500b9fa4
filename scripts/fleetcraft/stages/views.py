"""Stage views: a directory of links that give an arm's videos the names people and VBench expect."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.files import new_directory, write_text
from fleetcraft.store.store import Store

_LONGEST_NAME = 255
"""Bytes that a file name may have on the filesystems in use."""


def make_views(plan: Plan, arm: str) -> None:
    """Link `{prompt}-{index}.mp4` to the video of each prompt and seed, and write the table of the links.

    The index counts the experiment's seeds. The directory holds nothing but videos: VBench takes a stray file for the
    kind of all of them.
    """
    store, target = Store(plan.paths.store), Path(plan.paths.views(arm))
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    table.writerow(["file", "prompt", "seed", "sample", "video"])
    with new_directory(target, replace=True) as directory:
        for sample in (sample for shard in plan.shards for sample in plan.samples(arm, shard)):
            key = plan.video_key(sample)
            name = view_name(sample.prompt.text, sample.seed, plan.experiment.seeds)
            # Relative, so that scratch can be moved; from where the directory will be, not from where it is made.
            (directory / name).symlink_to(os.path.relpath(store.file("videos", key), target))
            table.writerow([name, sample.prompt.text, sample.seed, sample.sample_id, key])
    write_text(Path(plan.paths.view_index(arm)), rows.getvalue())


def view_name(prompt: str, seed: int, seeds: Sequence[int]) -> str:
    """VBench's name of a video.

    A slash, which no file name can hold, becomes a division slash. A prompt that is longer than a file name may be is
    cut, with a digest to tell it from others with the same beginning.
    """
    name = prompt.replace("/", "\u2215")
    ending = f"-{list(seeds).index(seed)}.mp4"
    if len(name.encode()) + len(ending) > _LONGEST_NAME:
        ending = f"…{key_of(prompt)[:8]}{ending}"
        name = name.encode()[: _LONGEST_NAME - len(ending.encode())].decode(errors="ignore")
    return f"{name}{ending}"
