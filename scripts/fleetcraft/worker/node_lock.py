"""Being alone on a node, across workers: also those that were killed a moment ago, and what they left running.

Two local files per spool and host, locked with flock, which the kernel keeps as long as any process has the open file
that was locked: the worker, its launcher and every task have it. So a node counts as used until the last process of the
last attempt is gone, whoever of them was killed. (flock excludes within one machine; that is all that is asked of it.)

Whoever runs anything holds `node` shared; an exclusive attempt holds it alone. Whoever waits for that holds `gate`
alone, and the others, who look at the gate before they claim, let their tasks finish and come no more.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from fleetcraft.ground.digests import key_of

_SHARED_MEMORY = Path("/dev/shm")


def node_directory() -> Path:
    """Where small files of this machine alone go: into its memory, where it can be written to."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


class NodeLock:
    """This worker's hold on its node. Make it before anything is forked.

    Parameters
    ----------
    scope : what the lock is about: the workers of one spool on one host.
    directory : on this machine alone; by default in its memory.
    """

    def __init__(self, scope: tuple[str, ...], directory: Path | None = None):
        directory = directory or node_directory()
        # The files stay, empty, until the machine forgets its memory: removing a lock file that others are about to
        # open would make two locks of one.
        name = f"fleetcraft-{os.getuid()}-{key_of(scope)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.node = os.open(directory / f"{name}.node", flags, 0o600)
        self._gate = os.open(directory / f"{name}.gate", flags, 0o600)
        self.holds = "nothing"
        self._waits = False

    def enter(self) -> bool:
        """Be one of those who use the node; False while somebody is, or waits to be, alone."""
        if not _try(self._gate, fcntl.LOCK_SH):
            return False
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        if self.holds == "nothing" and _try(self.node, fcntl.LOCK_SH):
            self.holds = "share"
        return self.holds == "share"

    def ask_alone(self) -> bool:
        """Make others come no more; False while somebody else does so."""
        self._waits = self._waits or _try(self._gate, fcntl.LOCK_EX)
        return self._waits

    def be_alone(self) -> bool:
        """Have the node alone; False while others use it. This worker must run nothing itself."""
        if self.holds == "share":
            self.leave()
        if self.holds == "nothing" and self.ask_alone() and _try(self.node, fcntl.LOCK_EX):
            self.holds = "all"
        return self.holds == "all"

    def leave(self) -> None:
        """Use the node no more. What an attempt left running has been ended by now, or holds on to it."""
        fcntl.flock(self.node, fcntl.LOCK_UN)
        self.holds = "nothing"

    def open_gate(self) -> None:
        """Let others come again."""
        if self._waits:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            self._waits = False

    def close(self) -> None:
        """For a worker that leaves with nothing running."""
        self.leave()
        self.open_gate()
        os.close(self.node)
        os.close(self._gate)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
