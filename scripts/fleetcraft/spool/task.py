"""A task's file: what is to be done, and one line for the end of each attempt.

A task is one file, which is renamed from state to state and to which its present owner appends. JSON lines: the first
is the task, each later one the end of an attempt (or the task again, when it is enqueued anew). Every append starts
and ends with a newline, so that a torn one damages no other line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.errors import BadInput
from fleetcraft.spool.errors import UnreadableTask
from fleetcraft.spool.names import DEFAULT_PRIORITY, HIGHEST_PRIORITY, Request, TaskName, checked_task_id

TASK_VERSION = 1


class State(Enum):
    """Where a task can be; the value is the directory's name."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    QUARANTINE = "quarantine"


FINAL_STATES = (State.DONE, State.FAILED, State.QUARANTINE)


class Outcome(Enum):
    """How an attempt ended. Only FAILED counts against a task's retries."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The task's own doing: its exit code, its time limit, its memory."""
    INTERRUPTED = "interrupted"
    """The node's doing while the worker lived: walltime, preemption, a worker told to stop."""
    RETURNED = "returned"
    """It was claimed and never started."""
    LOST = "lost"
    """The worker is gone."""
    CANCELLED = "cancelled"


CRASHED = "worker crashed"
"""The cause of a LOST attempt that may be the task's doing: nothing explains why its worker died."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What is to be done.

    Parameters
    ----------
    id : stable name; enqueueing the same id again changes nothing.
    command : argument vector; a shell command is ("sh", "-c", "…").
    directory : working directory, absolute.
    environment : variables added to the worker's own.
    retries : how often the task may fail by itself and be tried again.
    outputs : paths that are synced before the result is visible.
    launcher : which launcher of the worker starts it; "command" forks and executes.
    stream : what seeds the science (`FLEETCRAFT_STREAM`); it comes with the task, never from the place.
    group : what it is counted under in `status`: a rule's name.
    labels : anything else that the one who enqueues wants back with the result.
    """

    id: str
    command: tuple[str, ...]
    directory: str
    request: Request = field(default_factory=Request)
    priority: int = DEFAULT_PRIORITY
    retries: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    launcher: str = "command"
    stream: str = ""
    group: str = ""
    labels: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_task_id(self.id)
        if not self.command or not all(isinstance(part, str) and "\0" not in part for part in self.command):
            raise BadInput(
                "a task's command is a list of strings", key="command", value=self.command, remedy="Give at least one"
            )
        if not Path(self.directory).is_absolute():
            raise BadInput(
                "a task's working directory is absolute",
                key="directory",
                value=self.directory,
                remedy="Give the full path: workers run elsewhere",
            )
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            raise BadInput(
                "this priority is out of range", key="priority", value=self.priority, remedy="Use 0 to 999, 999 first"
            )
        if self.retries < 0:
            raise BadInput("retries can't be negative", key="retries", value=self.retries, remedy="Use 0 or more")


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of one execution.

    Parameters
    ----------
    exit_code : of the process; negative for a signal; None where it didn't run or nobody saw it end.
    started_s, ended_s : wall clock, for people.
    log : path of the attempt's log, relative to the spool.
    neighbours : the other tasks that ran on the worker when it was lost.
    measured : what the worker measured: wall, CPU [s], highest resident memory [MB].
    observed : what an exclusive task's worker saw of its node.
    failure : why it failed: `class`, `problem`, `remedy`; empty where it didn't.
    """

    number: int
    outcome: Outcome
    cause: str
    worker: str
    host: str
    exit_code: int | None = None
    started_s: float | None = None
    ended_s: float | None = None
    log: str | None = None
    measured: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, str] = field(default_factory=dict)

    @property
    def failure_class(self) -> str:
        """The class of its failure; empty where it didn't fail."""
        unknown = "unclassified" if self.outcome is Outcome.FAILED else ""
        return self.failure.get("class", unknown)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task's file, understood: the task and the ends of its attempts since it was enqueued, in their order."""

    spec: TaskSpec
    attempts: tuple[Attempt, ...] = ()

    def ending(self, number: int) -> Attempt | None:
        """The line that ends an attempt; None while there is none. The first one counts, later ones are refused."""
        return next((attempt for attempt in self.attempts if attempt.number == number), None)

    def result(self, number: int, state: State) -> Attempt | None:
        """The line that a final state rests on: in `done` a success, in `failed` anything else."""
        fitting = [
            attempt
            for attempt in self.attempts
            if attempt.number == number and (attempt.outcome is Outcome.SUCCEEDED) == (state is State.DONE)
        ]
        return fitting[0] if fitting else None

    def before(self, number: int) -> tuple[Attempt, ...]:
        """How the attempts before `number` ended, one each.

        A success among them was refused: its worker had been declared gone, and the task had been given back.
        """
        decided: dict[int, Attempt] = {}
        for attempt in self.attempts:
            if attempt.number < number and attempt.outcome is not Outcome.SUCCEEDED:
                decided.setdefault(attempt.number, attempt)
        return tuple(decided[key] for key in sorted(decided))

    def refused(self, number: int) -> tuple[Attempt, ...]:
        """Results that came too late: successes of attempts that had been taken back."""
        return tuple(a for a in self.attempts if a.number < number and a.outcome is Outcome.SUCCEEDED)

    def request(self, number: int) -> Request:
        """What attempt `number` needs: after its worker crashed under it, a task runs alone, so that a second crash
        convicts it and no neighbour."""
        return effective_request(self.spec, self.before(number))


