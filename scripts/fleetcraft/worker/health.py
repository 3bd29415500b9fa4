"""Whether a node is to be trusted with more tasks, and what an exclusive task's node looks like."""

from __future__ import annotations

import os
from typing import Any

from fleetcraft.ground import nvidia
from fleetcraft.worker.inventory import Gpu


class NodeHealth:
    """Counts different tasks that fail here in a row: one says something about the task, several about the node.

    Parameters
    ----------
    limit : how many make the node suspect; 0 to trust it for ever.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._failed: dict[str, str] = {}

    def succeeded(self) -> None:
        """A task succeeded: what failed before is forgotten."""
        self._failed.clear()

    def failed(self, task_id: str, cause: str) -> str | None:
        """A task failed by itself; why the node is to be drained, or None."""
        self._failed[task_id] = cause
        if not self._limit or len(self._failed) < self._limit:
            return None
        return f"{len(self._failed)} different tasks failed here in a row, the last one: {cause}"


def observe_node(gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """What can be seen of this node from outside of any task: load, and processes on the task's GPUs.

    `gpu_processes` is None where nothing can be said, because there is no nvidia-smi or it doesn't answer.
    """
    return {"load_average": round(os.getloadavg()[0], 2), "gpu_processes": gpu_processes(gpus)}


def gpu_processes(gpus: tuple[Gpu, ...]) -> list[dict[str, Any]] | None:
    """Compute processes on devices; None where nothing can be said."""
    if not gpus:
        return []
    processes = nvidia.rows("compute-apps", ("gpu_uuid", "pid", "used_memory"))
    if processes is None:
        return None
    uuids = {gpu.uuid for gpu in gpus}
    return [
        {"uuid": one["gpu_uuid"], "pid": one["pid"], "used_mb": one["used_memory"]}
        for one in processes
        if one["gpu_uuid"] in uuids
    ]
