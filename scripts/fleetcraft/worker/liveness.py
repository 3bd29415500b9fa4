"""Who knows about workers on this machine: the operating system."""

from __future__ import annotations

from fleetcraft.ground.clock import Clock
from fleetcraft.ground.machine import boot_id, host_name, is_running
from fleetcraft.ground.processes import end_processes, processes_with
from fleetcraft.spool import CRASHED, Lease, Liveness, Verdict

_LOOKS = 20
_KILL_S = 30.0


class LocalOracle:
    """An oracle for workers of this machine; of any other it knows nothing.

    A worker is gone when its own processes are gone. What they left running (both were killed at once) is ended here,
    before the verdict, so that no second attempt meets the first one.
    """

    def __init__(self, clock: Clock, grace_s: float = 5.0):
        self._clock, self._grace_s = clock, grace_s

    def __call__(self, worker: str, lease: Lease | None) -> Liveness:
        """The verdict."""
        if lease is None or lease.host != host_name():
            return Liveness(Verdict.UNKNOWN)
        if lease.boot != boot_id():
            return Liveness(Verdict.GONE, "node was rebooted")
        if not lease.processes:
            return Liveness(Verdict.UNKNOWN)
        if any(is_running(pid, start) for pid, start in lease.processes):
            return Liveness(Verdict.ALIVE)
        return Liveness(Verdict.GONE, CRASHED) if self._end_tasks(worker) else Liveness(Verdict.UNKNOWN)

    def _end_tasks(self, worker: str) -> bool:
        """End what a dead worker left running; whether it is all gone.

        A process that forks while the processes are looked through can hide its child from one look. So there is
        another look after each end, and nothing is taken for gone before two looks in a row have found nothing.
        """
        empty_looks = 0
        for _ in range(_LOOKS):
            left = processes_with("FLEETCRAFT_WORKER", worker)
            empty_looks = 0 if left else empty_looks + 1
            if empty_looks == 2:
                return True
            end_processes(left, self._grace_s, _KILL_S, self._clock)
        return False
