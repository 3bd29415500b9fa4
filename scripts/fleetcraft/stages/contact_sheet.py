"""Stage contact_sheet: frames of the first prompts of one arm, the same prompts in every arm."""

from __future__ import annotations

from pathlib import Path

from fleetcraft.media.contact_sheet import contact_sheet
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store


def run(job: Job) -> None:
    """Draw the sheet."""
    store = Store(job.store)
    rows = [
        (f"{sample['prompt']} · seed {sample['seed']}", store.verified("videos", sample["video"]))
        for sample in job.samples
    ]
    contact_sheet(Path(job.output), f"Arm {job.settings['arm']}", rows)