def effective_request(spec: TaskSpec, history: Iterable[Attempt]) -> Request:
    """The request of the attempt that follows `history`."""
    if any(is_crash(attempt) for attempt in history):
        return replace(spec.request, access="exclusive")
    return spec.request


def is_crash(attempt: Attempt) -> bool:
    """Whether the worker died of unknown causes while the task ran."""
    return attempt.outcome is Outcome.LOST and attempt.cause == CRASHED


def encode_task(spec: TaskSpec) -> bytes:
    """The line that says what is to be done."""
    return _line({"version": TASK_VERSION, "task": {**_fields(spec), "request": _fields(spec.request)}})


def encode_attempt(attempt: Attempt) -> bytes:
    """The line that ends an attempt."""
    fields = {**_fields(attempt), "outcome": attempt.outcome.value}
    if not attempt.failure:
        del fields["failure"]
    return _line({"attempt": fields})


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass as JSON takes it: what is in it is plain already, so nothing is copied."""
    return {name: getattr(value, name) for name in value.__slots__}


def parse_record(data: bytes, name: TaskName, file: Path) -> TaskRecord:
    """Understand a task's file.

    Raises
    ------
    UnreadableTask : the task itself can't be read, or isn't the one that the file's name says. Torn lines after it are
        skipped: whoever wrote them didn't get as far as the rename that would have made them count.
    """
    spec: TaskSpec | None = None
    attempts: list[Attempt] = []
    first = True
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if "task" in value:
                spec, attempts = _task(value), []
            else:
                attempts.append(_attempt(value["attempt"]))
        except (ValueError, KeyError, TypeError, BadInput) as error:
            if first:
                raise UnreadableTask(
                    f"this task can't be read ({type(error).__name__}: {error})",
                    file=file,
                    remedy="It is kept in quarantine; enqueue it again under another id once the cause is known",
                ) from error
        first = False
    if spec is None or spec.id != name.id:
        raise UnreadableTask(
            "this file is empty" if spec is None else f"this file holds task {spec.id!r}, not the one of its name",
            file=file,
            remedy="It is kept in quarantine; enqueue the task again under another id once the cause is known",
        )
    return TaskRecord(spec, tuple(attempts))


def _line(value: dict[str, Any]) -> bytes:
    return b"\n" + canonical_json(value).encode() + b"\n"


def _task(value: dict[str, Any]) -> TaskSpec:
    if value["version"] != TASK_VERSION:
        raise ValueError(f"format {value['version']!r} is not {TASK_VERSION}")
    fields = dict(value["task"])
    fields["request"] = Request(**fields["request"])
    for key in ("command", "outputs"):
        fields[key] = tuple(fields[key])
    return TaskSpec(**fields)


def _attempt(value: dict[str, Any]) -> Attempt:
    return Attempt(**{**value, "outcome": Outcome(value["outcome"])})
