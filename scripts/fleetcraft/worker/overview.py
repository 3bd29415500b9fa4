"""The state of a run, for people: what waits, runs and has ended, where, and how fast it goes."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from fleetcraft.spool import (
    FINAL_STATES,
    JournalTail,
    Lease,
    Request,
    Spool,
    State,
    aborted,
    drained,
    has_controller,
    read_leases,
    survey,
)
from fleetcraft.worker.eligibility import nobody_can

_RATE_WINDOW_S = 600.0


@dataclass(frozen=True, slots=True)
class Overview:
    """A look at a spool.

    Parameters
    ----------
    counts : tasks by group (a rule) and state.
    rate : tasks done a second, over the last ten minutes or since the run's first result.
    left_s : until all is done at that rate; None where nothing can be said.
    controlled : whether a controller may put more tasks into the spool.
    warnings : what needs somebody's attention, one sentence each.
    failures : tasks that have failed, by the class of what they failed of.
    """

    campaign: str
    counts: dict[str, dict[str, int]]
    leases: dict[str, Lease]
    rate: float
    left_s: float | None
    controlled: bool
    warnings: tuple[str, ...]
    failures: dict[str, int]

    @property
    def goes_on(self) -> bool:
        """Whether anything is to happen yet."""
        return self.controlled or self.total(State.PENDING, State.RUNNING) > 0

    def total(self, *states: State) -> int:
        """Number of tasks in some states."""
        return sum(by_state.get(state.value, 0) for by_state in self.counts.values() for state in states)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "campaign": self.campaign,
            "counts": self.counts,
            "totals": {state.value: self.total(state) for state in State},
            "tasks_per_s": round(self.rate, 3),
            "left_s": None if self.left_s is None else round(self.left_s),
            "controlled": self.controlled,
            "workers": [
                {
                    "worker": name,
                    "host": lease.host,
                    "state": lease.state,
                    "reason": lease.reason,
                    "capacity": lease.capacity,
                    "free": lease.free,
                    "running": list(lease.running),
                    "walltime_left_s": lease.walltime_left_s,
                    "identity": lease.identity,
                }
                for name, lease in sorted(self.leases.items())
            ],
            "warnings": list(self.warnings),
            "failures": self.failures,
        }


class Observer:
    """Looks at a spool again and again; what it has read of the journals it doesn't read again."""

    def __init__(self, spool: Spool):
        self._spool = spool
        self._tail = JournalTail(spool.layout)
        self._groups: dict[str, str] = {}
        self._done_s: deque[float] = deque()
        self._failed: dict[str, str] = {}

    def look(self) -> Overview:
        """The state of the run now."""
        self._read_journals()
        leases = read_leases(self._spool)
        counts: dict[str, Counter[str]] = {}
        failures: Counter[str] = Counter()
        for task_id, place in survey(self._spool).items():
            group = self._groups.get(task_id) or "(no group)"
            counts.setdefault(group, Counter())[place.state.value] += 1
            if place.state is State.FAILED:
                failures[self._failed.get(task_id, "unclassified")] += 1
        rate = self._rate()
        left = sum(by_state[s.value] for by_state in counts.values() for s in (State.PENDING, State.RUNNING))
        return Overview(
            campaign=self._spool.campaign,
            counts={group: dict(by_state) for group, by_state in sorted(counts.items())},
            leases=leases,
            rate=rate,
            left_s=left / rate if rate > 0 else None,
            controlled=has_controller(self._spool),
            warnings=tuple(self._warnings(leases, counts, failures)),
            failures=dict(failures),
        )

    def _read_journals(self) -> None:
        for entry in self._tail.read():
            if entry.get("group"):
                self._groups[entry["task"]] = entry["group"]
            if entry.get("event") != "settled":
                continue
            if entry["to"] == State.DONE.value:
                self._done_s.append(entry["wall_s"])
            elif entry["to"] == State.FAILED.value:
                self._failed[entry["task"]] = entry.get("failure") or entry["outcome"]

    def _rate(self) -> float:
        now_s = self._spool.clock.wall()
        recent = [done_s for done_s in self._done_s if now_s - done_s <= _RATE_WINDOW_S]
        self._done_s = deque(recent)
        return len(recent) / max(1.0, now_s - min(recent)) if recent else 0.0

    def _warnings(self, leases: dict[str, Lease], counts: dict[str, Counter[str]], failures: Counter[str]) -> list[str]:
        warnings = []
        reason = aborted(self._spool)
        if reason is not None:
            warnings.append(f"The run is aborted ({reason}): workers finish what runs and leave.")
        warnings += [f"{name} is drained: {why}" for name, why in sorted(drained(self._spool).items())]
        waiting = sum(by_state[State.PENDING.value] for by_state in counts.values())
        if waiting and not leases:
            warnings.append(f"{waiting} tasks wait and there is no worker.")
        warnings += misfits(self._spool, leases)
        for state in FINAL_STATES[1:]:
            number = sum(by_state[state.value] for by_state in counts.values())
            if number:
                kinds = f" ({by_class(failures)})" if state is State.FAILED else ""
                warnings.append(f"{number} tasks are in {state.value}{kinds}.")
        return warnings


def by_class(failures: Counter[str]) -> str:
    """`2 host memory, 1 bad input`."""
    return ", ".join(f"{number} {name}" for name, number in sorted(failures.items(), key=lambda kind: (-kind[1], kind)))


def misfits(spool: Spool, leases: dict[str, Lease]) -> list[str]:
    """Requests that wait and that no present worker could ever serve, one sentence each; opens no task."""
    found = []
    for class_name in sorted(spool.filesystem.list(spool.layout.pending)):
        request = Request.of_class(class_name)
        if request is None or not spool.filesystem.list(spool.layout.pending / class_name):
            continue
        reason = nobody_can(leases, request)
        if reason is not None:
            found.append(f"Tasks of {class_name} fit no present worker: {reason}.")
    return found
