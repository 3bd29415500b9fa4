"""Why a task isn't running: what each worker's lease says about its request."""

from __future__ import annotations

from collections.abc import Mapping

from fleetcraft.spool import Lease, Request
from fleetcraft.worker.inventory import Gpu, Inventory
from fleetcraft.worker.packing import why_never, why_not_in_time


def why_not(lease: Lease, request: Request) -> str:
    """Why a worker doesn't take a waiting request at present; one sentence for people."""
    never = why_never(inventory_of(lease), request, lease.capacity.get("lane"), lease.capacity.get("gang"))
    if never is not None:
        return never
    if lease.state != "serving":
        return f"it is {lease.state}: {lease.reason}" if lease.reason else f"it is {lease.state}"
    late = why_not_in_time(request, lease.walltime_left_s)
    if late is not None:
        return late
    kept = next((task for task in lease.running if task.get("leader")), None)
    if kept is not None:
        return f"it keeps its node for {kept['id']}, a gang that {kept['leader']} leads"
    waiting = next((task["id"] for task in lease.running if task.get("waits")), None)
    if waiting is not None:
        return f"it lets its tasks finish, because {waiting} is to run there alone"
    if request.access != "exclusive":
        for key in ("threads", "mem_mb", "gpus"):
            if getattr(request, key) > lease.free.get(key, 0):
                return f"it is busy: {key}={lease.free.get(key, 0)} free, {getattr(request, key)} asked for"
    return "it has room, and takes what has a higher priority or is harder to place first"


def nobody_can(leases: Mapping[str, Lease], request: Request) -> str | None:
    """Why none of the present workers could ever serve a request; None if one could, or if there are none."""
    reasons = []
    for lease in leases.values():
        never = why_never(inventory_of(lease), request, lease.capacity.get("lane"), lease.capacity.get("gang"))
        if never is None:
            return None
        reasons.append(never)
    return reasons[0] if reasons else None


def inventory_of(lease: Lease) -> Inventory:
    """A node as far as its lease describes it."""
    capacity = lease.capacity
    gpus = tuple(Gpu(index, str(index), capacity.get("gpu_mem_mb", 0)) for index in range(capacity.get("gpus", 0)))
    return Inventory(capacity.get("threads", 0), capacity.get("mem_mb", 0), gpus)
