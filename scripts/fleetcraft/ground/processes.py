"""Processes that are ended exactly: by recorded number and start time, in bounded time, never by pattern."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from fleetcraft.ground.clock import Clock
from fleetcraft.ground.machine import is_running, process_start

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of descendants that lose theirs, so that none escapes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def children() -> list[int]:
    """Numbers of this process's children, zombies included."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - called for every task that ends
        try:
            descriptor = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY)
        except FileNotFoundError:
            return _children_by_search()
        try:
            data = b""
            while block := os.read(descriptor, 1 << 16):
                data += block
            found += map(int, data.split())
        finally:
            os.close(descriptor)
    return found


def _children_by_search() -> list[int]:
    """The same on kernels that keep no list of children."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if int(stat[stat.rindex(")") + 2 :].split()[1]) == os.getpid():
            found.append(int(entry.name))
    return found


def environment_value(pid: int, key: str) -> str | None:
    """A variable in the environment that a process was started with; None where it can't be read or isn't set."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    start = f"{key}=".encode()
    return next(
        (part[len(start) :].decode(errors="replace") for part in data.split(b"\0") if part.startswith(start)), None
    )


def processes_with(key: str, value: str) -> list[tuple[int, int]]:
    """(pid, start) of the processes on this machine that were started with a variable of exactly this value."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and environment_value(int(entry.name), key) == value:
            start = process_start(int(entry.name))
            if start is not None:
                found.append((int(entry.name), start))
    return found


def send(pid: int, start: int, number: signal.Signals) -> bool:
    """Signal exactly this process; whether it still ran."""
    if not is_running(pid, start):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end_processes(
    processes: list[tuple[int, int]], grace_s: float, kill_s: float, clock: Clock
) -> list[tuple[int, int]]:
    """TERM, wait up to `grace_s`, KILL, wait up to `kill_s`; those that run even then."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_s)):
        processes = [process for process in processes if send(*process, number)]
        deadline_s = clock.monotonic() + patience_s
        while processes and clock.monotonic() < deadline_s:
            clock.sleep(0.02)
            processes = [process for process in processes if is_running(*process)]
    return processes
