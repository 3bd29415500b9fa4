"""Where the repository is that this code runs from, and what lies in it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
RESOURCES = ROOT / "resources"
ENVIRONMENTS = ROOT / "envs"
