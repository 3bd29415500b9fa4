"""Where and how an artifact was made, as its record tells."""

from __future__ import annotations

import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fleetcraft import __version__
from fleetcraft.ground.toolchain import versions


def provenance(packages: Iterable[str]) -> dict[str, Any]:
    """Host, slot, attempt, software and time. These never enter a key: they don't decide the bytes."""
    return {
        "host": socket.gethostname(),
        "slot": os.environ.get("FLEETCRAFT_SLOT", socket.gethostname()),
        # As a worker names it, task and number; elsewhere there is no telling one attempt from another.
        "attempt": os.environ.get("FLEETCRAFT_ATTEMPT", "1"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"fleetcraft": __version__, "python": platform.python_version(), **versions(packages)},
    }


class Stopwatch:
    """Seconds by phase, on the monotonic clock. Bulk figures: they say where time went, not what a latency is."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - start, 6)


def peaks() -> dict[str, float | None]:
    """Peak memory of this process so far, in MiB; the device's is None where there is none."""
    # Asked of torch only where the stage has loaded it: importing it for a figure would cost more than most stages.
    torch = sys.modules.get("torch")
    uses_device = torch is not None and torch.cuda.is_available()
    device = round(torch.cuda.max_memory_allocated() / 2**20, 1) if torch is not None and uses_device else None
    return {"host_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1), "device_mb": device}
