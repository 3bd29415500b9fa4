"""What commands have in common."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.paths import SPOOLS

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan
    from fleetcraft.spool import Spool

SPOOL_VARIABLE = "FLEETCRAFT_SPOOL"
DEMO = Path("config/config.yaml")
"""The experiment of commands that name none, and of Snakemake."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command registers itself; argparse gives this class no public name."""


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """The experiment file, the demo's where none is named."""
    parser.add_argument(
        "experiment",
        nargs="?",
        default=str(DEMO),
        metavar="EXPERIMENT",
        help="experiment file",
    )


def load_plan(chosen: argparse.Namespace, *, without_weights: bool = False) -> Plan:
    """The plan of the named experiment."""
    from fleetcraft.experiment.config import plan_of_file

    return plan_of_file(chosen.experiment, without_weights=without_weights)


def snakemake_command(files: Sequence[Path | str]) -> str:
    """What starts the campaign of the experiment in `files`, but for a profile: that is the user's to choose."""
    named = [Path(os.path.relpath(file)) if Path(file).is_relative_to(Path.cwd()) else Path(file) for file in files]
    return "snakemake" if named == [DEMO] else f"snakemake --configfile {' '.join(map(str, named))}"


def add_spool(parser: argparse.ArgumentParser) -> None:
    """The spool that a command is about."""
    default = os.environ.get(SPOOL_VARIABLE)
    parser.add_argument(
        "--spool",
        type=Path,
        default=Path(default) if default else None,
        metavar="DIR",
        help=f"the spool (default: ${SPOOL_VARIABLE}, or else the one of the campaign in this directory)",
    )


def open_spool(chosen: argparse.Namespace) -> Spool:
    """The named spool, or the only one here."""
    from fleetcraft.spool import Spool

    if chosen.spool is not None:
        return Spool.open(chosen.spool)
    here = sorted(file.parent for file in SPOOLS.glob("*/spool.json"))
    if len(here) == 1:
        return Spool.open(here[0].absolute())
    raise BadInput(
        "no spool was named, and this directory has none"
        if not here
        else f"no spool was named, and this directory has several: {', '.join(map(str, here))}",
        remedy=f"Give --spool DIR or set {SPOOL_VARIABLE}",
    )
