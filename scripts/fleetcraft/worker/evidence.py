"""Why an attempt failed, from what it left behind: its own word, its end, its log, and what its memory cgroup counted.

The process that a worker started is seldom the one that failed: a job is a Snakemake that runs a script that becomes a
stage. So the exit code is the least of the evidence.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetcraft.ground.cgroup import Kills
from fleetcraft.ground.errors import BadEnvironment, BadResult, HostMemory
from fleetcraft.ground.failures import BUG, REMEDIES, Failure, class_of_words
from fleetcraft.spool import Outcome, Request

_TAIL_BYTES = 1 << 13
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS", "SIGTRAP")
_SIGNALLED = re.compile(r"died with <Signals\.(SIG[A-Z0-9]+)|returned non-zero exit status (\d+)")
"""How Python says that a child of its was killed; a shell in between makes an exit status of a signal."""

_LOG = "Read the log of the attempt"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to go by when an attempt is gone.

    Parameters
    ----------
    event : what its launcher reports.
    left : what the attempt itself left to be read.
    before, after : what the kernel had counted when it began, and counted when it was gone.
    alone : whether this worker ran nothing else meanwhile, so that what was counted can't have been another's.
    log : where it wrote.
    """

    event: dict[str, Any]
    left: Failure | None
    before: int
    after: Kills | None
    alone: bool
    log: Path


def explain_end(outcome: Outcome, cause: str, request: Request, evidence: Evidence) -> Failure | None:
    """Why an attempt failed; None where it didn't, or the node did."""
    if outcome is Outcome.LOST:
        return _out_of_memory(cause, request, evidence)
    if outcome is not Outcome.FAILED:
        return None
    plain = _plain(cause, evidence.event)
    if plain is not None:
        return plain
    tail = _tail(evidence.log)
    name = _signal(evidence.event["exit_code"], tail)
    left = evidence.left
    if left is not None and left.failure_class != BUG:
        return left
    ended = f"it was killed by {name}" if name else cause
    if name == "SIGKILL" or (evidence.alone and name is None):
        # What a stage takes for a bug can be that a process of its own was killed.
        memory = _out_of_memory(left.problem if left else ended, request, evidence)
        if memory is not None:
            return memory
    if left is not None:
        return left
    said = class_of_words(tail)
    if said is not None:
        return Failure(said, f"{ended}, and its log tells of this", REMEDIES[said])
    return _killed(name, ended, evidence) if name else Failure("unclassified", f"{cause}, and no word why", _LOG)


def _plain(cause: str, event: dict[str, Any]) -> Failure | None:
    """Where the worker saw for itself."""
    if "refused" in event or "exit_code" not in event:
        said = class_of_words(cause) or BadEnvironment.failure_class
        remedy = "Look whether the node has the command, and whether the log and the directory can be reached there"
        return Failure(said, cause, remedy if said == BadEnvironment.failure_class else REMEDIES[said])
    if event["timed_out"]:
        return Failure("time limit", cause, "Give the job more `runtime`, or less to do (smaller shards)")
    if event["exit_code"] == 0:
        return Failure(BadResult.failure_class, cause, f"{_LOG}: it ended well without having made all it declares")
    if event["exit_code"] is None:
        return Failure("node", cause, "Nothing of the job's doing: look at the node, which is drained")
    return None


def _out_of_memory(ended: str, request: Request, evidence: Evidence) -> Failure | None:
    before, after = evidence.before, evidence.after
    if after is None or after.count <= before:
        return None
    figures = [
        f"limit {after.limit_mb} MB" if after.limit_mb is not None else "no limit of its own",
        *([f"highest use {after.peak_mb} MB"] if after.peak_mb is not None else []),
        f"the job asked for mem_mb={request.mem_mb}",
    ]
    problem = (
        f"{ended}; the kernel killed {after.count - before} process(es) of the {after.where} meanwhile because "
        f"memory had run out ({', '.join(figures)})"
    )
    return Failure(HostMemory.failure_class, problem, REMEDIES[HostMemory.failure_class])


def _killed(name: str, ended: str, evidence: Evidence) -> Failure:
    if name in _CRASHES:
        remedy = f"{_LOG}: it shows where; if another node does the same, it is a bug of a library"
        return Failure("crash", ended, remedy)
    after = evidence.after
    seen = f", and no out-of-memory event was seen in its {after.where}" if after else ""
    problem = f"{ended}{seen}" if name == "SIGKILL" else ended
    return Failure("killed", problem, "Find out who sent the signal: it wasn't this worker")


def _signal(exit_code: int, tail: str) -> str | None:
    """What ended it, or the process in it that failed."""
    name = _name(-exit_code) or _name(exit_code - 128)
    if name is not None:
        return name
    names = [said or _name(int(status) - 128) for said, status in _SIGNALLED.findall(tail)]
    return next((name for name in reversed(names) if name), None)


def _name(number: int) -> str | None:
    return next((known.name for known in signal.Signals if known == number), None)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
