"""Where the repository is that this code runs from, and what lies in it."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT_VARIABLE = "FLEETCRAFT_CHECKOUT"

ROOT = Path(__file__).resolve().parents[3]
CHECKOUT = Path(os.environ.get(CHECKOUT_VARIABLE) or ROOT)
"""What `ROOT` was copied from, where a campaign runs from a frozen copy: it has what was built, the copy doesn't."""

SCRIPTS = ROOT / "scripts"
RESOURCES = ROOT / "resources"
ENVIRONMENTS = ROOT / "envs"
