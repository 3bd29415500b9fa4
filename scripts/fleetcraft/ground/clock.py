"""Time, handed in: what waits or measures takes a `Clock`, so that tests need no sleeping.

Decisions are taken on the monotonic clock only. Wall-clock time is for people to read: clocks differ between nodes, and
jump.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the operations wing asks of time; all values in seconds."""

    def monotonic(self) -> float:
        """Seconds since this machine's boot, alike in all of its processes, never going back."""

    def wall(self) -> float:
        """Seconds since 1970, for people and logs."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC, shared by all processes of a machine."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        time.sleep(seconds)
