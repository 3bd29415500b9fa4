"""The end of a fleet: its workers are asked to leave, and those that are killed first are known by Slurm's word.

Slurm's own way to end a job leaves workers `KillWait` seconds, which may be fewer than they give to their tasks. So
they are told by a signal to their steps, and have given everything back when their jobs are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fleetcraft.fleet.errors import NoAnswer
from fleetcraft.fleet.oracle import SlurmOracle
from fleetcraft.spool import Lease, Spool, read_leases

LEAVING_S = 30.0
"""How long workers have to leave: longer than they give to their tasks."""

WORD_S = 120.0
"""How long Slurm's word on those that were killed is waited for: they die, their leases grow old, it is asked twice."""

_PAUSE_S = 0.2


@dataclass(slots=True)
class Leaving:
    """Workers of some allocations on their way out.

    Parameters
    ----------
    tokens : of the allocations.
    poll_s : between two questions to Slurm.
    meanwhile : called again and again; steps the reaper that takes back what dead workers had.
    """

    spool: Spool
    oracle: SlurmOracle
    tokens: Collection[str]
    poll_s: float
    meanwhile: Callable[[], object]
    _told: set[tuple[int, str]] = field(default_factory=set)
    _next_s: float = 0.0

    def present(self) -> dict[str, Lease]:
        """The leases of those that are still there, or whom nobody has declared gone."""
        leases = read_leases(self.spool)
        return {name: lease for name, lease in leases.items() if lease.identity.get("allocation") in self.tokens}

    def ask(self, until_s: float) -> bool:
        """TERM to the step of each worker, also of those that come up meanwhile; whether all have left in time."""
        return self._wait(until_s, tells=True)

    def hear(self, until_s: float) -> bool:
        """Ask Slurm about those whose leases stand still, until the reaper has taken back what all of them had."""
        return self._wait(until_s, tells=False)

    def _wait(self, until_s: float, *, tells: bool) -> bool:
        clock = self.spool.clock
        while present := self.present():
            if clock.monotonic() >= until_s:
                return False
            if tells:
                self._tell(present.values())
            self.meanwhile()
            self._ask_slurm()
            clock.sleep(_PAUSE_S)
        return True

    def _tell(self, leases: Collection[Lease]) -> None:
        steps = {(int(lease.identity["job"]), str(lease.identity["step"])) for lease in leases} - self._told
        try:
            self.oracle.slurm.terminate_steps(sorted(steps))
        except NoAnswer:
            return
        self._told |= steps

    def _ask_slurm(self) -> None:
        now_s = self.spool.clock.monotonic()
        if not self.oracle.wants or now_s < self._next_s:
            return
        self._next_s = now_s + self.poll_s
        try:
            self.oracle.ask()
        except NoAnswer:
            return
