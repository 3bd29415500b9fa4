"""Which machine and which process: identities that survive neither a reboot nor the reuse of a number."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Architecture: TypeAlias = Literal["x86_64", "aarch64"]
"""Processor architectures of nodes, as Linux names them."""


@cache
def host_name() -> str:
    """The node's name without its domain."""
    return platform.node().split(".")[0] or "localhost"


@cache
def architecture() -> Architecture:
    """This machine's."""
    return "aarch64" if platform.machine() in {"aarch64", "arm64"} else "x86_64"


@cache
def boot_id() -> str:
    """Tells this boot of this machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def process_start(pid: int) -> int | None:
    """When a process started [clock ticks since boot], which tells it from a later one of the same number.

    None where no such process runs; a zombie runs no more.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_running(pid: int, start: int) -> bool:
    """Whether exactly this process still runs."""
    return process_start(pid) == start


def own_start() -> int:
    """When this process started."""
    start = process_start(os.getpid())
    assert start is not None
    return start
