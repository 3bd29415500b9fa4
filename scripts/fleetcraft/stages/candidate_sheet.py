"""Stage candidate_sheet: what a search chose among, of its first prompts, best first, and the winners in full.

A winner is framed among the candidates. In a search of several rounds it need not be the best of the first: below those
that went on is what the later rounds gave them.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from fleetcraft.ground.records import Record
from fleetcraft.media.contact_sheet import Tile, draw_sheet, middle_frame
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Draw the sheet: the middle frame of each."""
    store, rows = Store(job.store), []
    for sample in job.samples:
        tiles = [
            Tile(_middle(store, one["video"]), values_of(one), framed=one["seed"] == sample["seed"])
            for one in sample["candidates"]
        ]
        tiles.append(Tile(_middle(store, sample["video"]), f"in {job.settings['recommit']}"))
        rows.append((f"{sample['prompt']} · seed {sample['for_seed']}", tiles))
    draw_sheet(Path(job.output), job.settings["title"], rows)


def values_of(candidate: Record) -> str:
    """What the verifier gave a candidate, a line a round."""
    later = ["none" if value is None else f"{value:.4g}" for value in candidate["then"]]
    return "\n".join([f"{candidate['value']:.4g}", *(f"then {value}" for value in later)])


def _middle(store: Store, key: str) -> Image.Image:
    return middle_frame(store.verified("videos", key))
