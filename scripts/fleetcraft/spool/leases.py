"""Leases: how workers say that they live, and how others judge it.

A lease holds a counter that its worker raises. An observer looks at whether the counter moves, on its own monotonic
clock; no time that the worker wrote, and no time of the file system, is compared with anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

from fleetcraft.ground.digests import canonical_json
from fleetcraft.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker says of itself.

    Parameters
    ----------
    counter : raised with every heartbeat.
    processes : (pid, start in clock ticks since boot) of the worker's own processes.
    state : `serving`; `draining` finishes what runs and claims nothing; `leaving` is about to go.
    capacity, free : what it has in all and at present; keys as in a task's request.
    running : the attempts in progress: id, attempt, group, since when [s, worker's wall clock].
    identity : what whoever started it wants to recognize it by (an allocation, a step); opaque here.
    walltime_left_s : how long it may still run; None without a limit.
    """

    worker: str
    counter: int
    host: str
    boot: str
    processes: tuple[tuple[int, int], ...] = ()
    state: Literal["serving", "draining", "leaving"] = "serving"
    reason: str = ""
    capacity: dict[str, Any] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    running: tuple[dict[str, Any], ...] = ()
    identity: dict[str, Any] = field(default_factory=dict)
    walltime_left_s: float | None = None
    wall_s: float = 0.0


def write_lease(spool: Spool, lease: Lease) -> None:
    """Make or replace a worker's lease in one step.

    The first one is durable: without any lease, nobody could tell who the worker was whose claims are there.
    """
    layout, filesystem = spool.layout, spool.filesystem
    temporary = layout.staging / f"lease-{lease.worker}"
    content = canonical_json(asdict(lease)).encode()
    filesystem.publish(layout.lease(lease.worker), temporary, content, durable=lease.counter == 1)


def read_lease(spool: Spool, worker: str) -> Lease | None:
    """A worker's lease; None where there is none that can be read."""
    try:
        value = json.loads(spool.filesystem.read(spool.layout.lease(worker)))
        value["processes"] = tuple((int(pid), int(start)) for pid, start in value["processes"])
        value["running"] = tuple(value["running"])
        return Lease(**value)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def read_leases(spool: Spool) -> dict[str, Lease]:
    """All leases, by worker."""
    names = [
        name.removesuffix(".json") for name in spool.filesystem.list(spool.layout.leases) if name.endswith(".json")
    ]
    leases = {name: read_lease(spool, name) for name in names}
    return {name: lease for name, lease in leases.items() if lease is not None}


class Verdict(Enum):
    """What the one who knows says of a worker. "No answer" is UNKNOWN, never GONE."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Liveness:
    """A verdict; for GONE the `cause`, which is `CRASHED` unless something outside of the tasks explains it."""

    verdict: Verdict
    cause: str = ""


class Oracle(Protocol):
    """Who knows for certain whether a worker's processes are gone: an operating system, a batch system."""

    def __call__(self, worker: str, lease: Lease | None) -> Liveness:
        """The verdict on a worker whose lease stands still."""


class LeaseWatch:
    """Tells which leases stand still, by the observer's own clock.

    Parameters
    ----------
    stale_s : how long a counter must not move. Gaps between two looks count `longest_gap_s` at most: an observer that
        was suspended itself, or whose clock jumped, has not seen anything stand still meanwhile.
    """

    def __init__(self, stale_s: float, longest_gap_s: float | None = None):
        self._stale_s = stale_s
        self._longest_gap_s = longest_gap_s if longest_gap_s is not None else max(stale_s / 3, 0.0)
        self._seen: dict[str, tuple[object, float, float]] = {}

    def observe(self, key: str, value: object, now_s: float) -> bool:
        """Look at a counter; whether it has stood still long enough by now."""
        known = self._seen.get(key)
        if known is None or known[0] != value:
            self._seen[key] = (value, now_s, 0.0)
            return self._stale_s <= 0
        _, last_s, still_s = known
        still_s += min(max(now_s - last_s, 0.0), self._longest_gap_s)
        self._seen[key] = (value, now_s, still_s)
        return still_s >= self._stale_s

    def keep(self, keys: set[str]) -> None:
        """Drop everything but these."""
        for key in set(self._seen) - keys:
            del self._seen[key]
