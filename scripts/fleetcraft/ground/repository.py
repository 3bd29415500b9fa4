"""Where the repository is that this code runs from, and what lies in it."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT_VARIABLE = "FLEETCRAFT_CHECKOUT"

ROOT = Path(__file__).resolve().parents[3]
CHECKOUT = Path(os.environ.get(CHECKOUT_VARIABLE) or ROOT)
"""What `ROOT` was copied from, where a campaign runs from a frozen copy: it has what was built, the copy doesn't."""

SOFTWARE_VARIABLE = "FLEETCRAFT_SOFTWARE"
"""DIRECTORY=COPY where this node has a copy of a directory with software on its own disk."""

SCRIPTS = ROOT / "scripts"
RESOURCES = ROOT / "resources"
ENVIRONMENTS = ROOT / "envs"


def node_copy(path: str) -> str:
    """A program's path in the copy that this node has on its own disk, where it has one; else the path itself."""
    original, separator, copy = os.environ.get(SOFTWARE_VARIABLE, "").partition("=")
    if separator and Path(path).is_relative_to(original):
        return str(Path(copy) / Path(path).relative_to(original))
    return path
