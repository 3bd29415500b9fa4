"""Starting a task by fork alone: for work in Python whose imports a launcher holds ready.

    Agent(spool, inventory, starters={"snakemake": Forked(run)}, prepare={"snakemake": import_everything})

The launcher of that kind imports once; each task is a fork of it. The launcher must hold no threads and no GPU.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

from fleetcraft.worker.launcher import Order

_PR_SET_PDEATHSIG = 1


class Forked:
    """A starter whose tasks are a call of `run` with the order, in a child; what it returns is the exit code.

    The child has its own process group, the task's environment (in `os.environ`, too), directory and log, signals as in
    a fresh process, and none of the launcher's descriptors. It dies with the launcher: as it was never executed, the
    kernel shows the launcher's environment for it, so that nobody else could tell whose it is.
    """

    helpers: Collection[int] = ()

    def __init__(self, run: Callable[[Order], int]):
        self._run = run

    def __call__(self, order: Order, environment: dict[bytes, bytes], log: int, private: tuple[int, ...]) -> int:
        """Start it."""
        Path(order["directory"]).stat()
        launcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            _live(order, environment, log, private, launcher, self._run)
        # Both sides do it: whichever comes first, it is done before anybody signals the group.
        os.setpgid(pid, pid)
        return pid

    def close(self) -> None:
        """There are no helpers."""


def _live(
    order: Order,
    environment: dict[bytes, bytes],
    log: int,
    private: tuple[int, ...],
    launcher: int,
    run: Callable[[Order], int],
) -> None:
    """The life of a task's process, which never returns into the launcher's code."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher:
            os._exit(1)
        for descriptor in private:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(nothing)
        os.close(log)
        # New ones: the launcher's may be something else than these descriptors, and hold what it has not written yet.
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environb.clear()
        os.environb.update(environment)
        os.chdir(order["directory"])
        code = run(order)
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else int(request.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of a process: whatever it is has to be in the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
