"""Snakemake's configuration: the experiment, and beside it what a profile says of this site."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from fleetcraft.experiment.load import parse, place_of, validate
from fleetcraft.experiment.models import Experiment
from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.projection import projection_of
from fleetcraft.ground.documents import Model
from fleetcraft.ground.errors import BadInput, FleetcraftError

PLAN_VARIABLE = "FLEETCRAFT_PLAN"
"""Tells the jobs of a campaign which plan they are of."""


@dataclass(frozen=True)
class Runtime:
    """What a profile's `config:` may add to an experiment. None of it decides pixels or scores.

    toolchains : name of a tool chain → its Python, where it isn't the one that `make` built.
    projection : what a fleet is to be used for at least; None asks nothing.
    """

    toolchains: dict[str, str] = field(default_factory=dict)
    projection: ProjectionLimit | None = None

    def refuse_idle_fleet(self, plan: Plan) -> None:
        """Refuse a campaign that would leave too much of its fleet idle.

        Raises
        ------
        BadInput : it would, or it can't be told because an arm isn't calibrated.
        """
        if self.projection is None:
            return
        limit = self.projection
        seen = projection_of(plan, limit.devices, limit.host_lanes or 4 * limit.devices)
        if seen.busy_fraction < limit.refuse_below:
            raise BadInput(
                f"{seen.busy_fraction:.0%} of {seen.device_hours:.1f} device hours would be busy,"
                f" the profile asks for {limit.refuse_below:.0%}",
                key="projection.refuse_below",
                remedy="Take fewer devices, smaller shards or more videos; `fleetcraft project` shows the cycle",
            )


class ProjectionLimit(Model):
    """`projection:` in a profile's `config:`."""

    devices: int = Field(ge=1, description="GPUs of the fleet, or its nodes where it has none")
    host_lanes: int | None = Field(None, ge=1, description="Jobs that encode or score at a time; four a device")
    refuse_below: float = Field(ge=0, le=1, description="Share of the device hours that has to be busy")


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
    projection = document.pop("projection", None)
    try:
        limit = None if projection is None else ProjectionLimit.model_validate(projection, strict=False)
    except ValidationError as error:
        raise BadInput(
            f"this can't be used: {error.errors()[0]['msg']}",
            key=".".join(["projection", *map(str, error.errors()[0]["loc"])]),
            value=projection,
            remedy="Correct it in the profile, as profiles/README.md shows",
        ) from None
    return _plan(document, files), Runtime(toolchains, limit)


def plan_of_file(file: Path | str, *, without_weights: bool = False) -> Plan:
    """The plan of one experiment file; `without_weights`, to look at and not to run."""
    return _plan(parse(Path(file)), [file], without_weights=without_weights)


def experiment_of_file(file: Path | str) -> Experiment:
    """The experiment in a file, only to read what there is of it: nothing that it names has to be there."""
    return validate(parse(Path(file)), [file], to_run=False)


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


@contextmanager
def located_in(files: Sequence[Path | str]) -> Iterator[None]:
    """Errors that name a key of the experiment name the place that has it, too, in the files that it was read from."""
    try:
        yield
    except FleetcraftError as error:
        raise located(error, files) from None


def located(error: FleetcraftError, files: Sequence[Path | str]) -> FleetcraftError:
    """The same error with the place in `files` of the key of the experiment that it names, if it names one.

    What is wrong with a file that the key names stays said of that file.
    """
    place = place_of(files, error.key) if error.key else None
    if place is None:
        return error
    return error.located(place) if error.file is None else error.named_in(place)


def _plan(document: Any, files: Sequence[Path | str], *, without_weights: bool = False) -> Plan:
    experiment = validate(document, files)
    with located_in(files):
        return Plan(experiment, without_weights=without_weights)
