"""What a fleet learns from the journals, reading each line once: who served, what ran, and how long it took."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fleetcraft.spool import JournalTail, Outcome, Spool

_REMEMBERED = 50
"""Durations of a class that its median is taken of."""


@dataclass(slots=True)
class History:
    """Read it with `read`; then the rest is up to date.

    Parameters
    ----------
    workers : of which allocation (its token) a worker is.
    attempts : number of attempts that were started in an allocation.
    hosts : nodes on which workers of allocations were.
    """

    spool: Spool
    workers: dict[str, str] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    hosts: set[str] = field(default_factory=set)
    _running: dict[tuple[str, str, int], tuple[str, float]] = field(default_factory=dict)
    _durations_s: dict[str, deque[float]] = field(default_factory=dict)
    _tail: JournalTail = field(init=False)

    def __post_init__(self) -> None:
        self._tail = JournalTail(self.spool.layout)

    def read(self) -> None:
        """Take in what was written since the last time."""
        for entry in self._tail.read():
            self._note(entry)

    def running(self) -> Counter[str]:
        """Number of attempts that run, by class."""
        return Counter(class_name for class_name, _ in self._running.values())

    def task_s(self, class_name: str) -> float | None:
        """How long tasks of a class take [s]: the median of the last ones that succeeded; None if none did."""
        durations_s = self._durations_s.get(class_name)
        return median(durations_s) if durations_s else None

    def served(self, token: str) -> bool:
        """Whether any worker of an allocation came up."""
        return token in self.workers.values()

    def _note(self, entry: dict[str, Any]) -> None:
        event, writer = entry.get("event"), str(entry.get("writer"))
        if event == "worker started":
            token = (entry.get("identity") or {}).get("allocation")
            if token:
                self.workers[writer] = str(token)
                self.hosts.add(str(entry.get("host")))
        elif event == "started":
            key = (writer, str(entry["task"]), int(entry["attempt"]))
            self._running[key] = (str(entry.get("request")), float(entry["monotonic_s"]))
            if writer in self.workers:
                self.attempts[self.workers[writer]] += 1
        elif event == "ended":
            started = self._running.pop((writer, str(entry["task"]), int(entry["attempt"])), None)
            if started is not None and entry.get("outcome") == Outcome.SUCCEEDED.value:
                class_name, started_s = started
                known = self._durations_s.setdefault(class_name, deque(maxlen=_REMEMBERED))
                known.append(float(entry["monotonic_s"]) - started_s)
        elif event in ("worker gone", "worker left"):
            gone = str(entry["worker"]) if event == "worker gone" else writer
            for key in [key for key in self._running if key[0] == gone]:
                del self._running[key]
