"""A trial: one complete task of an arm at one batch, from loading to scores, in a store of its own that is thrown away.

Runs in the controller's interpreter and starts the stages of a campaign as they are, each in its tool chain. That one
runs out of memory is a result of the trial, with its class, and ends it.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetcraft.experiment.batches import subject
from fleetcraft.experiment.models import Experiment, Roots
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.cgroup import KillCounter, memory_mb
from fleetcraft.ground.errors import DeviceMemory, HostMemory
from fleetcraft.ground.failures import BUG, FAILURE_FILE, Failure
from fleetcraft.ground.ledger import PEAK, Held, most
from fleetcraft.ground.records import Record, read_records, write_records
from fleetcraft.ground.toolchain import clean_environment
from fleetcraft.stages.describe import describe, model_directory
from fleetcraft.stages.job import Job
from fleetcraft.stages.launch import command_of
from fleetcraft.stages.provenance import provenance

KIND = "calibrations"

MEMORY_CLASSES = (DeviceMemory.failure_class, HostMemory.failure_class)
"""Classes of failure that say something about a batch; any other is a fault to be mended."""


class Failed(Exception):
    """A stage of a trial failed."""

    def __init__(self, stage: str, failure: Failure):
        super().__init__(f"{stage}: {failure}")
        self.stage, self.failure = stage, failure


def calibrate(plan: Plan, arm: str, batch: int, log: Path, toolchains: dict[str, str]) -> None:
    """Run the trial and leave its record.

    It makes two batches, and each phase counts as the faster of them took: the first one warms up as well.

    Raises
    ------
    SystemExit : it failed for another reason than memory; the stage's own words are in the log.
    """
    output = Path(plan.paths.calibration(arm, str(batch)))
    output.parent.mkdir(parents=True, exist_ok=True)
    failure: Failed | None = None
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=output.parent) as directory:
        trial = miniature(plan, arm, batch, 2 * batch, directory)
        phases: dict[str, dict[str, float | None]] = {}
        owners: dict[str, dict[str, Held]] = {}
        flops = None
        try:
            for job in _jobs(plan, trial, arm, 2 * batch):
                _run(job, log, Path(directory), toolchains)
                if Path(job.output).is_file():
                    records = read_records(Path(job.output))
                    flops = next((one["work"]["flops_computed"] for one in records if "work" in one), flops)
                    _account(records, phases, owners)
        except Failed as error:
            failure = error
            print(f"calibrate: batch {batch} failed in {error.stage} ({error.failure.failure_class}): {error.failure}")
    if failure is not None and failure.failure.failure_class not in MEMORY_CLASSES:
        failure.failure.leave()
        sys.exit(1)
    record = {
        "kind": KIND,
        "arm": arm,
        "subject": subject(plan, arm).model_dump(),
        "batch": batch,
        "phases": phases,
        "memory": owners,
        "flops": flops,
        "failure": None
        if failure is None
        else {"stage": failure.stage, "class": failure.failure.failure_class, "problem": failure.failure.problem},
        "host_mb": memory_mb(),
        "made": provenance(()),
    }
    write_records(output, [record])
    took = ", ".join(f"{name} {figures['seconds']:.3f} s" for name, figures in phases.items())
    print(f"calibrate: {arm} at batch {batch}: {took or 'nothing measured'}")


def miniature(plan: Plan, arm: str, batch: int, samples: int, directory: str) -> Plan:
    """The campaign of one arm with at least so many samples, in a place of its own."""
    experiment = plan.experiment
    prompts = plan.prompts[:samples]
    dimensions = [
        name
        for name in plan.dimensions
        if not plan.known[name].pairwise and any(plan.is_scored(one, name) for one in prompts)
    ]
    settings = experiment.generated[arm].model_copy(update={"batch": batch})
    changes: dict[str, Any] = {
        "paths": Roots(scratch=f"{directory}/scratch", work=f"{directory}/work"),
        "arms": {arm: settings},
        "baseline": arm,
        "prompts": experiment.prompts.model_copy(update={"limit": len(prompts)}),
        "seeds": list(range(math.ceil(samples / len(prompts)))),
        "further_seeds": {},
        "scoring": experiment.scoring.model_copy(update={"dimensions": dimensions}),
        "timing": None,
        "shard_size": max(samples, experiment.shard_size),
    }
    small: Experiment = experiment.model_copy(update=changes)
    return Plan(small)


def _jobs(plan: Plan, trial: Plan, arm: str, samples: int) -> Iterator[Job]:
    """The jobs of the trial, each for all of its samples at once."""
    directory = model_directory(plan, plan.experiment.generated[arm].model)
    for stage in ("generate", "decode", "encode"):
        job = _joined(trial, stage, {"arm": arm}, samples)
        yield replace(
            job, settings=job.settings | ({"model_directory": directory} if "model_directory" in job.settings else {})
        )
    for dimension in trial.dimensions:
        job = _joined(trial, "score", {"arm": arm, "dimension": dimension}, samples)
        if job.samples:
            yield job


def _joined(trial: Plan, stage: str, wildcards: Mapping[str, str], samples: int) -> Job:
    """One job of the samples of all shards, `samples` of them."""
    jobs = [describe(trial, stage, {**wildcards, "shard": shard}) for shard in trial.shards]
    return replace(jobs[0], samples=tuple(sample for job in jobs for sample in job.samples)[:samples])


def _run(job: Job, log: Path, directory: Path, toolchains: dict[str, str]) -> None:
    """Run one stage to its end.

    Raises Failed, with the class that the stage gave or that its end and the kernel's counters give.
    """
    description, told = directory / f"{job.stage}.json", directory / "failure.json"
    counter = KillCounter()
    before = counter.count()
    sys.stdout.flush()
    with log.open("ab") as stream:
        ended = subprocess.run(
            command_of(job, description, toolchains),
            env=clean_environment() | {FAILURE_FILE: str(told)},
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if ended.returncode == 0:
        return
    failure = Failure.read(told)
    if failure is None:
        killed = ended.returncode < 0 and counter.count() > before
        problem = f"the stage ended with {_end(ended.returncode)}"
        failure = (
            Failure(HostMemory.failure_class, f"{problem}, and the kernel killed for want of memory", "Use less")
            if killed
            else Failure(BUG, problem, f"Look at {log}")
        )
    raise Failed(job.stage, failure)


def _end(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _account(
    records: list[Record], phases: dict[str, dict[str, float | None]], owners: dict[str, dict[str, Held]]
) -> None:
    """Add a stage's records: to the phases the least seconds of a video, to the owners the most that they held."""
    for record in records:
        scored = record["kind"] == "scores"
        # A video's record has within it that of its decoding, which leaves nothing else behind.
        for part in (record, record.get("decoded") or {}):
            for phase, seconds in part.get("seconds", {}).items():
                name = f"{phase} {record['dimension']}" if scored else phase
                # A job scores all of its videos at once, and every record has the time of all.
                share = seconds / len(records) if scored else seconds
                least = min(share, phases[name]["seconds"] or share) if name in phases else share
                held = owners.setdefault(name, {})
                for owner, size in part.get("memory", {}).get(phase, {}).items():
                    held[owner] = most(held.get(owner), size)
                phases[name] = {"seconds": least, **held.get(PEAK, {"host_mb": None, "device_mb": None})}
