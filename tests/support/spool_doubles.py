"""What stands in for time, file systems and batch systems in the tests of the operations wing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fleetcraft.spool import Filesystem, Lease, Liveness, Verdict


class HandClock:
    """A clock that moves when it is told to; the wall clock can be set apart, as clocks of nodes are."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_offset_s = 1.7e9

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return self.now_s + self.wall_offset_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class UnreliableFilesystem(Filesystem):
    """A shared file system on a bad day.

    `lies` renames (and links) are carried out and answered "no such file" ("exists"), as after a retransmission.
    `lagging` listings show the state of the listing before.
    """

    def __init__(self) -> None:
        self.lies = 0
        self.lagging = 0
        self._listings: dict[Path, list[str]] = {}

    def rename(self, source: Path, destination: Path) -> None:
        super().rename(source, destination)
        if self.lies:
            self.lies -= 1
            raise FileNotFoundError(2, "no such file (retransmitted)", str(source))

    def link(self, source: Path, destination: Path) -> None:
        super().link(source, destination)
        if self.lies:
            self.lies -= 1
            raise FileExistsError(17, "exists (retransmitted)", str(destination))

    def list(self, directory: Path) -> list[str]:
        names = sorted(super().list(directory))
        if self.lagging and directory in self._listings:
            self.lagging -= 1
            return list(self._listings[directory])
        self._listings[directory] = list(names)
        return names


class CountingFilesystem(Filesystem):
    """Counts system calls by name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def before(self, call: str, path: Path) -> None:
        self.calls[call] += 1


class Crash(BaseException):
    """The process dies here: nothing that it would have done afterwards happens."""


class CrashingFilesystem(Filesystem):
    """Dies before the n-th system call; from then on, every call dies, so that no clean-up code can do anything.

    With `torn`, a write that it dies at is carried out by half.
    """

    def __init__(self, crash_at: int | None = None, *, torn: bool = False) -> None:
        self.crash_at, self.torn = crash_at, torn
        self.made = 0

    def before(self, call: str, path: Path) -> None:
        self.made += 1
        if self.crash_at is not None and self.made >= self.crash_at and not (self.torn and call == "write"):
            raise Crash(f"{call} {path}")

    def write(self, descriptor: int, data: bytes) -> None:
        if self.crash_at is not None and self.made >= self.crash_at:
            super().write(descriptor, data[: len(data) // 2])
            raise Crash("torn write")
        super().write(descriptor, data)


class Verdicts:
    """An oracle that says what it was told, and UNKNOWN of anybody else."""

    def __init__(self, verdicts: dict[str, Liveness] | None = None):
        self.verdicts = verdicts or {}
        self.asked: list[str] = []

    def __call__(self, worker: str, lease: Lease | None) -> Liveness:
        self.asked.append(worker)
        return self.verdicts.get(worker, Liveness(Verdict.UNKNOWN))

    def gone(self, worker: str, cause: str) -> None:
        self.verdicts[worker] = Liveness(Verdict.GONE, cause)
