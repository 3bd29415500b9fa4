"""What a campaign would make of a fleet, from the figures of its batch table."""

from __future__ import annotations

from fleetcraft.calibration.hardware import hardware
from fleetcraft.calibration.projection import ArmWork, Projection, project
from fleetcraft.experiment.batches import DEVICE_PHASES, RULE_PHASES, calibrated
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput

START_S = 60.0
"""Seconds from a worker's start to its first task's, as allocations on shared file systems have it."""


def projection_of(plan: Plan, devices: int, host_lanes: int) -> Projection:
    """The projection for all arms that are made, candidates of searches among them, with nothing in the store yet.

    devices : slots that denoise and decode. host_lanes : jobs that encode or score beside them at a time.

    Raises
    ------
    BadInput : an arm isn't in the batch table.
    """
    work = []
    for arm in plan.made_arms:
        known = plan.searches.made_in(arm)
        entry = calibrated(plan, known)
        if entry is None:
            raise BadInput(
                f"arm {known!r} can't be projected: no batch table has figures for it",
                file=plan.experiment.batch_table,
                key="batch_table",
                remedy="Run `snakemake calibrate`, then `fleetcraft freeze`, and name the file as `batch_table`",
            )
        seconds = {name: figures.seconds for name, figures in entry.phases.items()}
        host = [*RULE_PHASES["encode"], *(name for name in seconds if name.startswith("score"))]
        work.append(
            ArmWork(
                arm=arm,
                jobs=tuple(len(shard) for shard in plan.shards.values()),
                load_s=sum(value for name, value in seconds.items() if name.startswith("load")),
                device_s={name: seconds[name] for name in DEVICE_PHASES if name in seconds},
                host_s={name: seconds[name] for name in host if name in seconds},
                flops=entry.flops or 0.0,
            )
        )
    named = plan.experiment.stack.hardware
    measured = all(arm.flops for arm in work)
    peak = hardware(named, "stack.hardware").mfu_peak_tflops if named and measured else None
    return project(work, devices, host_lanes, START_S, peak)
