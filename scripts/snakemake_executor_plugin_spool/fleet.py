"""How workers come to be.

The executor asks a fleet for three things: what its workers can have, to see to it that there are workers while there
is work, and to end them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fleetcraft.ground.cgroup import memory_mb
from fleetcraft.ground.clock import Clock
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.ground.machine import host_name, is_running
from fleetcraft.ground.processes import end_processes
from fleetcraft.spool import Lease, Oracle, Request, Spool, aborted, drain, drained, read_leases
from fleetcraft.worker.inventory import Gpu, Inventory, allowed_gpus, declared_gpu, list_gpus
from fleetcraft.worker.liveness import LocalOracle
from fleetcraft.worker.packing import why_never

_FAILED_STARTS = 3
_SERVED_S = 30.0
_STOP_S = 60.0
_TAIL_LINES = 15


class FleetFailed(FleetcraftError):
    """Workers don't come up, and there is no point in trying on."""

    failure_class = "no workers"


class Fleet(Protocol):
    """Workers, from the controller's point of view."""

    oracle: Oracle
    stale_s: float
    """How long a heartbeat must stand still before the oracle is asked."""

    is_known: bool
    """Whether it is known what workers this fleet can have."""

    def refusal(self, request: Request) -> str | None:
        """Why no worker of this fleet could ever serve a request; None if one could, or nobody knows."""

    def tend(self) -> None:
        """There is work: see to it that there are workers. Called again and again; FleetFailed if they don't come."""

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """End all workers of this fleet; returns when they are gone.

        Parameters
        ----------
        meanwhile : called again and again where that takes long; keeps the session up.
        """


class NoFleet:
    """Workers are the user's business."""

    stale_s = 30.0
    is_known = False

    def __init__(self, clock: Clock):
        self.oracle: Oracle = LocalOracle(clock)

    def refusal(self, request: Request) -> None:
        """Nobody knows what workers are still to come."""

    def tend(self) -> None:
        """They come or don't."""

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """They leave by themselves."""


