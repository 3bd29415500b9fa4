"""Workers in allocations of Slurm, as the executor sees them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from fleetcraft.fleet.controller import FleetController
from fleetcraft.fleet.errors import FleetStopped, NoAnswer, NoSlurm
from fleetcraft.fleet.inside import InsideController
from fleetcraft.fleet.load import load_fleet
from fleetcraft.fleet.login import check_login_node, check_shared
from fleetcraft.fleet.script import Software
from fleetcraft.ground.errors import BadInput
from fleetcraft.spool import Oracle, Request, Spool
from fleetcraft.worker.liveness import LocalOracle
from snakemake_executor_plugin_spool.fleet import FleetFailed


class SlurmFleet:
    """A fleet of the executor's, by `fleetcraft.fleet`.

    Slurm can take a minute to answer. So its controller works in a thread of its own, the only one, and neither results
    nor the executor's heartbeat wait for it.

    Parameters
    ----------
    file : the fleet file.
    environment : of every job; from it, workers take where the campaign's sources are.
    say : told in a sentence what happened.
    lane : of the allocation, for a fleet inside of one.
    """

    is_known = True

    def __init__(
        self,
        spool: Spool,
        file: Path | None,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        lane: str | None = None,
    ):
        if file is None:
            raise BadInput(
                "a fleet on Slurm needs a description of its lanes",
                key="--spool-fleet-file",
                remedy="Name a fleet file; profiles/vista/fleet.yaml is an example",
            )
        self._settings = load_fleet(file)
        check_login_node(self._settings.site)
        check_shared(spool.root, self._settings.site.shared)
        self._controller = self._make(spool, software_of(environment), say, lane)
        self.oracle: Oracle = self._controller.oracle
        self.stale_s = self._controller.stale_s
        self._aside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fleetcraft-fleet")
        self._step: Future[None] | None = None
        self._stopped = False

    def _make(
        self, spool: Spool, software: Software, say: Callable[[str], None], lane: str | None
    ) -> FleetController | InsideController:
        return FleetController(spool, self._settings, software, LocalOracle(spool.clock), say=say)

    def refusal(self, request: Request) -> str | None:
        """Why no lane could ever serve a request; None if one could."""
        return self._settings.refusal(request)

    def tend(self) -> None:
        """Let the controller do what is due, unless it is still at it; what stopped it is told the next time."""
        if self._step is not None:
            if not self._step.done():
                return
            step, self._step = self._step, None
            try:
                step.result()
            except (FleetStopped, NoSlurm) as error:
                raise FleetFailed(error.problem, file=error.file, remedy=error.remedy) from error
        self._step = self._aside.submit(self._controller.step)

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """Have the workers end what they run, give it back and leave; end their allocations."""
        if self._stopped:
            return
        self._stopped = True
        while self._step is not None and not self._step.done():
            # A job may be on its way to Slurm: it can be cancelled when its number is known.
            meanwhile()
            wait([self._step], timeout=1.0)
        self._aside.shutdown()
        try:
            self._controller.stop(meanwhile)
        except (FleetStopped, NoAnswer, NoSlurm) as error:
            raise FleetFailed(error.problem, file=error.file, remedy=error.remedy) from error


class InsideFleet(SlurmFleet):
    """A fleet in the allocation that this process is in."""

    def _make(
        self, spool: Spool, software: Software, say: Callable[[str], None], lane: str | None
    ) -> FleetController | InsideController:
        controller = InsideController(spool, self._settings, lane, software, LocalOracle(spool.clock), say=say)
        self._lane = controller.lane
        return controller

    def refusal(self, request: Request) -> str | None:
        """Only this allocation's lane can serve."""
        if request.lane not in (None, self._lane):
            return f"it asks for lane {request.lane!r}, and this allocation is of lane {self._lane!r}"
        return self._settings.lanes[self._lane].refusal(self._lane, request)


def software_of(environment: Mapping[str, str]) -> Software:
    """What workers run from: this interpreter, and the campaign's sources."""
    carried = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    return Software(sys.executable, environment.get("PYTHONPATH"), carried, warm=True)
