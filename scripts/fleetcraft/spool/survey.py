"""Where every task is: a walk over all states, for starts, explanations and operators; never for a poll."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.spool.names import TaskName
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.task import FINAL_STATES, State, TaskRecord, parse_record

_ROUNDS = 5
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task was seen; `owner` is the worker that runs it, or the writer that finished it."""

    state: State
    name: TaskName
    path: Path
    owner: str | None = None


def survey(spool: Spool, ids: Collection[str] | None = None) -> dict[str, Place]:
    """Where tasks are, by id: all of them, or those among `ids`.

    Reads directories, not files. A task that moves meanwhile is reported where it was seen furthest. One that the index
    knows and the walk did not meet, because it moved past it or listings lag, is looked for again a bounded number of
    times, with growing pauses; it can be missing from the answer after that.
    """
    found: dict[str, Place] = {}
    for round_number in range(_ROUNDS):
        for place in walk(spool):
            if ids is not None and place.name.id not in ids:
                continue
            known = found.get(place.name.id)
            if known is None or _progress(place) >= _progress(known):
                found[place.name.id] = place
        if not _is_missing_any(spool, found, ids):
            break
        spool.clock.sleep(_PAUSE_S * 2**round_number)
    return found


def walk(spool: Spool) -> Iterator[Place]:
    """Every task file that is seen in one walk, in the order of a task's life."""
    layout, filesystem = spool.layout, spool.filesystem
    for class_name in filesystem.list(layout.pending):
        for bucket in filesystem.list(layout.pending / class_name):
            directory = layout.pending / class_name / bucket
            yield from _places(filesystem.list(directory), directory, State.PENDING, None)
    for worker in filesystem.list(layout.running):
        directory = layout.claims_of(worker)
        yield from _places(filesystem.list(directory), directory, State.RUNNING, worker)
    for state in FINAL_STATES:
        for crew in filesystem.list(layout.final(state)):
            for writer in filesystem.list(layout.final(state) / crew):
                for bucket in filesystem.list(layout.final(state) / crew / writer):
                    directory = layout.final(state) / crew / writer / bucket
                    yield from _places(filesystem.list(directory), directory, state, writer)


def read_task(spool: Spool, place: Place) -> TaskRecord | None:
    """A task's record by its id, wherever it has moved meanwhile; None where the index lost it.

    Raises
    ------
    UnreadableTask : it is damaged.
    """
    for path in (place.path, spool.layout.index(place.name.id)):
        try:
            return parse_record(spool.filesystem.read(path), place.name, path)
        except FileNotFoundError:
            continue
    return None


def known_ids(spool: Spool) -> set[str]:
    """The ids of all tasks that were ever enqueued."""
    layout, filesystem = spool.layout, spool.filesystem
    return {task for shard in filesystem.list(layout.tasks) for task in filesystem.list(layout.tasks / shard)}


def is_known(spool: Spool, task_id: str) -> bool:
    """Whether a task was ever enqueued."""
    return spool.filesystem.exists(spool.layout.index(task_id))


def _is_missing_any(spool: Spool, found: dict[str, Place], ids: Collection[str] | None) -> bool:
    """Whether the index knows a task that the walks did not meet."""
    if ids is None:
        return any(task_id not in found for task_id in known_ids(spool))
    return any(task_id not in found and is_known(spool, task_id) for task_id in ids)


def _progress(place: Place) -> tuple[int, int]:
    order = (State.PENDING, State.RUNNING, State.DONE, State.FAILED, State.QUARANTINE)
    return place.name.attempt, order.index(place.state)


def _places(names: list[str], directory: Path, state: State, owner: str | None) -> Iterator[Place]:
    for text in names:
        name = TaskName.parse(text)
        if name is not None:
            yield Place(state, name, directory / text, owner)
