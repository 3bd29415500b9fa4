"""Which tasks fit together on a node, and which devices each gets."""

from __future__ import annotations

from dataclasses import dataclass

from fleetcraft.spool import Request
from fleetcraft.worker.inventory import Gpu, Inventory


@dataclass(frozen=True, slots=True)
class Share:
    """What a task was given of the node."""

    request: Request
    gpus: tuple[Gpu, ...]


class Books:
    """Who has what of a node.

    A task with `gpus` gets that many devices to itself, each with at least `gpu_mem_mb`. One with `gpu_mem_mb` alone
    shares a device with others that asked for the same. An exclusive task is booked when it is claimed: nothing fits
    from then on, and it may start when nothing else is left.
    """

    def __init__(self, inventory: Inventory, lane: str | None = None, gang: str | None = None):
        self.inventory = inventory
        self._lane, self._gang = lane, gang
        self._shares: dict[str, Share] = {}

    def fits(self, request: Request) -> bool:
        """Whether a request can be booked now."""
        if why_never(self.inventory, request, self._lane, self._gang) is not None or self.exclusive is not None:
            return False
        if request.access == "exclusive":
            return True
        free_threads = self.inventory.threads - sum(share.request.threads for share in self._shares.values())
        free_mem_mb = self.inventory.mem_mb - sum(share.request.mem_mb for share in self._shares.values())
        if request.threads > free_threads or request.mem_mb > free_mem_mb:
            return False
        return self._devices(request) is not None

    def is_full(self) -> bool:
        """Whether no thread is left, so that nothing fits."""
        return self.exclusive is not None or self.free()["threads"] < 1

    def could(self, request: Request) -> bool:
        """Whether a request could be booked if there were nothing else."""
        return why_never(self.inventory, request, self._lane, self._gang) is None and self.exclusive is None

    def book(self, key: str, request: Request) -> Share:
        """Give a task what it asks for; it must fit."""
        devices = self._inventory_devices(request) if request.access == "exclusive" else self._devices(request)
        assert devices is not None, f"{key} was booked and doesn't fit"
        self._shares[key] = Share(request, devices)
        return self._shares[key]

    def has(self, key: str) -> bool:
        """Whether a task is booked."""
        return key in self._shares

    def share(self, key: str) -> Share:
        """What a task was given."""
        return self._shares[key]

    def release(self, key: str) -> None:
        """Take back what a task had."""
        del self._shares[key]

    @property
    def exclusive(self) -> str | None:
        """The exclusive task that has, or waits for, the node."""
        return next((key for key, share in self._shares.items() if share.request.access == "exclusive"), None)

    def neighbours(self, key: str) -> list[str]:
        """The others."""
        return [other for other in self._shares if other != key]

    def free(self) -> dict[str, int]:
        """What is left, with the keys of a request; nothing while an exclusive task has the node."""
        if self.exclusive is not None:
            return {"threads": 0, "mem_mb": 0, "gpus": 0}
        return {
            "threads": self.inventory.threads - sum(share.request.threads for share in self._shares.values()),
            "mem_mb": self.inventory.mem_mb - sum(share.request.mem_mb for share in self._shares.values()),
            "gpus": len([gpu for gpu in self.inventory.gpus if not self._users(gpu)]),
        }

    def _users(self, gpu: Gpu) -> list[Share]:
        return [share for share in self._shares.values() if gpu in share.gpus]

    def _devices(self, request: Request) -> tuple[Gpu, ...] | None:
        """Devices for a shared request: the smallest that do; None where there are too few."""
        if request.gpus:
            idle = [gpu for gpu in self.inventory.gpus if not self._users(gpu) and gpu.mem_mb >= request.gpu_mem_mb]
            idle.sort(key=lambda gpu: (gpu.mem_mb, gpu.index))
            return tuple(idle[: request.gpus]) if len(idle) >= request.gpus else None
        if not request.gpu_mem_mb:
            return ()
        fitting = []
        for gpu in self.inventory.gpus:
            users = self._users(gpu)
            left_mb = gpu.mem_mb - sum(share.request.gpu_mem_mb for share in users)
            if not any(share.request.gpus for share in users) and left_mb >= request.gpu_mem_mb:
                fitting.append((left_mb, gpu.index, gpu))
        return (min(fitting)[2],) if fitting else None

    def _inventory_devices(self, request: Request) -> tuple[Gpu, ...]:
        """Devices for a task that will be alone."""
        count = request.gpus or int(request.gpu_mem_mb > 0)
        fitting = [gpu for gpu in self.inventory.gpus if gpu.mem_mb >= request.gpu_mem_mb]
        return tuple(fitting[:count])


def why_never(inventory: Inventory, request: Request, lane: str | None, gang: str | None = None) -> str | None:
    """Why a node can't serve a request even when it is idle; None if it can. One sentence for people.

    Parameters
    ----------
    gang : what the nodes of a gang have in common; None where this one can't be in any.
    """
    if request.nodes > 1 and gang is None:
        return f"it is a gang of {request.nodes} nodes, which this worker can't join"
    if request.lane is not None and request.lane != lane:
        return f"it asks for lane {request.lane!r}, the worker is of {f'lane {lane!r}' if lane else 'no lane'}"
    for key, has in (("threads", inventory.threads), ("mem_mb", inventory.mem_mb)):
        if getattr(request, key) > has:
            return f"it asks for {key}={getattr(request, key)}, the node has {has}"
    fitting = [gpu for gpu in inventory.gpus if gpu.mem_mb >= request.gpu_mem_mb]
    wanted = request.gpus or int(request.gpu_mem_mb > 0)
    if wanted > len(inventory.gpus):
        return f"it asks for gpus={wanted}, the node has {len(inventory.gpus)}"
    if wanted > len(fitting):
        return (
            f"it asks for gpu_mem_mb={request.gpu_mem_mb} on each of {wanted} devices, the node has {len(fitting)} such"
        )
    return None


def why_not_in_time(request: Request, left_s: float | None) -> str | None:
    """Why a request can't be served before the walltime; None if it can."""
    if left_s is None or request.runtime_s <= left_s:
        return None
    return f"it may run {request.runtime_s} s, the worker has {max(left_s, 0):.0f} s left before its walltime"
