"""What a node has, as far as this process may use it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.ground import nvidia
from fleetcraft.ground.cgroup import memory_mb
from fleetcraft.ground.errors import BadInput


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical device; `uuid` is what a task sees it by, and what its slot is named after."""

    index: int
    uuid: str
    mem_mb: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Threads, host memory [MB] and GPUs that may be used here."""

    threads: int
    mem_mb: int
    gpus: tuple[Gpu, ...] = ()

    def as_capacity(self) -> dict[str, int]:
        """For the lease, with the keys of a task's request."""
        return {
            "threads": self.threads,
            "mem_mb": self.mem_mb,
            "gpus": len(self.gpus),
            "gpu_mem_mb": max((gpu.mem_mb for gpu in self.gpus), default=0),
        }


def detect(override: dict[str, int] | None = None, root: Path = Path("/")) -> Inventory:
    """Look at this node: CPUs by affinity, memory by cgroup, GPUs that `CUDA_VISIBLE_DEVICES` allows.

    Parameters
    ----------
    override : what is to be believed instead: threads, mem_mb, gpus, gpu_mem_mb. With `gpus`, devices are named
        `GPU-declared-<index>` where nvidia-smi doesn't show as many; `gpu_first` is the first such index, so that
        several workers of a machine don't declare the same devices.
    root : where /proc and /sys are; only tests give another one.
    """
    override = override or {}
    gpus = allowed_gpus(list_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if "gpus" in override:
        first = override.get("gpu_first", 0)
        declared = range(first + len(gpus), first + override["gpus"])
        gpus = gpus[: override["gpus"]] + [Gpu(index, declared_gpu(index), 0) for index in declared]
    if "gpu_mem_mb" in override:
        gpus = [Gpu(gpu.index, gpu.uuid, override["gpu_mem_mb"], gpu.model) for gpu in gpus]
    return Inventory(
        threads=override.get("threads", len(os.sched_getaffinity(0))),
        mem_mb=override.get("mem_mb", memory_mb(root)),
        gpus=tuple(gpus),
    )


def declared_gpu(index: int) -> str:
    """The name of a device that somebody says is there."""
    return f"GPU-declared-{index}"


def parse_override(text: str) -> dict[str, int]:
    """`threads=4,mem_mb=8000,gpus=2,gpu_mem_mb=40000`, each part optional."""
    override = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in ("threads", "mem_mb", "gpus", "gpu_mem_mb", "gpu_first") or not value.isdecimal():
            raise BadInput(
                "this part of a capacity can't be understood",
                value=part,
                remedy="Write threads=4,mem_mb=8000,gpus=2,gpu_mem_mb=40000, each part optional",
            )
        override[key] = int(value)
    return override


def list_gpus() -> list[Gpu]:
    """The devices that nvidia-smi shows; none where it isn't installed or finds no driver."""
    return parse_gpus(nvidia.ask("gpu", ("index", "uuid", "memory.total", "name")) or "")


def parse_gpus(text: str) -> list[Gpu]:
    """What nvidia-smi's query says: one `index, uuid, MiB, name` a line."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",", 3)]
        # Where GPU and host share memory, the driver says "[N/A]": then nothing is known that could be packed by.
        if len(parts) == 4 and parts[0].isdecimal():
            gpus.append(Gpu(int(parts[0]), parts[1], int(parts[2]) if parts[2].isdecimal() else 0, parts[3]))
    return gpus


def allowed_gpus(gpus: list[Gpu], visible: str | None) -> list[Gpu]:
    """Those that `CUDA_VISIBLE_DEVICES` names, by index or (the beginning of a) UUID; all where it is unset."""
    if visible is None:
        return gpus
    allowed = []
    for item in filter(None, (part.strip() for part in visible.split(","))):
        match = [
            gpu for gpu in gpus if str(gpu.index) == item or (item.startswith("GPU-") and gpu.uuid.startswith(item))
        ]
        if not match:
            # CUDA stops at the first device that it doesn't know.
            break
        allowed += match[:1]
    return allowed
