"""Stage views: a directory of links that give an arm's videos the names people and VBench expect."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.video_names import video_name
from fleetcraft.ground.files import new_directory, write_text
from fleetcraft.store.store import Store


def make_views(plan: Plan, arm: str) -> None:
    """Link `{prompt}-{index}.mp4` to the video of each prompt and seed, and write the table of the links.

    The index counts the prompt's seeds. The directory holds nothing but videos: VBench takes a stray file for the
    kind of all of them.
    """
    store, target = Store(plan.paths.store), Path(plan.paths.views(arm))
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    table.writerow(["file", "prompt", "seed", "sample", "video"])
    with new_directory(target, replace=True) as directory:
        for sample in (sample for shard in plan.shards for sample in plan.samples(arm, shard)):
            key = plan.video_key(sample)
            name = video_name(sample.prompt.text, sample.seed, plan.seeds.of(sample.prompt.dimensions))
            # Relative, so that scratch can be moved; from where the directory will be, not from where it is made.
            (directory / name).symlink_to(os.path.relpath(store.file("videos", key), target))
            table.writerow([name, sample.prompt.text, sample.seed, sample.sample_id, key])
    write_text(Path(plan.paths.view_index(arm)), rows.getvalue())
