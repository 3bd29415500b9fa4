"""Snakemake's configuration: the experiment, and beside it what a profile says of this site."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetcraft.experiment.load import parse, place_of, validate
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput, FleetcraftError

PLAN_VARIABLE = "FLEETCRAFT_PLAN"
"""Tells the jobs of a campaign which plan they are of."""


@dataclass(frozen=True)
class Runtime:
    """What a profile's `config:` may add to an experiment. None of it decides pixels or scores.

    toolchains : name of a tool chain → its Python, where it isn't the one that `make` built.
    """

    toolchains: dict[str, str] = field(default_factory=dict)


def plan_of(config: Mapping[str, Any], files: Sequence[Path | str] = ()) -> tuple[Plan, Runtime]:
    """The plan and the site's settings in Snakemake's `config`, which was read from `files`."""
    document = dict(config)
    toolchains = document.pop("toolchains", {})
    if not isinstance(toolchains, dict) or not all(isinstance(path, str) for path in toolchains.values()):
        raise BadInput(
            "this must map names of tool chains to the paths of Pythons",
            key="toolchains",
            value=toolchains,
            remedy="Correct it in the profile, as profiles/README.md shows",
        )
    return _plan(document, files), Runtime(toolchains)


def plan_of_file(file: Path | str, *, without_weights: bool = False) -> Plan:
    """The plan of one experiment file; `without_weights`, to look at and not to run."""
    return _plan(parse(Path(file)), [file], without_weights=without_weights)


def hold_to_campaign(plan: Plan) -> None:
    """Let the first process of a campaign say its plan, and the others, which plan anew, come to the same.

    What a campaign is planned from can change while it runs: a file of prompts, a checkpoint, existing videos.

    Raises
    ------
    BadInput : it has changed.
    """
    if os.environ.setdefault(PLAN_VARIABLE, plan.digest) != plan.digest:
        raise BadInput(
            "what this campaign was planned from has changed since it started: the file of prompts, a checkpoint, or"
            " existing videos",
            remedy="Start Snakemake again: it makes what the new plan lacks and keeps what it shares with the old one",
        )


def _plan(document: Any, files: Sequence[Path | str], *, without_weights: bool = False) -> Plan:
    try:
        return Plan(validate(document, files), without_weights=without_weights)
    except FleetcraftError as error:
        place = place_of(files, error.key) if error.file is None and error.key else None
        if place is None:
            raise
        raise error.located(place) from None
