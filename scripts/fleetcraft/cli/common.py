"""What commands have in common."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command registers itself; argparse gives this class no public name."""


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """The experiment file, the demo's where none is named."""
    parser.add_argument(
        "experiment",
        nargs="?",
        default="config/config.yaml",
        metavar="EXPERIMENT",
        help="experiment file (default: %(default)s)",
    )


def load_plan(chosen: argparse.Namespace) -> Plan:
    """The plan of the named experiment."""
    from fleetcraft.experiment.config import plan_of_file

    return plan_of_file(chosen.experiment)


def bytes_text(count: float) -> str:
    """A number of bytes for people: 1.4 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
