"""From a `fleet.yaml` to validated settings, with errors that name file, line, key, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetcraft.fleet.settings import FleetSettings
from fleetcraft.ground.documents import Kind, expand_variables, explained, place, read
from fleetcraft.ground.errors import BadInput

_KIND = Kind(
    FleetSettings, "a fleet file", "profiles/README.md", "Name one with --spool-fleet-file; examples are in profiles/"
)
_SHELL = {("budget", "command"), ("workers", "setup")}
"""Keys whose values the shell expands itself."""


def load_fleet(file: Path) -> FleetSettings:
    """The settings in a file. Environment variables in values are expanded.

    Raises
    ------
    BadInput : for the first problem, with the place of its key.
    """
    document, tree = read(file, _KIND)
    trees = [(file, tree)]
    try:
        if not isinstance(document, Mapping):
            raise BadInput("this is no fleet: a mapping of keys was expected", remedy="See profiles/README.md")
        return FleetSettings.model_validate(_expanded(document, ()))
    except ValidationError as error:
        raise explained(error, trees, _KIND) from None
    except BadInput as error:
        found = place(trees, tuple(error.key.split(".")) if error.key else ()) or file
        raise error.located(found) from None


def _expanded(value: Any, location: tuple[str, ...]) -> Any:
    if location[:2] in _SHELL:
        return value
    if isinstance(value, Mapping):
        return {key: _expanded(item, (*location, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, (*location, str(index))) for index, item in enumerate(value)]
    if isinstance(value, str) and "$" in value:
        return expand_variables(value, ".".join(location))
    return value
