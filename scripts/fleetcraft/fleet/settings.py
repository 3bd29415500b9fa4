"""What a `fleet.yaml` may say: the lanes, what the site allows, the budget, and the surroundings of workers.

These models are the single source: `config/fleet.schema.json` is generated from them, and errors name their keys.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from fleetcraft.ground.documents import Model
from fleetcraft.ground.errors import nearest
from fleetcraft.spool import Request
from fleetcraft.worker.inventory import Gpu, Inventory, declared_gpu
from fleetcraft.worker.packing import why_never

LaneName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,40}$")]
"""What a rule's resource `lane` can say, too."""

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.,:+@&|!\[\]*()/=-]+$")]
"""One word of a line for sbatch."""

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

_OPTION = re.compile(r"^--([a-z][a-z0-9-]*)(?:=\S.*)?$")
_OURS = frozenset(
    {"nodes", "partition", "account", "time", "job-name", "output", "error", "open-mode", "requeue", "no-requeue"}
    | {"no-kill", "exclusive", "signal", "array", "ntasks", "ntasks-per-node", "export", "chdir", "parsable", "wait"}
    | {"wrap", "mem", "gres", "constraint", "comment", "dependency", "test-only", "exclude", "nodelist"}
)


class Nodes(Model):
    """How many nodes an allocation has."""

    min: int = Field(1, ge=1, description="Never fewer")
    max: int = Field(ge=1, description="Never more")

    @model_validator(mode="after")
    def _ordered(self) -> Nodes:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}: the smaller one must come first")
        return self


class Node(Model):
    """What one node has; for planning, and for tasks that no node could ever serve to be refused at once."""

    cores: int = Field(ge=1, description="CPU cores that workers may use")
    memory_mb: int = Field(ge=1, description="Host memory [MB]")
    gpus: int = Field(0, ge=0, description="GPUs, which are the slots of a worker")
    gpu_model: str | None = Field(None, description="For people: H100, A100-40GB")
    gpu_mem_mb: int = Field(0, ge=0, description="Memory of each GPU [MB]; 0 where the host's is used as well")
    declared: bool = Field(
        False, description="Workers take this description for true instead of looking at what the node has"
    )

    @property
    def inventory(self) -> Inventory:
        gpus = tuple(Gpu(index, declared_gpu(index), self.gpu_mem_mb) for index in range(self.gpus))
        return Inventory(self.cores, self.memory_mb, gpus)


class Lane(Model):
    """One shape of allocation."""

    partition: Word = Field(description="Slurm partition")
    account: Word | None = Field(description="Slurm account that is charged; null where the site needs none")
    nodes: Nodes
    walltime_min: int = Field(ge=1, description="Walltime of an allocation [minutes]")
    node: Node
    gres: Word | None = Field(
        None, description="How Slurm is asked for the GPUs, such as gpu:h100:2; leave out where a node comes with them"
    )
    memory: Annotated[int, Field(ge=1)] | Literal["all"] | None = Field(
        None, description="Memory that Slurm is asked for on each node [MB], or `all`; leave out for its default"
    )
    constraint: Word | None = Field(None, description="Features that nodes must have")
    sbatch: list[str] = Field([], description="Further options for sbatch, such as --qos=long")
    idle_timeout_s: float = Field(60, gt=0, description="A worker leaves after so long without work [s]")
    walltime_margin_s: float = Field(
        60, ge=5, description="Workers end what still runs so long before the walltime, and give it back [s]"
    )
    start_up_s: float = Field(60, ge=0, description="What a node needs at most until its worker serves [s]")
    max_allocations: int = Field(
        1, ge=1, description="Allocations of this lane at the same time, waiting ones included"
    )
    work_per_node_min: float = Field(
        10, gt=0, description="So much work [minutes] is worth another node, as long as there are as many tasks"
    )
    cost_per_node_hour: float = Field(1.0, ge=0, description="What an hour of one node costs, in units of the budget")

    @field_validator("sbatch")
    @classmethod
    def _options(cls, lines: list[str]) -> list[str]:
        for line in lines:
            match = _OPTION.match(line)
            if match is None or "\n" in line:
                raise ValueError(f"{line!r} isn't one option of the form --name=value")
            if match[1] in _OURS:
                raise ValueError(f"--{match[1]} is written by Fleetcraft itself; use the lane's own keys")
        return lines

    @model_validator(mode="after")
    def _leaves_time(self) -> Lane:
        if self.usable_s < 1:
            raise ValueError(
                f"@walltime_min: no task fits in: of {self.walltime_min} minutes, {self.walltime_margin_s:.0f} s are "
                f"the margin at the end and {self.start_up_s:.0f} s the start"
            )
        return self

    @property
    def usable_s(self) -> float:
        """The longest task that an allocation can serve [s]."""
        return 60 * self.walltime_min - self.walltime_margin_s - self.start_up_s

    def cost(self, nodes: int) -> float:
        """What an allocation costs that lasts its whole walltime."""
        return nodes * self.walltime_min / 60 * self.cost_per_node_hour

    def refusal(self, name: str, request: Request) -> str | None:
        """Why no allocation of this lane could ever serve a request; None if one could."""
        if request.nodes > self.nodes.max:
            return f"it asks for {request.nodes} nodes, an allocation has at most {self.nodes.max}"
        if request.runtime_s > self.usable_s:
            return (
                f"it may run {request.runtime_s} s, and an allocation leaves {self.usable_s:.0f} s "
                f"({self.walltime_min} minutes less start and margin)"
            )
        single = replace(request, nodes=1)
        return why_never(self.node.inventory, single, name)


