"""What a job asks of a node, from its threads and resources."""

from __future__ import annotations

from typing import Any, Literal

from snakemake.common.tbdstring import TBDString

from fleetcraft.ground.errors import BadInput
from fleetcraft.spool import Request

DEFAULT_PRIORITY = 500
_HIGHEST = 999
_RESOURCES = ("mem_mb", "gpus", "gpu_mem_mb", "runtime", "nodes", "node_access", "lane")


def request_of(job: Any, default_runtime: int) -> Request:
    """The request of a job or group.

    Parameters
    ----------
    default_runtime : minutes, where its rule has no resource `runtime`.

    Raises
    ------
    BadInput : a resource isn't what it must be.
    """
    resources = job.resources
    nodes = _whole(resources, "nodes", 1)
    access: Literal["shared", "exclusive"] = "exclusive" if nodes > 1 else resources.get("node_access", "shared")
    try:
        return Request(
            threads=max(1, int(job.threads)),
            mem_mb=_whole(resources, "mem_mb", 0),
            gpus=_whole(resources, "gpus", 0),
            gpu_mem_mb=_whole(resources, "gpu_mem_mb", 0),
            runtime_s=60 * _whole(resources, "runtime", default_runtime),
            nodes=nodes,
            access=access,
            lane=resources.get("lane"),
        )
    except BadInput as error:
        raise BadInput(f"rule {job.name}: {error}", remedy="Correct the rule's resources") from error


def is_open(job: Any) -> bool:
    """Whether anything of a job's request depends on files that aren't there yet."""
    return any(isinstance(job.resources.get(name), TBDString) for name in _RESOURCES)


def priority_of(job: Any) -> int:
    """Snakemake's priority, which is 0 unless said otherwise, in the middle of the spool's range."""
    return min(max(DEFAULT_PRIORITY + int(job.priority), 0), _HIGHEST)


def _whole(resources: Any, key: str, default: int) -> int:
    value = resources.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput("this resource is a whole number", key=key, value=value, remedy="Give one")
    return value
