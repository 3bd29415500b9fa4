"""Real workers in processes of their own, and what they leave behind."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleetcraft.ground.processes import environment_value
from fleetcraft.spool import Filesystem, Request, Result, ResultScanner, Spool, TaskSpec
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.inventory import Gpu, Inventory
from fleetcraft.worker.launcher import Starter
from fleetcraft.worker.settings import Settings

QUICK = Settings(
    idle_timeout_s=0.3, heartbeat_s=0.1, control_s=0.05, grace_s=0.5, poll_s=0.05, failing_tasks=0, avoid_s=0.0
)


_exited: set[int] = set()
"""Workers whose exit was seen: their numbers can be others' by now."""


def inventory(threads: int = 4, mem_mb: int = 4000, gpus: int = 0, gpu_mem_mb: int = 1000) -> Inventory:
    """A node as declared."""
    return Inventory(threads, mem_mb, tuple(Gpu(index, f"GPU-test-{index}", gpu_mem_mb) for index in range(gpus)))


def shell(task_id: str, script: str, directory: Path, *, request: Request | None = None, **fields: object) -> TaskSpec:
    """A shell task."""
    return TaskSpec(task_id, ("/bin/sh", "-c", script), str(directory), request or Request(), **fields)  # type: ignore[arg-type]


def start_worker(
    root: Path,
    settings: Settings = QUICK,
    node: Inventory | None = None,
    *,
    host: str | None = None,
    filesystem: Callable[[], Filesystem] | None = None,
    starters: Mapping[str, Starter] | None = None,
) -> int:
    """Fork a worker; its process number. Its exit code is 0 if it left by itself."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        spool = Spool.open(root, filesystem=filesystem() if filesystem else None)
        Agent(spool, node or inventory(), settings, starters=starters, host=host, lock_directory=root.parent).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the last frame of a process: whatever it is has to be shown
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def worker(root: Path, settings: Settings = QUICK, node: Inventory | None = None, **fields: object) -> Iterator[int]:
    """A worker that is killed at the end if it is still there."""
    pid = start_worker(root, settings, node, **fields)  # type: ignore[arg-type]
    try:
        yield pid
    finally:
        if pid not in _exited and os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def wait_for_exit(pid: int, patience_s: float = 120.0) -> int:
    """A worker's exit code."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _exited.add(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    _exited.add(pid)
    raise AssertionError(f"worker {pid} did not leave within {patience_s} s")


def wait_until(condition: Callable[[], bool], patience_s: float = 120.0) -> None:
    """Until something becomes true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def run_to_end(
    root: Path, settings: Settings = QUICK, node: Inventory | None = None, **fields: str
) -> dict[str, Result]:
    """Let one worker do all it can; the results by task."""
    assert wait_for_exit(start_worker(root, settings, node, **fields)) == 0  # type: ignore[arg-type]
    return results(root)


def results(root: Path) -> dict[str, Result]:
    """All results."""
    return {result.id: result for result in ResultScanner(Spool.open(root)).poll()}


def orphans(root: Path) -> list[int]:
    """Processes of tasks of this spool that still run: their tasks carry its path in `TEST_SPOOL`."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and environment_value(int(entry.name), "TEST_SPOOL") == str(root)
    ]
