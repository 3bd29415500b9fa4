"""Memory cgroups, of both versions: what this process's may use, what it has used at most, and who was killed in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_MB = 1 << 40


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of the kernel's interface."""

    mount: str
    limit: str
    peak: str
    events: str


_FIRST = _Version("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
_SECOND = _Version("sys/fs/cgroup", "memory.max", "memory.peak", "memory.events")


@dataclass(frozen=True, slots=True)
class Kills:
    """How many processes the kernel has killed for want of memory, since its start.

    Parameters
    ----------
    where : the cgroup in which they were, or the machine where that can't be told.
    limit_mb, peak_mb : of all processes there; None where there is none, or the kernel doesn't say.
    """

    where: str
    count: int
    limit_mb: int | None
    peak_mb: int | None


def limits_mb(root: Path = Path("/")) -> list[int]:
    """The limits of this process's cgroup and of those around it."""
    found = []
    for version, group in _own_groups(root):
        found += [_megabytes(directory / version.limit) for directory in _outwards(version, group, root)]
    return [limit for limit in found if limit is not None]


def kills(root: Path = Path("/")) -> Kills | None:
    """Those of this process's cgroup and of cgroups in it; None where the kernel says nothing.

    A process is counted where it was, whether the limit that it died of was that cgroup's, another's around it, or the
    machine's.
    """
    for version, group in _own_groups(root):
        inside = next((directory for directory in _outwards(version, group, root) if directory.is_dir()), None)
        if inside is not None and (inside / version.events).is_file():
            # The first version counts in each cgroup by itself, the second counts those within as well.
            groups = [directory for directory, _, _ in os.walk(inside)] if version is _FIRST else [inside]
            limits = [_megabytes(directory / version.limit) for directory in _outwards(version, group, root)]
            limit_mb = min((limit for limit in limits if limit is not None), default=None)
            count = sum(_count(Path(directory) / version.events) for directory in groups)
            return Kills(f"memory cgroup {inside}", count, limit_mb, _megabytes(inside / version.peak))
    if not (root / "proc/vmstat").is_file():
        return None
    return Kills("machine", _count(root / "proc/vmstat"), None, None)


def _own_groups(root: Path) -> Iterator[tuple[_Version, Path]]:
    """This process's cgroups that can limit memory."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield _SECOND, root / _SECOND.mount / path.strip("/")
        elif "memory" in controllers.split(","):
            yield _FIRST, root / _FIRST.mount / path.strip("/")


def _outwards(version: _Version, group: Path, root: Path) -> Iterator[Path]:
    """A cgroup and those around it.

    Inside a container the path is the host's and isn't there; then the mount point is the container's own.
    """
    base = root / version.mount
    while group != base:
        yield group
        group = group.parent
    yield base


def _megabytes(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) >> 20 if text.isdecimal() and int(text) >> 20 < _UNLIMITED_MB else None


def _count(file: Path) -> int:
    """The line `oom_kill <number>`."""
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return 0


def _text(path: Path) -> str:
    """Empty where there is no such file, where it isn't for everyone, and where the cgroup has just been removed."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
