"""How a claim ends: one line appended to the task's file, then the one rename that the policy decides on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.spool.errors import UnreadableTask
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.parallel import each
from fleetcraft.spool.policy import Decision, decide
from fleetcraft.spool.task import Attempt, State, TaskRecord, effective_request, encode_attempt, parse_record
from fleetcraft.spool.writer import Writer


@dataclass(frozen=True, slots=True)
class Settled:
    """A claim that ended: where the task is now, and why."""

    name: TaskName
    ending: Attempt
    decision: Decision
    record: TaskRecord


@dataclass(frozen=True, slots=True)
class Ending:
    """An attempt that is to be ended.

    Parameters
    ----------
    path : the task's file, in a directory that the writer is entitled to take it from.
    record : what the file holds, where the caller owns it and knows.
    """

    path: Path
    name: TaskName
    attempt: Attempt
    record: TaskRecord | None = None


def settle(writer: Writer, endings: Iterable[Ending]) -> list[Settled | None]:
    """End attempts; call `writer.sync()` before anything relies on it.

    An end that is recorded already for an attempt (by a party that was cut off before the rename) stands, and is
    carried out. None where the task had been taken away, or was unreadable and is in quarantine now.
    """
    endings = list(endings)
    # The lines of all are synced together; the renames follow.
    recorded = each(lambda ending: _record(writer, ending), endings)
    return [_carry_out(writer, ending, line) for ending, line in zip(endings, recorded, strict=True)]


def settle_one(writer: Writer, ending: Ending) -> Settled | None:
    """The same for one attempt."""
    return settle(writer, [ending])[0]


def _record(writer: Writer, ending: Ending) -> tuple[TaskRecord, Attempt] | FileNotFoundError | UnreadableTask:
    """Write the line that ends an attempt, durably, unless there is one; the line that holds, or why there is none."""
    filesystem, record = writer.spool.filesystem, ending.record
    try:
        if record is None:
            record = parse_record(filesystem.read(ending.path), ending.name, ending.path)
        line = record.ending(ending.name.attempt)
        if line is None:
            filesystem.append(ending.path, encode_attempt(ending.attempt))
            line = ending.attempt
    except (FileNotFoundError, UnreadableTask) as error:
        return error
    return record, line


def _carry_out(
    writer: Writer, ending: Ending, recorded: tuple[TaskRecord, Attempt] | FileNotFoundError | UnreadableTask
) -> Settled | None:
    """The one rename that the recorded end leads to."""
    name, path = ending.name, ending.path
    if isinstance(recorded, UnreadableTask):
        quarantine(writer, path, name.id, str(recorded))
        return None
    if isinstance(recorded, FileNotFoundError):
        _refuse(writer, name, ending.attempt)
        return None
    record, attempt = recorded
    history = record.before(name.attempt)
    decision = decide(record.spec, history, attempt, writer.spool.policy)
    if decision.state is State.PENDING:
        request = effective_request(record.spec, (*history, attempt))
        moved = writer.to_pending(path, name.next(), request)
    else:
        moved = writer.to_final(path, str(name), decision.state) is not None
    if not moved:
        _refuse(writer, name, attempt)
        return None
    writer.note(
        "settled",
        task=name.id,
        attempt=name.attempt,
        group=record.spec.group,
        outcome=attempt.outcome.value,
        cause=attempt.cause,
        failure=attempt.failure_class,
        owner=attempt.worker,
        to=decision.state.value,
        reason=decision.reason,
    )
    return Settled(name, attempt, decision, record)


def quarantine(writer: Writer, path: Path, label: str, problem: str) -> bool:
    """Put a file that can't be understood aside, under its own name; whether it was still there."""
    moved = writer.to_final(path, path.name, State.QUARANTINE) is not None
    if moved:
        writer.note("quarantined", task=label, file=path.name, problem=problem)
    return moved


def _refuse(writer: Writer, name: TaskName, ending: Attempt) -> None:
    """Record an end that came too late: the task was taken away from whoever reports it."""
    writer.note(
        "refused",
        task=name.id,
        attempt=name.attempt,
        outcome=ending.outcome.value,
        cause=ending.cause,
        owner=ending.worker,
    )