class Site(Model):
    """What the site allows a user, other jobs included, and how gently it is asked."""

    jobs_submitted: int = Field(40, ge=1, description="Jobs of the user in Slurm at the same time, waiting or running")
    jobs_running: int = Field(20, ge=1, description="Jobs of the user that run at the same time")
    nodes: int = Field(ge=1, description="Nodes of the user's jobs in all, waiting ones included")
    poll_s: float = Field(30, ge=10, description="Between two questions to Slurm [s]")
    processes: int = Field(100, ge=1, description="Processes that the user may have on a login node")
    stop_launching_at: int = Field(40, ge=1, description="Nothing is started on a login node with so many processes")
    shared: list[str] = Field(
        [], description="Directories that all nodes share, where the type of their file system doesn't show it"
    )

    @model_validator(mode="after")
    def _sensible(self) -> Site:
        if self.stop_launching_at > self.processes:
            raise ValueError(
                f"@stop_launching_at: it is {self.stop_launching_at}, beyond the ceiling of {self.processes} processes"
            )
        return self


class Budget(Model):
    """When to stop submitting."""

    command: str = Field(min_length=1, description="For /bin/sh; prints what is left of the allocation, one number")
    headroom: float = Field(ge=0, description="What must be left when everything submitted has run to its walltime")


class Software(Model):
    """A copy of the software environment on the node's own disk, so that starts don't burden the shared file system."""

    archive: str = Field(description="A tar archive, or a squashfs image, of what is in `replaces`")
    replaces: str = Field(description="The directory on the shared file system that the copy stands in for")

    @field_validator("archive")
    @classmethod
    def _known_type(cls, archive: str) -> str:
        if not re.search(r"\.(tar|tar\.gz|tgz|tar\.zst|tar\.xz|squashfs)$", archive):
            raise ValueError("the archive's name must end in .tar, .tar.gz, .tgz, .tar.zst, .tar.xz or .squashfs")
        return archive


class Workers(Model):
    """The surroundings of workers and of all that they start. What isn't said here isn't there."""

    caches: str = Field(description="Directory under which models are cached, on a file system that all nodes share")
    node_scratch: str = Field("/tmp", description="Directory on each node's own disk, for what is temporary")
    environment: dict[VariableName, str] = Field({}, description="Further variables; they override all others")
    setup: list[str] = Field([], description="Shell lines that run before each worker, such as module load")
    software: Software | None = None
    heartbeat_s: float = Field(10, gt=0, description="Between heartbeats of a worker [s]")


class FleetSettings(Model):
    """A fleet: the lanes of a campaign and what holds for all of them."""

    lanes: dict[LaneName, Lane] = Field(min_length=1, description="In the order in which they are tried")
    site: Site
    budget: Budget | None = Field(None, description="null where nothing is charged")
    workers: Workers

    @model_validator(mode="after")
    def _fits_the_site(self) -> FleetSettings:
        for name, lane in self.lanes.items():
            if lane.nodes.min > self.site.nodes:
                raise ValueError(
                    f"@lanes.{name}.nodes.min: {lane.nodes.min} nodes are more than the {self.site.nodes} of site.nodes"
                )
        return self

    def refusal(self, request: Request) -> str | None:
        """Why no lane could ever serve a request; None if one could."""
        if request.lane is not None and request.lane not in self.lanes:
            return f"there is no lane {request.lane!r}. {nearest(request.lane, self.lanes)}"
        reasons = []
        for name, lane in self.lanes.items():
            reason = lane.refusal(name, request)
            if reason is None:
                return None
            if request.lane in (None, name):
                reasons.append(f"lane {name}: {reason}")
        return "; ".join(reasons)
