"""Whether a node is to be trusted with more tasks, and what an exclusive task's node looks like."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from fleetcraft.worker.inventory import Gpu

_QUERY = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")


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
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=60, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    uuids = {gpu.uuid for gpu in gpus}
    found = []
    for line in answer.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0] in uuids:
            found.append({"uuid": parts[0], "pid": parts[1], "used_mb": parts[2]})
    return found