@dataclass(slots=True)
class _Worker:
    """A worker's place: its process, the log of what it says, and what it may use."""

    index: int
    capacity: Inventory
    log: Path
    process: subprocess.Popen[bytes] | None = None
    adopted: tuple[int, int] | None = None
    """A worker that an earlier controller started, by number and start of its process."""
    started_s: float = 0.0

    def is_there(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return self.adopted is not None and is_running(*self.adopted)


@dataclass(slots=True)
class LocalFleet:
    """Workers on this machine: started when there is work, gone after a while without, ended exactly.

    Each has a session of its own, so that Ctrl-C at the terminal is the controller's alone. If the controller is
    killed, they finish what there is and leave; a controller that starts again takes them over.

    Parameters
    ----------
    environment : of the workers.
    idle_timeout_s : without work, before a worker leaves.
    """

    spool: Spool
    capacities: list[Inventory]
    environment: Mapping[str, str]
    idle_timeout_s: float
    oracle: Oracle
    stale_s: float = 6.0
    is_known: bool = True
    _workers: list[_Worker] = field(default_factory=list)
    _failed_starts: int = 0

    def __post_init__(self) -> None:
        logs = self.spool.layout.logs / "workers"
        logs.mkdir(parents=True, exist_ok=True)
        self._workers = [
            _Worker(index, capacity, logs / f"{host_name()}-{index}.log")
            for index, capacity in enumerate(self.capacities)
        ]
        self._take_over()

    def refusal(self, request: Request) -> str | None:
        """All workers are alike."""
        largest = max(self.capacities, key=lambda capacity: (capacity.threads, len(capacity.gpus)))
        return why_never(largest, request, None)

    def tend(self) -> None:
        """Start those that are missing, unless somebody wants none."""
        missing = [worker for worker in self._workers if not worker.is_there()]
        if not missing:
            return
        reason = aborted(self.spool) or drained(self.spool).get(host_name())
        if reason is None:
            for worker in missing:
                self._judge(worker)
                self._start(worker)
        elif len(missing) == len(self._workers):
            raise FleetFailed(
                f"no worker may serve here any more: {reason}",
                file=self.spool.root,
                remedy="Take it back with `fleetcraft abort --resume` or `fleetcraft drain --lift`, and start again",
            )

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """TERM to each, KILL to those that don't leave; what they ran is ended by themselves."""
        present = [worker for worker in self._workers if worker.is_there()]
        for worker in present:
            if worker.process is not None:
                # Not reaped yet, so the number is nobody else's.
                worker.process.send_signal(signal.SIGTERM)
        for worker in present:
            if worker.process is not None:
                try:
                    worker.process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    worker.process.kill()
                    worker.process.wait()
        adopted = [worker.adopted for worker in present if worker.process is None and worker.adopted is not None]
        left = end_processes(adopted, _STOP_S, 10.0, self.spool.clock)
        if left:
            raise FleetFailed(
                f"workers could not be ended (processes {', '.join(str(pid) for pid, _ in left)})",
                remedy="Look at what they hang on, and end them by hand",
            )

    def _take_over(self) -> None:
        """Go on with workers of an earlier controller that are as this fleet's are to be; let the others leave."""
        for name, lease in sorted(read_leases(self.spool).items()):
            if lease.identity.get("fleet") != "local" or lease.host != host_name() or not lease.processes:
                continue
            if not is_running(*lease.processes[0]):
                continue
            place = next((worker for worker in self._workers if self._fits(worker, lease)), None)
            if place is None:
                drain(self.spool, name, "a controller with other workers has taken over")
            else:
                place.adopted = lease.processes[0]

    @staticmethod
    def _fits(worker: _Worker, lease: Lease) -> bool:
        free = worker.adopted is None and lease.state == "serving"
        wanted = {**worker.capacity.as_capacity(), "lane": None, "gang": None}
        return free and lease.identity.get("index") == worker.index and lease.capacity == wanted

    def _judge(self, worker: _Worker) -> None:
        """Look at how a worker ended that isn't there any more."""
        worker.adopted = None
        if worker.process is None:
            return
        code, lived_s = worker.process.returncode, self.spool.clock.monotonic() - worker.started_s
        worker.process = None
        if code == 0 or lived_s >= _SERVED_S:
            self._failed_starts = 0
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            tail = "\n    ".join(worker.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
            raise FleetFailed(
                f"local workers end as soon as they start (exit code {code}), {self._failed_starts} times now; "
                f"their log ends:\n    {tail}\n",
                file=worker.log,
                remedy="Remove the cause that it names, and start again",
            )

    def _start(self, worker: _Worker) -> None:
        capacity = worker.capacity
        declared = {"threads": capacity.threads, "mem_mb": capacity.mem_mb, "gpus": len(capacity.gpus)}
        declared |= {"gpu_first": capacity.gpus[0].index} if capacity.gpus else {}
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in capacity.gpus)} if capacity.gpus else {}
        command = [
            *(sys.executable, "-P", "-m", "fleetcraft.cli.main", "worker", "--spool", str(self.spool.root)),
            *("--capacity", ",".join(f"{key}={value}" for key, value in declared.items())),
            *("--idle-timeout", str(self.idle_timeout_s), "--poll", "0.1", "--heartbeat", "2", "--warm"),
            # There is no other node that a failing task could be left to, or that this one could be compared with.
            *("--failing-tasks", "0", "--avoid", "0"),
            *("--identity", json.dumps({"fleet": "local", "index": worker.index})),
        ]
        with worker.log.open("ab") as log:
            worker.process = subprocess.Popen(
                command,
                cwd=self.spool.root,
                env={**self.environment, **visible},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker.started_s = self.spool.clock.monotonic()


def local_capacities(workers: int, cores: int | None, gpus: int | None, mem_mb: int | None = None) -> list[Inventory]:
    """What each of some workers on this machine gets; what isn't said is shared equally.

    Raises
    ------
    BadInput : that can't be.
    """
    if workers < 1:
        raise BadInput("a local fleet has workers", key="--spool-workers", value=workers, remedy="Use 1 or more")
    found = allowed_gpus(list_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    each = len(found) // workers if gpus is None else gpus
    if not found:
        # Taken at its word where nobody can tell, as for a whole node: slots without a device behind them.
        found = [Gpu(index, declared_gpu(index), 0) for index in range(each * workers)]
    if each * workers > len(found):
        raise BadInput(
            f"this machine has {len(found)} GPUs that may be used, too few for {workers} workers of {each}",
            key="--spool-worker-gpus",
            value=each,
            remedy="Use fewer, or start workers yourself with --spool-fleet none",
        )
    threads = max(1, len(os.sched_getaffinity(0)) // workers) if cores is None else cores
    if threads < 1:
        raise BadInput("a worker has cores", key="--spool-worker-cores", value=cores, remedy="Use 1 or more")
    memory = memory_mb() // workers if mem_mb is None else mem_mb
    return [Inventory(threads, memory, tuple(found[index * each : (index + 1) * each])) for index in range(workers)]
