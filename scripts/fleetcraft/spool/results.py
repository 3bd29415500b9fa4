"""Reading results as they come, each once, at a cost that depends on living workers and new results only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fleetcraft.spool.errors import UnreadableTask
from fleetcraft.spool.layout import BUCKET_SIZE
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.policy import decide
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.task import FINAL_STATES, Attempt, State, TaskRecord, parse_record

_LONGEST_PAUSE_S = 10.0
"""Between looks at a writer without a lease that has been quiet for long."""

_SETTLING_S = 120.0
"""How long a full bucket is still looked at: listings of a shared file system lag by up to a minute."""


@dataclass(frozen=True, slots=True)
class Result:
    """A task that ended.

    Parameters
    ----------
    ending : the attempt that decided; None in quarantine.
    record : the task and all its attempts; None in quarantine.
    problem : for people; empty where the task succeeded.
    """

    id: str
    state: State
    attempt: int
    path: Path
    ending: Attempt | None
    record: TaskRecord | None
    problem: str


@dataclass(slots=True)
class _Cursor:
    """How far one writer's results of one state were read; `pause_s` grows while a writer without a lease is quiet."""

    bucket: int = 0
    pause_s: float = 0.0
    due_s: float = 0.0
    seen: dict[int, set[str]] = field(default_factory=dict)
    full_since: dict[int, float] = field(default_factory=dict)


class ResultScanner:
    """Yields each result once. A new scanner starts from the beginning, and so a restarted controller catches up."""

    def __init__(self, spool: Spool):
        self._spool = spool
        self._cursors: dict[tuple[State, str, str], _Cursor] = {}

    def poll(self) -> list[Result]:
        """Results that appeared since the last poll."""
        results = []
        layout, filesystem = self._spool.layout, self._spool.filesystem
        now_s = self._spool.clock.monotonic()
        leases = set(filesystem.list(layout.leases))
        for state in FINAL_STATES:
            for crew in filesystem.list(layout.final(state)):
                for writer in filesystem.list(layout.final(state) / crew):
                    cursor = self._cursors.setdefault((state, crew, writer), _Cursor())
                    working = f"{writer}.json" in leases
                    if not working and now_s < cursor.due_s:
                        continue
                    news = self._read(state, layout.final(state) / crew / writer, cursor, now_s)
                    results += news
                    # Workers that have left, and reapers, which seldom finish anything, are looked at ever more seldom.
                    quiet = not news and not working
                    cursor.pause_s = min(max(1.5 * cursor.pause_s, 0.1), _LONGEST_PAUSE_S) if quiet else 0.0
                    cursor.due_s = now_s + cursor.pause_s
        return results

    def _read(self, state: State, directory: Path, cursor: _Cursor, now_s: float) -> list[Result]:
        """What is new in one writer's buckets. They are filled one after the other, so only the last ones can grow."""
        results = []
        numbers = sorted(int(name) for name in self._spool.filesystem.list(directory) if name.isdigit())
        for number in numbers:
            if number < cursor.bucket:
                continue
            seen = cursor.seen.setdefault(number, set())
            bucket = directory / f"{number:06d}"
            for text in self._spool.filesystem.list(bucket):
                if text not in seen and (result := self._result(state, bucket / text)) is not None:
                    seen.add(text)
                    results.append(result)
            if len(seen) >= BUCKET_SIZE or number < numbers[-1]:
                cursor.full_since.setdefault(number, now_s)
        while cursor.bucket in cursor.full_since and now_s - cursor.full_since[cursor.bucket] >= _SETTLING_S:
            cursor.seen.pop(cursor.bucket, None)
            cursor.full_since.pop(cursor.bucket)
            cursor.bucket += 1
        return results

    def _result(self, state: State, path: Path) -> Result | None:
        """Understand one result; None where it can't be read yet, or was taken out again."""
        name = TaskName.parse(path.name)
        if state is State.QUARANTINE or name is None:
            task_id = name.id if name else path.name
            attempt = name.attempt if name else 0
            return Result(task_id, State.QUARANTINE, attempt, path, None, None, f"{path} can't be understood")
        try:
            record = parse_record(self._spool.filesystem.read(path), name, path)
        except FileNotFoundError:
            return None
        except UnreadableTask as error:
            return Result(name.id, State.QUARANTINE, name.attempt, path, None, None, str(error))
        ending = record.result(name.attempt, state)
        if ending is None:
            problem = "the line with the result is damaged"
        elif state is State.DONE:
            problem = ""
        else:
            problem = decide(record.spec, record.before(name.attempt), ending, self._spool.policy).reason
        return Result(name.id, state, name.attempt, path, ending, record, problem)
