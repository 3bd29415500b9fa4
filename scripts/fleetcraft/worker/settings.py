"""How a worker behaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """How a worker behaves. Times in seconds.

    Parameters
    ----------
    lane : serves tasks of this lane besides those that ask for none.
    gang : names what this worker's node has in common with those that it can be in a gang with (an allocation); None if
        it can't be in any.
    gang_patience_s : how long a gang that this worker leads may take to come together.
    idle_timeout_s : leaves after so long without work that it could do; None to stay.
    walltime_s : how long it may live, as its allocation says; None without a limit.
    walltime_margin_s : how long before its walltime it ends what still runs and gives it back.
    poll_s : longest pause between looks for work; short ones come first, so that a worker that has just become idle is
        quick, and one that has been idle for long is quiet.
    heartbeat_s : between heartbeats.
    control_s : between looks for orders.
    grace_s : between TERM and KILL.
    failing_tasks : how many different tasks must fail here in a row for the node to be drained; 0 for never.
    avoid_s : how long a task that failed here is left to other workers, where there are any.
    patience_s : how long a file system in trouble (a full disk, a server that restarts) is waited for.
    identity : what whoever started the worker wants to find in its lease.
    """

    lane: str | None = None
    gang: str | None = None
    gang_patience_s: float = 1800.0
    idle_timeout_s: float | None = None
    walltime_s: float | None = None
    walltime_margin_s: float = 30.0
    poll_s: float = 2.0
    heartbeat_s: float = 10.0
    control_s: float = 2.0
    grace_s: float = 10.0
    failing_tasks: int = 3
    avoid_s: float = 30.0
    patience_s: float = 600.0
    identity: Mapping[str, Any] = field(default_factory=dict)
