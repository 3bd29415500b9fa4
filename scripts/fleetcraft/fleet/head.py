"""Head jobs: a controller that runs in the allocation of its own workers, and follows itself."""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.fleet.budget import read_balance
from fleetcraft.fleet.errors import FleetStopped
from fleetcraft.fleet.login import check_login_node
from fleetcraft.fleet.script import render_head
from fleetcraft.fleet.settings import FleetSettings, Lane
from fleetcraft.fleet.slurm import Slurm
from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.ground.files import write_text
from fleetcraft.ground.repository import CHECKOUT

_DIRECTORY = ".snakemake/fleetcraft-head"


@dataclass(frozen=True, slots=True)
class Head:
    """A head job.

    Parameters
    ----------
    lane, nodes : its shape; None for the fleet's first lane, and as many as that may have.
    successors : how many may follow it, one after the other.
    snakemake : arguments for Snakemake, after those that make it use this allocation.
    directory : where Snakemake runs.
    """

    fleet_file: Path
    lane: str | None
    nodes: int | None
    successors: int
    snakemake: tuple[str, ...]
    directory: Path

    def shape(self, fleet: FleetSettings) -> tuple[str, Lane, int]:
        """Lane and number of nodes.

        Raises
        ------
        BadInput : there is no such lane, or it has no such shape.
        """
        name = self.lane if self.lane is not None else next(iter(fleet.lanes))
        if name not in fleet.lanes:
            raise BadInput(f"there is no lane {name!r}", key="--lane", remedy=nearest(name, fleet.lanes))
        lane = fleet.lanes[name]
        nodes = lane.nodes.max if self.nodes is None else self.nodes
        if not lane.nodes.min <= nodes <= min(lane.nodes.max, fleet.site.nodes):
            raise BadInput(
                f"an allocation of lane {name} has {lane.nodes.min} to {lane.nodes.max} nodes",
                key="--nodes",
                value=nodes,
                remedy="Choose a number in between",
            )
        return name, lane, nodes

    def command(self, fleet: FleetSettings) -> list[str]:
        """What it runs."""
        name, _, _ = self.shape(fleet)
        return [
            *(sys.executable, "-P", "-m", "snakemake", "--profile", str(CHECKOUT / "profiles/inside")),
            *("--spool-fleet", "inside", "--spool-fleet-file", str(self.fleet_file), "--spool-lane", name),
            *self.snakemake,
        ]

    def successor(self) -> list[str]:
        """The command that submits the one after it."""
        shape = [] if self.lane is None else ["--lane", self.lane]
        shape += [] if self.nodes is None else ["--nodes", str(self.nodes)]
        return [
            *(sys.executable, "-P", "-m", "fleetcraft.cli.main", "launch", "--fleet", str(self.fleet_file), *shape),
            *("--successors", str(self.successors - 1), "--", *self.snakemake),
        ]

    def script(self, fleet: FleetSettings, name: str = "fleetcraft-head") -> str:
        """The script for sbatch."""
        _, lane, nodes = self.shape(fleet)
        return render_head(
            name,
            lane,
            nodes,
            self.directory,
            self.command(fleet),
            self.successor() if self.successors > 0 else None,
        )


def submit_head(head: Head, fleet: FleetSettings) -> tuple[int, Path]:
    """Submit a head job, if the budget allows; its number, and its script.

    Raises
    ------
    FleetStopped : the budget doesn't allow it.
    """
    check_login_node(fleet.site)
    _, lane, nodes = head.shape(fleet)
    if fleet.budget is not None:
        left = read_balance(fleet.budget) - fleet.budget.headroom
        if lane.cost(nodes) > left:
            raise FleetStopped(
                f"the budget is exhausted: {nodes} nodes for {lane.walltime_min} minutes cost {lane.cost(nodes):g}, "
                f"and {max(left, 0):g} is left above the headroom",
                remedy="Ask for fewer nodes, or start again when there is more: what is done is kept",
            )
    name = f"fleetcraft-head-{uuid.uuid4().hex[:8]}"
    script = head.directory / _DIRECTORY / f"{time.strftime('%Y%m%d-%H%M%S')}-{name[-8:]}.sh"
    write_text(script, head.script(fleet, name))
    return Slurm(SystemClock()).submit(script), script
