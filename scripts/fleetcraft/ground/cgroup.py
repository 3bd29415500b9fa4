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


def memory_mb(root: Path = Path("/")) -> int:
    """The smallest of: the machine's memory, and the limits of this process's cgroup and of those around it."""
    total_kb = 0
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            total_kb = int(line.split()[1])
    return min([total_kb // 1024, *limits_mb(root)])


class KillCounter:
    """Counts the processes that the kernel killed for want of memory in this process's cgroup and in cgroups in it.

    A process is counted where it was, whether the limit that it died of was that cgroup's, another's around it, or the
    machine's. Where to look is found out once. The root of all cgroups counts nothing; then the machine does.
    """

    def __init__(self, root: Path = Path("/")):
        self._root = root
        nowhere: tuple[_Version | None, Path] = (None, root / "proc")
        self._version, self._group = next(_counting(root), nowhere)

    def count(self) -> int:
        """How many there have been; 0 for ever where the kernel says nothing."""
        if self._version is None:
            return _count(self._group / "vmstat")
        if self._version is _SECOND:
            return _count(self._group / _SECOND.events)
        # In the first version each cgroup counts by itself.
        return sum(_count(Path(directory) / _FIRST.events) for directory, _, _ in os.walk(self._group))

    def kills(self) -> Kills | None:
        """The same, with what there is to know of the place; None where the kernel says nothing."""
        if self._version is None:
            return Kills("machine", self.count(), None, None) if (self._group / "vmstat").is_file() else None
        around = _outwards(self._version, self._group, self._root)
        limits = [_megabytes(directory / self._version.limit) for directory in around]
        limit_mb = min((limit for limit in limits if limit is not None), default=None)
        peak_mb = _megabytes(self._group / self._version.peak)
        return Kills(f"memory cgroup {self._group}", self.count(), limit_mb, peak_mb)


def _counting(root: Path) -> Iterator[tuple[_Version, Path]]:
    """Of this process's cgroups those that count."""
    for version, group in _own_groups(root):
        inside = next((directory for directory in _outwards(version, group, root) if directory.is_dir()), None)
        if inside is not None and (inside / version.events).is_file():
            yield version, inside


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
    return next((int(line[9:]) for line in _text(file).splitlines() if line.startswith("oom_kill ")), 0)


def _text(path: Path) -> str:
    """Empty where there is no such file, where it isn't for everyone, and where the cgroup has just been removed."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
