"""Stage candidate_sheet: what a search chose among, of its first prompts, best first, and the winners in full."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from fleetcraft.media.contact_sheet import Tile, draw_sheet, middle_frame
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Draw the sheet: the middle frame of each."""
    store, rows = Store(job.store), []
    for sample in job.samples:
        best, *others = sample["candidates"]
        tiles = [Tile(_middle(store, best["video"]), f"best: {best['value']:.4g}", framed=True)]
        tiles += [Tile(_middle(store, one["video"]), f"{one['value']:.4g}") for one in others]
        tiles.append(Tile(_middle(store, sample["video"]), f"in {job.settings['recommit']}"))
        rows.append((f"{sample['prompt']} · seed {sample['seed']}", tiles))
    draw_sheet(Path(job.output), job.settings["title"], rows)


def _middle(store: Store, key: str) -> Image.Image:
    return middle_frame(store.verified("videos", key))
