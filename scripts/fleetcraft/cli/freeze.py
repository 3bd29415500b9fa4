"""`fleetcraft freeze`: from the records of trials to a frozen batch table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan

if TYPE_CHECKING:
    from fleetcraft.calibration.decision import Policy
    from fleetcraft.calibration.table import Entry
    from fleetcraft.experiment.plan import Plan


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "freeze",
        help="choose each arm's batch from its trials",
        description="Decide which batch each arm denoises with, from the trials that `snakemake calibrate` ran, and "
        "write the batch table with a reason for every trial. The file is the experiment's `batch_table`, or else "
        "config/batches/NAME.yaml; entries in it for other arms, shapes, hardware and stacks stay.",
    )
    add_experiment(parser)
    parser.add_argument(
        "--headroom",
        type=_share,
        default=0.15,
        metavar="SHARE",
        help="memory that stays free in every phase, on device and host",
    )
    parser.add_argument(
        "--gain",
        type=_share,
        default=0.10,
        metavar="SHARE",
        help="throughput that a larger batch must add",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="print the decision and write nothing")
    parser.set_defaults(run=run)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give a number from 0 to below 1, as 0.15")
    return value


def run(chosen: argparse.Namespace) -> int:
    from dataclasses import asdict

    from fleetcraft.calibration.decision import Policy
    from fleetcraft.calibration.table import BatchTable, write_table

    plan, policy = load_plan(chosen), Policy(headroom=chosen.headroom, gain=chosen.gain)
    if plan.experiment.batch_table is not None:
        file = Path(plan.experiment.batch_table)
    else:
        file = Path("config/batches") / f"{plan.experiment.name}.yaml"
    decided = {arm: _entry(plan, arm, policy) for arm in plan.experiment.generated}
    for arm, (entry, text) in decided.items():
        print(f"{arm}: batch {entry.batch}" if entry else f"{arm}: no batch can be frozen")
        print(text)
    entries = [entry for entry, _ in decided.values() if entry is not None]
    if len(entries) < len(decided):
        print("nothing was written, for not every arm has a batch")
        return 1
    if chosen.dry_run:
        return 0
    kept = BatchTable.read(file).entries.values() if file.is_file() else ()
    write_table(file, {**asdict(policy), "target": list(policy.target)}, entries, kept)
    named = "" if plan.experiment.batch_table else f"; name it in the experiment: `batch_table: {file}`"
    print(f"written: {file}{named}")
    return 0


def _entry(plan: Plan, arm: str, policy: Policy) -> tuple[Entry | None, str]:
    """The entry of an arm, None where no batch fits; and the reasons, for people."""
    from fleetcraft.calibration.decision import Capacity, Trial, decide
    from fleetcraft.calibration.table import Entry, PhaseFigures, TrialVerdict
    from fleetcraft.experiment.batches import subject as subject_of
    from fleetcraft.experiment.batches import trial_batches

    records = [_record(plan, arm, batch) for batch in trial_batches(plan, arm)]
    capacity = Capacity(_device_mb(plan), min(record["host_mb"] for record in records))
    trials = [
        Trial(
            record["batch"],
            {
                name: {kind: phase[kind] for kind in ("host_mb", "device_mb")}
                for name, phase in record["phases"].items()
            },
            None if record["failure"] else _videos_per_hour(record["phases"]),
            record["failure"] and f"{record['failure']['class']} in {record['failure']['stage']}",
        )
        for record in records
    ]
    decision = decide(trials, capacity, policy)
    lines = [
        f"  {'*' if verdict.taken else ' '} batch {verdict.batch:<3} {verdict.reason}" for verdict in decision.verdicts
    ]
    lines += [f"    {decision.advice}"] if decision.advice else []
    taken = next((record for record in records if record["batch"] == decision.batch), None)
    if taken is None:
        return None, "\n".join(lines)
    subject = subject_of(plan, arm)
    entry = Entry(
        arm=arm,
        subject=subject,
        digest=subject.digest,
        batch=taken["batch"],
        verdicts=[TrialVerdict(**vars(verdict)) for verdict in decision.verdicts],
        advice=decision.advice,
        phases={name: PhaseFigures(**phase) for name, phase in taken["phases"].items()},
        flops=taken["flops"],
        measured={name: taken["made"][name] for name in ("host", "created")},
    )
    return entry, "\n".join(lines)


def _record(plan: Plan, arm: str, batch: int) -> dict[str, Any]:
    from fleetcraft.experiment.batches import subject as subject_of
    from fleetcraft.ground.errors import BadInput, PurgedScratch
    from fleetcraft.ground.records import read_records

    file = Path(plan.paths.calibration(arm, str(batch)))
    remedy = "Run `snakemake calibrate` for this experiment"
    try:
        (record,) = read_records(file)
    except PurgedScratch:
        raise BadInput(f"arm {arm!r} was not tried at batch {batch}", file=file, remedy=remedy) from None
    if record["subject"] != subject_of(plan, arm).model_dump():
        raise BadInput(f"this trial of arm {arm!r} was of another model, shape or stack", file=file, remedy=remedy)
    return record


def _videos_per_hour(phases: dict[str, dict[str, float]]) -> float:
    """Throughput of the phases that occupy the device."""
    from fleetcraft.experiment.batches import DEVICE_PHASES

    return 3600 / sum(phases[name]["seconds"] for name in DEVICE_PHASES if name in phases)


def _device_mb(plan: Plan) -> float | None:
    from fleetcraft.calibration.hardware import hardware
    from fleetcraft.ground.errors import BadInput

    stack = plan.experiment.stack
    if stack.hardware is not None:
        return hardware(stack.hardware, "stack.hardware").memory_gib * 1024
    if stack.device == "cuda":
        raise BadInput(
            "a table of batches for GPUs has to say for which",
            key="stack.hardware",
            remedy="Name the accelerator, as resources/hardware.yaml has it, and calibrate again",
        )
    return None
