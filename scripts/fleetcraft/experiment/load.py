"""From YAML to a validated experiment, with errors that name file, line, key, value and remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetcraft.experiment.models import Experiment
from fleetcraft.ground.documents import Kind, compose, expand_variables, explained, place, read
from fleetcraft.ground.errors import BadInput

_EXPERIMENT = Kind(Experiment, "an experiment file", "config/README.md", "Check the path; examples are in config/")


def validate(document: Any, files: Sequence[Path | str], *, to_run: bool = True) -> Experiment:
    """The experiment in an already merged configuration; `files` are those that it was read from, the last one winning.

    Unless it is `to_run`, its roots need not be there and writable.

    Raises
    ------
    BadInput : for the first problem, with the place of its key.
    """
    trees = [(Path(file), compose(Path(file), _EXPERIMENT)) for file in files]
    try:
        if not isinstance(document, Mapping):
            raise BadInput("this is no experiment: a mapping of keys was expected", remedy="See config/README.md")
        experiment = Experiment.model_validate(_expanded(document, ()))
        if to_run:
            _check_roots(experiment)
    except ValidationError as error:
        raise explained(error, trees, _EXPERIMENT) from None
    except BadInput as error:
        found = place(trees, tuple(error.key.split(".")) if error.key else ())
        raise error if found is None else error.located(found) from None
    return experiment


def parse(file: Path) -> Any:
    """The document in a YAML file."""
    return read(file, _EXPERIMENT)[0]


def place_of(files: Sequence[Path | str], key: str) -> str | None:
    """file:line of a key, as far as the files have it."""
    return place([(Path(file), compose(Path(file), _EXPERIMENT)) for file in files], tuple(key.split(".")))


_PATH_KEYS = {("paths", "scratch"), ("paths", "work"), ("prompts", "file"), ("batch_table",), ("scoring", "weights")}
_SOURCE_KEYS = {"path", "sha256sums", "videos", "index"}


def _expanded(value: Any, location: tuple[str, ...]) -> Any:
    """`value` with environment variables expanded in the keys that hold paths, and nowhere else."""
    if isinstance(value, Mapping):
        return {key: _expanded(item, (*location, str(key))) for key, item in value.items()}
    is_source = location[2:3] == ("source",) or location[:2] == ("scoring", "verifiers")
    is_path = location in _PATH_KEYS or (is_source and location[-1] in _SOURCE_KEYS)
    if not (isinstance(value, str) and is_path):
        return value

    return str(Path(expand_variables(value, ".".join(location))).expanduser())


def _check_roots(experiment: Experiment) -> None:
    """Scratch may be purged whole: work must not be in it, nor the other way round; both must be writable."""
    scratch, work = Path(experiment.paths.scratch).resolve(), Path(experiment.paths.work).resolve()
    if scratch == work or scratch in work.parents or work in scratch.parents:
        raise BadInput(
            "scratch and work must be two directories, neither inside the other: scratch may be purged, work must last",
            key="paths",
            value={"scratch": experiment.paths.scratch, "work": experiment.paths.work},
            remedy="Give each a directory of its own",
        )
    for key, path in (("scratch", scratch), ("work", work)):
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
            raise BadInput(
                f"this can't be written: {existing} is {'read-only for you' if existing.is_dir() else 'a file'}",
                key=f"paths.{key}",
                value=str(getattr(experiment.paths, key)),
                remedy="Choose a directory in which you may write",
            )
