"""How far reading has come: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from fleetcraft.ground.units import bytes_text

_LINE_EVERY_S = 10.0


class Progress:
    """Counts bytes and files that threads report as done, and shows them on stderr.

    bytes, seconds : what was read, and how long it took.
    """

    def __init__(self, what: str, files: int, total: int):
        self.what, self.files, self.total = what, files, total
        self.bytes, self.done, self.seconds = 0, 0, 0.0
        self._lock = threading.Lock()
        self._bar: Any = None

    def __enter__(self) -> Self:
        self._start = self._said = time.monotonic()
        if self.total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self.what, total=self.total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.monotonic() - self._start
        if self._bar is not None:
            self._bar.stop()
        elif self.total:
            self._say()

    def advance(self, count: int) -> None:
        """`count` bytes more were read."""
        with self._lock:
            self.bytes += count
            if self._bar is not None:
                self._bar.update(self._task, completed=self.bytes)
            elif (now := time.monotonic()) - self._said >= _LINE_EVERY_S:
                self._said = now
                self._say()

    def file_done(self) -> None:
        """One file more was read to its end."""
        with self._lock:
            self.done += 1

    def _say(self) -> None:
        rate = self.bytes / max(time.monotonic() - self._start, 1e-6)
        print(
            f"{self.what}: {self.done} of {self.files} files, {bytes_text(self.bytes)} of {bytes_text(self.total)},"
            f" {bytes_text(rate)}/s",
            file=sys.stderr,
            flush=True,
        )
