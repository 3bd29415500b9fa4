"""From a rule's script to its stage: describe the job, choose the interpreter, and become it."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

from fleetcraft.ground.errors import BadEnvironment
from fleetcraft.ground.failures import BUG, failure_of
from fleetcraft.ground.records import Record, read_records
from fleetcraft.ground.repository import CHECKOUT, SCRIPTS
from fleetcraft.ground.toolchain import Toolchain, clean_environment
from fleetcraft.stages.job import Job

if TYPE_CHECKING:
    from snakemake.script import Snakemake

    from fleetcraft.experiment.plan import Plan

# Appended, so that the modules of the tool chain come first: a rule's script has a name that could hide one of them.
_BOOTSTRAP = "import sys; sys.path.append({scripts!r}); from fleetcraft.stages.__main__ import main; main()"


def launch(stage: str, snakemake: Snakemake) -> NoReturn:
    """Run the job of a rule's script; its output goes to the rule's log."""
    from fleetcraft.experiment.config import plan_of
    from fleetcraft.stages.describe import describe

    log = Path(snakemake.log[0])
    redirect_output(log)
    with explained():
        plan, runtime = plan_of(snakemake.config)
        job = describe(plan, stage, dict(snakemake.wildcards.items()))
        hand_over(job, log.with_suffix(".json"), runtime.toolchains)


def hand_over(job: Job, description: Path, toolchains: dict[str, str]) -> NoReturn:
    """Write the job's description and replace this process by its stage, in the interpreter of its tool chain.

    Replaced, not started beside: signals, memory limits and exit status are the stage's own.
    """
    command = command_of(job, description, toolchains)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, clean_environment())


def answer_of(job: Job, toolchains: dict[str, str]) -> Iterator[Record]:
    """The records that a stage leaves which is run beside this process, for its answer alone.

    Raises
    ------
    BadEnvironment : its tool chain isn't there, or the stage didn't come to its end.
    """
    with TemporaryDirectory(prefix="fleetcraft-") as directory:
        output = Path(directory) / "answer.jsonl"
        command = command_of(replace(job, output=str(output)), Path(directory) / "job.json", toolchains)
        ended = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            said = (ended.stderr or ended.stdout).strip().splitlines()
            raise BadEnvironment(
                f"the stage {job.stage} ended with {ended.returncode}: {said[-1] if said else 'it said nothing'}",
                file=command[0],
                remedy=f"Run `make envs` in {CHECKOUT} if the tool chain is damaged",
            )
        yield from read_records(output)


def command_of(job: Job, description: Path, toolchains: dict[str, str]) -> list[str]:
    """Write the job's description; the command that runs it, which begins with its interpreter."""
    job.write(description)
    python = Toolchain(job.toolchain).interpreter(toolchains, job.packages)
    return [python, "-P", "-c", _BOOTSTRAP.format(scripts=str(SCRIPTS)), str(description)]


def redirect_output(log: Path) -> None:
    """Send what this process and its successors print to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


@contextmanager
def analysis(snakemake: Snakemake) -> Iterator[Plan]:
    """The plan, for the script of a rule that runs right here; its output goes to the rule's log."""
    from fleetcraft.experiment.config import plan_of

    redirect_output(Path(snakemake.log[0]))
    with explained():
        plan, _ = plan_of(snakemake.config)
        yield plan


@contextmanager
def explained() -> Iterator[None]:
    """Any failure ends the process with its class and explanation, which whoever started it is told, too.

    Only what nobody has thought of has its traceback in the log.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the last frame of a process: whatever it is has to be told
        failure = failure_of(error)
        if failure.failure_class == BUG:
            traceback.print_exception(error)
        print(f"\nfailed ({failure.failure_class}): {failure}", file=sys.stderr)
        failure.leave()
        sys.exit(1)
