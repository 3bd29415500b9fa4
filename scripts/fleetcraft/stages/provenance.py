"""Where and how an artifact was made, as its record tells."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable
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
