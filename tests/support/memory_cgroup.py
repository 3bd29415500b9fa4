"""A real memory cgroup to run out of memory in, of whichever version this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_FIRST, _SECOND = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

ALLOCATE = f"{sys.executable} -c 'import time; held = [bytearray(1 << 20) for _ in range(1500)]; time.sleep(60)'"
"""A shell command that takes far more than any limit of these tests, then ends by itself."""


@contextmanager
def memory_cgroup(limit_mb: int) -> Iterator[Path]:
    """Its directory; whatever is left in it is killed at the end. Skips the test where none can be made."""
    first = (_FIRST / "cgroup.procs").exists()
    directory = (_FIRST if first else _SECOND) / f"fleetcraft-test-{uuid.uuid4().hex[:8]}"
    try:
        if not first:
            (_SECOND / "cgroup.subtree_control").write_text("+memory")
        directory.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        limit = str(limit_mb << 20)
        (directory / ("memory.limit_in_bytes" if first else "memory.max")).write_text(limit)
        # Without it, a machine that has swap would slow down instead.
        swap = directory / ("memory.memsw.limit_in_bytes" if first else "memory.swap.max")
        if swap.exists():
            swap.write_text(limit if first else "0")
        yield directory
    finally:
        while numbers := (directory / "cgroup.procs").read_text().split():
            for number in numbers:
                subprocess.run(["kill", "-9", number], check=False, capture_output=True)
            time.sleep(0.05)
        directory.rmdir()


def enter(directory: Path) -> None:
    """Put this process into a cgroup; children follow."""
    (directory / "cgroup.procs").write_text(str(os.getpid()))


def within(directory: Path) -> Callable[[], None]:
    """For `preexec_fn`."""
    return lambda: enter(directory)
