"""How a claim ends: one line appended to the task's file, then the one rename that the policy decides on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetcraft.spool.errors import UnreadableTask
from fleetcraft.spool.names import TaskName
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


def settle_claim(
    writer: Writer, path: Path, name: TaskName, ending: Attempt, *, record: TaskRecord | None = None
) -> Settled | None:
    """End an attempt; call `writer.sync()` before anything relies on it.

    An end that is recorded already for this attempt (by a party that was cut off before the rename) stands, and is
    carried out. None where the task had been taken away, or was unreadable and is in quarantine now.

    Parameters
    ----------
    path : the task's file in a directory that the writer is entitled to take it from.
    record : what the file holds, where the caller owns it and knows.
    """
    filesystem = writer.spool.filesystem
    try:
        if record is None:
            record = parse_record(filesystem.read(path), name, path)
        recorded = record.ending(name.attempt)
        if recorded is None:
            filesystem.append(path, encode_attempt(ending))
        else:
            ending = recorded
    except FileNotFoundError:
        _refuse(writer, name, ending)
        return None
    except UnreadableTask as error:
        quarantine(writer, path, name.id, str(error))
        return None
    history = record.before(name.attempt)
    decision = decide(record.spec, history, ending, writer.spool.policy)
    if decision.state is State.PENDING:
        request = effective_request(record.spec, (*history, ending))
        moved = writer.to_pending(path, name.next(), request)
    else:
        moved = writer.to_final(path, str(name), decision.state) is not None
    if not moved:
        _refuse(writer, name, ending)
        return None
    writer.note(
        "settled",
        task=name.id,
        attempt=name.attempt,
        group=record.spec.group,
        outcome=ending.outcome.value,
        cause=ending.cause,
        owner=ending.worker,
        to=decision.state.value,
        reason=decision.reason,
    )
    return Settled(name, ending, decision, record)


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
