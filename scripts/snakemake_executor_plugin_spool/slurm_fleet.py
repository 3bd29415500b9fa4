"""Workers in allocations of Slurm, as the executor sees them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
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
        self._stopped = False

    def _make(
        self, spool: Spool, software: Software, say: Callable[[str], None], lane: str | None
    ) -> FleetController | InsideController:
        return FleetController(spool, self._settings, software, LocalOracle(spool.clock), say=say)

    def refusal(self, request: Request) -> str | None:
        """Why no lane could ever serve a request; None if one could."""
        return self._settings.refusal(request)

    def tend(self) -> None:
        """Let the controller do what is due."""
        try:
            self._controller.step()
        except (FleetStopped, NoSlurm) as error:
            raise FleetFailed(error.problem, file=error.file, remedy=error.remedy) from error

    def stop(self) -> None:
        """Cancel the allocations; what their workers ran, they end and give back."""
        if self._stopped:
            return
        self._stopped = True
        try:
            self._controller.stop()
        except (FleetStopped, NoAnswer) as error:
            raise FleetFailed(error.problem, remedy=error.remedy) from error


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
