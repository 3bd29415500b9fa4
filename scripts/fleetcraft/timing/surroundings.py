"""What else happened on the node while something was timed: other processes' work, the state of its GPUs."""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetcraft.ground import nvidia

FOREIGN_CORES = 0.5
"""Cores that others may keep busy on average during a pass: housekeeping of a node takes a few hundredths."""

_GPU_FIELDS = (
    "uuid",
    "name",
    "utilization.gpu",
    "memory.used",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
    "clocks_throttle_reasons.active",
)
_HARMLESS_THROTTLING = 0x1 | 0x2
"""Idle, and clocks set by an application: no reason to distrust a figure (nvmlClocksThrottleReasons)."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Moment:
    """Counters at one moment, in seconds: the clock, CPU that the node spent, CPU that this process spent."""

    clock: float
    node: float
    own: float


def moment() -> Moment:
    """Now. What ended children used counts as this process's own."""
    own = sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
    return Moment(time.monotonic(), _node_cpu_s(), own)


def foreign_cores(before: Moment, after: Moment) -> float:
    """Cores that others kept busy on average in between."""
    elapsed = max(after.clock - before.clock, 1e-9)
    return max(0.0, ((after.node - before.node) - (after.own - before.own)) / elapsed)


def _node_cpu_s(file: Path = Path("/proc/stat")) -> float:
    """CPU seconds that the node has spent on anything; what a hypervisor took away (steal) is spent too."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


@dataclass(frozen=True)
class Snapshot:
    """The node at one moment.

    load_average : of one minute.
    gpus : what nvidia-smi says of this process's devices; None where there is no nvidia-smi, or it doesn't answer.
    gpu_processes : processes that compute on them, this one included; None likewise.
    """

    load_average: float
    gpus: list[dict[str, Any]] | None
    gpu_processes: list[dict[str, Any]] | None

    def as_json(self) -> dict[str, Any]:
        return {"load_average": self.load_average, "gpus": self.gpus, "gpu_processes": self.gpu_processes}


def snapshot() -> Snapshot:
    """Look around."""
    gpus = nvidia.rows("gpu", _GPU_FIELDS)
    processes = nvidia.rows("compute-apps", ("gpu_uuid", "pid", "used_memory"))
    visible = _visible()
    if visible is not None:
        gpus = [gpu for gpu in gpus if gpu["uuid"] in visible] if gpus is not None else None
        processes = [one for one in processes if one["gpu_uuid"] in visible] if processes is not None else None
    return Snapshot(round(os.getloadavg()[0], 2), gpus, processes)


def neighbours() -> dict[str, Any] | None:
    """What the worker that started this process saw of its node; None where no worker did."""
    file = os.environ.get("FLEETCRAFT_NODE_FILE")
    if file is None:
        return None
    content: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return content


def disturbances(before: Snapshot, after: Snapshot, node: dict[str, Any] | None) -> list[str]:
    """Why a whole job wasn't alone, as far as can be told from its ends; empty where nothing speaks against it.

    before : taken before this process used a device, so that every process on it is another's.
    """
    found = []
    if node is not None and node.get("access") != "exclusive":
        found.append("its worker shared the node with other tasks")
    for when, seen, processes in (
        ("before", before, before.gpu_processes or []),
        ("after", after, _without_own(before.gpu_processes or [], after.gpu_processes or [])),
    ):
        for process in processes:
            found.append(f"process {process['pid']} held {process['used_memory']} MiB of a GPU {when} it")
        for gpu in seen.gpus or ():
            reasons = _hexadecimal(gpu["clocks_throttle_reasons.active"])
            if reasons is not None and reasons & ~_HARMLESS_THROTTLING:
                found.append(f"the clocks of GPU {gpu['uuid']} were throttled {when} it (reasons {reasons:#x})")
    return found


def _without_own(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The processes of others; in a container this one may be listed under a number that it doesn't know itself."""
    own = str(os.getpid())
    if any(process["pid"] == own for process in after):
        return [process for process in after if process["pid"] != own]
    known = {process["pid"] for process in before}
    new = [process for process in after if process["pid"] not in known]
    return [process for process in after if process["pid"] in known] + new[1:]


def _visible() -> set[str] | None:
    """UUIDs of the devices that this process may use, where its environment names them so."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return set(named) if named and all(name.startswith("GPU-") for name in named) else None


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
