"""Batches that are calibrated and frozen: what is tried, what was measured, and what a campaign may use of it."""

from __future__ import annotations

import math
from functools import lru_cache

from fleetcraft.calibration.table import Entry, Subject
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput

RULE_PHASES = {
    "generate": ("load", "text_encoder", "denoise"),
    "decode": ("load_decoder", "decode"),
    "encode": ("encode", "check"),
}
"""The phases that the jobs of a rule go through, as records and batch tables name them."""

DEVICE_PHASES = ("text_encoder", "denoise", "decode")
"""Those of a video that occupy a device; encoding and scoring share the node's CPUs beside them."""


def trial_batches(plan: Plan, arm: str) -> list[int]:
    """The batches to try an arm at: a cache takes one decision for a whole batch, so it is tried alone."""
    return [1] if plan.experiment.generated[arm].cache else sorted(set(plan.experiment.calibration.batches))


def subject(plan: Plan, arm: str) -> Subject:
    """What a trial of `arm` is a trial of."""
    document, video = dict(plan.condition(arm)), plan.experiment.video
    for name in ("model", "batch", "stack", "sampling"):
        document.pop(name)
    settings = plan.experiment.generated[arm]
    return Subject(
        family=plan.models[settings.model].family,
        model=plan.models[settings.model].digest,
        arm=key_of(document),
        shape=f"{video.width}x{video.height}x{video.frames}",
        media=key_of(plan.video_settings(arm)),
        hardware=plan.experiment.stack.hardware or plan.experiment.stack.device,
        stack=key_of(plan.stack),
    )


def calibrated(plan: Plan, arm: str) -> Entry | None:
    """What the batch table has of an arm."""
    return None if plan.batch_table is None else plan.batch_table.entry(subject(plan, arm))


@lru_cache(maxsize=1024)
def needs(plan: Plan, rule: str, arm: str) -> dict[str, int]:
    """Resources of a rule's jobs, as far as the batch table has measured what they take in `arm`.

    `mem_mb` and `gpu_mem_mb` have a quarter and a tenth of room above the measured peaks; `runtime`, in minutes, is
    twice what the largest shard takes, and five.
    """
    arm = plan.searches.made_in(arm)
    entry = calibrated(plan, arm) if arm in plan.experiment.generated else None
    if entry is None:
        return {}
    phases = {name: figures for name, figures in entry.phases.items() if name in RULE_PHASES.get(rule, ())}
    host = [figures.host_mb for figures in phases.values() if figures.host_mb is not None]
    device = [figures.device_mb for figures in phases.values() if figures.device_mb is not None]
    once = sum(figures.seconds for name, figures in phases.items() if name.startswith("load"))
    each = sum(figures.seconds for name, figures in phases.items() if not name.startswith("load"))
    largest = max(len(shard) for shard in plan.shards.values())
    return {
        **({"mem_mb": math.ceil(max(host) * 1.25 / 100) * 100} if host else {}),
        **({"gpu_mem_mb": math.ceil(round(max(device) * 1.1, 3))} if device else {}),
        **({"runtime": math.ceil(2 * (once + largest * each) / 60) + 5} if phases else {}),
    }


def refuse_unfrozen(plan: Plan) -> None:
    """A batch is a frozen protocol, not a guess: one above 1 has to be the one that the table has.

    Raises
    ------
    BadInput : an arm's isn't; with the command that would calibrate it.
    """
    for arm, settings in plan.experiment.generated.items():
        entry = calibrated(plan, arm)
        if settings.batch == 1 or (entry is not None and entry.batch == settings.batch):
            continue
        again = "run `snakemake calibrate`, then `fleetcraft freeze`"
        if entry is not None:
            reason = next((f" ({one.reason})" for one in entry.verdicts if one.batch == settings.batch), "")
            problem = f"{plan.experiment.batch_table} froze batch {entry.batch} for this arm{reason}"
            remedy = f"Use batch {entry.batch}" if entry.batch == 1 else f"Use batch {entry.batch}, or 1"
        elif plan.batch_table is None:
            problem = "a batch above 1 needs a batch table, and the experiment names none"
            remedy = f"Use 1, or {again}, and name the file as `batch_table`"
        else:
            difference = plan.batch_table.difference(subject(plan, arm))
            problem = f"{plan.experiment.batch_table} has nothing for this arm: {difference}"
            remedy = f"Use 1, or {again}"
        raise BadInput(problem, key=f"arms.{arm}.batch", value=settings.batch, remedy=remedy)


def calibration_digest(plan: Plan, arm: str) -> str:
    """Of what a trial of `arm` depends on."""
    return key_of([subject(plan, arm).digest, plan.dimensions])
