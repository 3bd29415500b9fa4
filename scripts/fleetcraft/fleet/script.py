"""The scripts of an allocation, rendered from the templates under `resources/slurm/`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from fleetcraft.fleet.records import Record
from fleetcraft.fleet.settings import FleetSettings, Lane, Workers
from fleetcraft.ground.files import write_text
from fleetcraft.ground.repository import RESOURCES

TEMPLATES = RESOURCES / "slurm"


@dataclass(frozen=True, slots=True)
class Software:
    """How workers are started.

    Parameters
    ----------
    python_path : directories with the modules that the interpreter is to find first.
    variables : for workers and all that they start.
    warm : whether they make ready for jobs of Snakemake before the first one comes.
    """

    python: str
    python_path: str | None = None
    variables: Mapping[str, str] | None = None
    warm: bool = False


def write_scripts(
    directory: Path,
    record: Record,
    fleet: FleetSettings,
    spool: Path,
    software: Software,
    avoided: Sequence[str] = (),
) -> Path:
    """Write what an allocation runs into its directory; the script for sbatch. `avoided` are nodes it isn't to get."""
    lane = fleet.lanes[record.lane]
    allocation, worker = directory / "allocation.sh", directory / "worker.sh"
    write_text(worker, render_worker(record.token, record.lane, lane, fleet.workers, spool, software))
    write_text(allocation, render_allocation(record, lane, directory, avoided))
    return allocation


def render_allocation(record: Record, lane: Lane, directory: Path, avoided: Sequence[str] = ()) -> str:
    """The script for sbatch."""
    return _template("allocation.sh.j2").render(
        name=record.name,
        nodes=record.nodes,
        lane=lane,
        directory=str(directory),
        walltime_s=record.walltime_s,
        avoided=",".join(avoided),
        # Workers end by themselves at their margin. This is for a walltime that was shortened; Slurm may send it half a
        # minute earlier than it is asked to, and to all processes of a step: only TERM is told from a task's own end.
        signal_s=max(5, int(lane.walltime_margin_s / 4)),
    )


def render_worker(token: str, lane_name: str, lane: Lane, workers: Workers, spool: Path, software: Software) -> str:
    """What each step runs: the worker of one node, with an environment of its own."""
    return _template("worker.sh.j2").render(
        token=token,
        lane_name=lane_name,
        lane=lane,
        workers=workers,
        variables={**(software.variables or {}), **workers.environment},
        capacity=_capacity(lane),
        spool=str(spool),
        python=software.python,
        python_path=software.python_path or "",
        grace_s=10,
        warm=software.warm,
    )


def render_head(
    name: str, lane: Lane, nodes: int, directory: Path, command: Sequence[str], successor: Sequence[str] | None
) -> str:
    """The script of a head job: the controller itself, and the workers beside it."""
    return _template("head.sh.j2").render(
        name=name,
        lane=lane,
        nodes=nodes,
        directory=str(directory),
        command=shlex.join(command),
        successor=shlex.join(successor) if successor is not None else None,
        signal_s=max(5, int(lane.walltime_margin_s / 4)),
    )


def _capacity(lane: Lane) -> str:
    """What a worker is told of its node: everything where it is to believe it, else what it can't find out."""
    node = lane.node
    if node.declared:
        return f"threads={node.cores},mem_mb={node.memory_mb},gpus={node.gpus},gpu_mem_mb={node.gpu_mem_mb}"
    return f"gpu_mem_mb={node.gpu_mem_mb}" if node.gpu_mem_mb else ""


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The output is shell: every value goes through `sh`.
        autoescape=False,
    )
    environment.filters["sh"] = lambda value: shlex.quote(str(value))
    return environment.get_template(name)
