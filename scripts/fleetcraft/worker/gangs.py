"""A worker's part in gangs: as the leader of one that it has claimed, and as a member of another's."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetcraft.ground.processes import end_processes, processes_with
from fleetcraft.spool import Claim, Lease, Request, Spool, read_leases
from fleetcraft.spool.gangs import Summons, dismiss, return_token, summon, summons_of, take_token
from fleetcraft.worker.eligibility import inventory_of
from fleetcraft.worker.packing import why_never, why_not_in_time
from fleetcraft.worker.settings import Settings

_GRACE_S = 5.0
_KILL_S = 30.0


def companions(leases: Mapping[str, Lease], request: Request, gang: str | None, lane: str | None) -> list[str]:
    """Workers that could keep their nodes for a gang, those that do least first.

    Parameters
    ----------
    gang : what a gang's nodes have in common, as an allocation; None where a worker can't be in any.
    """
    single = replace(request, nodes=1)
    found = []
    for name, lease in leases.items():
        fits = gang is not None and lease.capacity.get("gang") == gang and lease.capacity.get("lane") == lane
        fits = fits and lease.state == "serving" and why_never(inventory_of(lease), single, lane) is None
        fits = fits and why_not_in_time(single, lease.walltime_left_s) is None
        if fits and not any(task.get("leader") or task.get("waits") for task in lease.running):
            found.append(name)
    random.shuffle(found)
    return sorted(found, key=lambda name: len(leases[name].running))


@dataclass(slots=True)
class _Led:
    """A gang that this worker leads, from its claim until its end."""

    claim: Claim
    members: list[str]
    since_s: float
    looked_s: float = 0.0
    assembled: bool = False


class Gangs:
    """What the worker of this name knows of gangs."""

    def __init__(self, spool: Spool, worker: str, settings: Settings):
        self._spool, self._worker = spool, worker
        self._gang, self._lane = settings.gang, settings.lane
        self._patience_s, self._look_s = settings.gang_patience_s, settings.control_s
        self._led: _Led | None = None
        self._candidate: str | None = None
        self._looked_s: dict[str, float] = {}
        self.joined: Summons | None = None
        """What this worker keeps its node for."""

    # ------------------------------------------------------------------ as a leader

    def may_lead(self, request: Request) -> bool:
        """Whether a gang for this request could come together now; takes the token where it could.

        Looks at the others once in a while only.
        """
        now_s = self._spool.clock.monotonic()
        if self._led is not None or self.joined is not None:
            return False
        if self._candidate is None and now_s - self._looked_s.get(request.class_name, -self._look_s) >= self._look_s:
            self._looked_s[request.class_name] = now_s
            if len(self._others(request)) >= request.nodes - 1 and take_token(self._spool, self._worker):
                self._candidate = request.class_name
        return self._candidate == request.class_name

    def lead(self, claim: Claim) -> bool:
        """Summon the members for what was claimed; False where there are too few by now."""
        others = self._others(claim.request)
        if len(others) < claim.request.nodes - 1 or not take_token(self._spool, self._worker):
            return False
        self._candidate = None
        members = sorted(others[: claim.request.nodes - 1])
        self._led = _Led(claim, members, self._spool.clock.monotonic())
        summon(self._spool, self._worker, claim.name, members)
        return True

    def is_complete(self) -> bool:
        """Whether every member's node is empty."""
        led = self._led
        now_s = self._spool.clock.monotonic()
        if led is None or now_s - led.looked_s < min(self._look_s, 0.5):
            return False
        led.looked_s = now_s
        led.assembled = not self._missing(led)
        return led.assembled

    def is_late(self) -> bool:
        """Whether the members have been waited for long enough, or one of them won't come any more."""
        led = self._led
        if led is None or led.assembled:
            return False
        if self._spool.clock.monotonic() - led.since_s > self._patience_s:
            return True
        leases = read_leases(self._spool)
        return any(name not in leases or leases[name].state != "serving" for name in led.members)

    def begin(self) -> dict[str, str]:
        """The gang starts: let others assemble. Variables for its task."""
        assert self._led is not None
        return_token(self._spool, self._worker)
        leases = read_leases(self._spool)
        hosts = [leases[name].host for name in (self._worker, *self._led.members) if name in leases]
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return {
            "FLEETCRAFT_GANG": ",".join(hosts),
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": str(port),
        }

    def counters(self) -> dict[str, int]:
        """The heartbeats of the members, as far as they still keep their nodes."""
        led = self._led
        if led is None:
            return {}
        leases = read_leases(self._spool)
        missing = self._missing(led)
        return {name: leases[name].counter for name in led.members if name not in missing and name in leases}

    def unconfirmed(self, before: Mapping[str, int]) -> list[str]:
        """Members that have not shown since `before` that they live and keep their nodes."""
        now = self.counters()
        members = self._led.members if self._led is not None else []
        return [name for name in members if name not in before or now.get(name, before[name]) == before[name]]

    def end(self, claim: Claim) -> None:
        """The attempt has ended, or won't begin: give the members their nodes back."""
        if self._led is not None and self._led.claim.path == claim.path:
            dismiss(self._spool, claim.name, self._led.members)
            self._led = None
            return_token(self._spool, self._worker)

    def relax(self) -> None:
        """Where nothing was claimed although a gang could have come together: let others try."""
        if self._candidate is not None:
            self._candidate = None
            return_token(self._spool, self._worker)

    def _others(self, request: Request) -> list[str]:
        leases = read_leases(self._spool)
        return [name for name in companions(leases, request, self._gang, self._lane) if name != self._worker]

    def _missing(self, led: _Led) -> list[str]:
        leases = read_leases(self._spool)
        return [name for name in led.members if name not in leases or not _keeps(leases[name], led.claim)]

    # ------------------------------------------------------------------ as a member

    def listen(self, may_join: bool) -> bool:
        """Look for summons; whether that changed what this worker keeps its node for."""
        if self._led is not None and not self._spool.filesystem.exists(self._led.claim.path):
            # Its end was cut off by an error, or it was taken away.
            self.end(self._led.claim)
        present = summons_of(self._spool, self._worker)
        if self.joined is None:
            self.joined = present[0] if present and may_join and self._led is None else None
            return self.joined is not None
        if self.joined in present or not self._is_over(self.joined):
            return False
        self.joined = None
        return True

    def desert(self) -> None:
        """This worker has to go, whatever it was summoned for."""
        self.joined = None

    def _is_over(self, summons: Summons) -> bool:
        """End what an attempt has left on this node; whether it is gone.

        It should have left nothing. But its processes here are the batch system's children, not this worker's.
        """
        left = processes_with("FLEETCRAFT_ATTEMPT", summons.key)
        return not end_processes(left, _GRACE_S, _KILL_S, self._spool.clock)


def _keeps(lease: Lease, claim: Claim) -> bool:
    wanted: dict[str, Any] = {"id": claim.name.id, "attempt": claim.name.attempt, "ready": True}
    return any(wanted.items() <= task.items() for task in lease.running)
