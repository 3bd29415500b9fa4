"""How many tasks a worker may claim ahead of the room it has.

A claim waits for a disk or a file server. Where tasks are shorter than that, claiming some ahead lets them start as
soon as there is room, and several claims share one wait. What is claimed ahead is kept from other workers for less
than a second, so it is done for short tasks only.
"""

from __future__ import annotations

_SHORT_S = 0.1
_AHEAD_PER_THREAD = 4
_MOST = 32
_WEIGHT = 0.2


class Pace:
    """Remembers how long tasks took of late."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def ended(self, wall_s: float) -> None:
        """A task took so long."""
        self._mean_s = wall_s if self._mean_s is None else (1 - _WEIGHT) * self._mean_s + _WEIGHT * wall_s

    def ahead(self, threads: int) -> int:
        """How many tasks may be claimed ahead."""
        if self._mean_s is None or self._mean_s >= _SHORT_S:
            return 0
        return min(_AHEAD_PER_THREAD * threads, _MOST)
