"""A worker's launchers, one for each kind of task, and what becomes of their tasks when one dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from fleetcraft.ground.clock import Clock
from fleetcraft.ground.machine import process_start
from fleetcraft.ground.processes import children
from fleetcraft.worker.launcher import UNKILLABLE_S, CommandStarter, LauncherClient, Starter


class Launchers:
    """Makes launchers when they are first needed.

    Parameters
    ----------
    starters : how kinds of tasks are started; "command" is always there.
    prepare : run in the launcher of a kind before it serves.
    """

    def __init__(self, starters: Mapping[str, Starter], prepare: Mapping[str, Callable[[], None]], clock: Clock):
        self._starters = {"command": CommandStarter(), **starters}
        self._prepare = prepare
        self._clock = clock
        self._clients: dict[str, LauncherClient] = {}
        self.deaths = 0

    def knows(self, kind: str) -> bool:
        """Whether tasks of a kind can be started."""
        return kind in self._starters

    def of(self, kind: str) -> LauncherClient:
        """The launcher of a kind."""
        if kind not in self._clients:
            self._clients[kind] = LauncherClient(self._starters[kind], self._clock, self._prepare.get(kind))
        return self._clients[kind]

    def present(self) -> dict[str, LauncherClient]:
        """Those that run."""
        return dict(self._clients)

    def processes(self) -> list[tuple[int, int]]:
        """(pid, start) of each."""
        found = [(client.pid, process_start(client.pid)) for client in self._clients.values()]
        return [(pid, start) for pid, start in found if start is not None]

    def bury(self, kind: str) -> bool:
        """A launcher has died, and its tasks have fallen to this process: end them. False if some can't be ended."""
        if kind in self._clients:
            self._clients.pop(kind).close()
            self.deaths += 1
        return self._end_adopted()

    def close(self) -> bool:
        """Let all launchers end what they run and leave; False if something can't be ended."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        return self._end_adopted()

    def _end_adopted(self) -> bool:
        """Kill every child of this process that isn't a launcher, until there is none."""
        keep = {client.pid for client in self._clients.values()}
        deadline_s = self._clock.monotonic() + UNKILLABLE_S
        while self._clock.monotonic() < deadline_s:
            left = [pid for pid in children() if pid not in keep and os.waitpid(pid, os.WNOHANG)[0] == 0]
            if not left:
                return True
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self._clock.sleep(0.01)
        return False
