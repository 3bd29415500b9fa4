"""From YAML to a validated experiment, with errors that name file, line, key, value and remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from fleetcraft.experiment.models import Experiment, split_location
from fleetcraft.ground.errors import BadInput, nearest

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def validate(document: Any, files: Sequence[Path | str]) -> Experiment:
    """The experiment in an already merged configuration; `files` are those that it was read from, the last one winning.

    Raises
    ------
    BadInput : for the first problem, with the place of its key.
    """
    trees = [(Path(file), _compose(Path(file))) for file in files]
    for file, tree in trees:
        _refuse_repeated_keys(file, tree)
    try:
        if not isinstance(document, Mapping):
            raise BadInput("this is no experiment: a mapping of keys was expected", remedy="See config/README.md")
        experiment = Experiment.model_validate(_expanded(document, ()))
        _check_roots(experiment)
    except ValidationError as error:
        raise _explained(error, trees) from None
    except BadInput as error:
        place = _place(trees, tuple(error.key.split(".")) if error.key else ())
        raise error if place is None else error.located(place) from None
    return experiment


def parse(file: Path) -> Any:
    """The document in a YAML file."""
    _compose(file)
    return yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)


def place_of(files: Sequence[Path | str], key: str) -> str | None:
    """file:line of a key, as far as the files have it."""
    return _place([(Path(file), _compose(Path(file))) for file in files], tuple(key.split(".")))


def _compose(file: Path) -> yaml.Node | None:
    """The YAML tree of a file, which knows the line of every key."""
    try:
        return yaml.compose(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except FileNotFoundError:
        raise BadInput(
            "there is no such experiment file", file=file, remedy="Check the path; examples are in config/"
        ) from None
    except IsADirectoryError:
        raise BadInput(
            "this is a directory, not an experiment file", file=file, remedy="Name a YAML file in it"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"this is not valid YAML: {problem}", file=where, remedy="Mend the syntax there") from None


def _refuse_repeated_keys(file: Path, node: yaml.Node | None) -> None:
    """YAML's reader keeps the last of two equal keys and drops the first without a word."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise BadInput(
                    f"the key is given twice, first in line {seen[key.value]}",
                    file=f"{file}:{line}",
                    key=str(key.value),
                    remedy="Remove one of the two, or rename it",
                )
            seen[key.value] = line
            _refuse_repeated_keys(file, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(file, item)


_PATH_KEYS = {("paths", "scratch"), ("paths", "work"), ("prompts", "file")}
_SOURCE_KEYS = {"path", "sha256sums"}


def _expanded(value: Any, location: tuple[str, ...]) -> Any:
    """`value` with environment variables expanded in the keys that hold paths, and nowhere else."""
    if isinstance(value, Mapping):
        return {key: _expanded(item, (*location, str(key))) for key, item in value.items()}
    is_path = location in _PATH_KEYS or (location[:1] == ("models",) and location[-1] in _SOURCE_KEYS)
    if not (isinstance(value, str) and is_path):
        return value

    def expand(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in os.environ:
            raise BadInput(
                f"the environment variable {variable} is not set",
                key=".".join(location),
                value=value,
                remedy=f"Set it (export {variable}=…) or write the path out",
            )
        return os.environ[variable]

    return str(Path(_VARIABLE.sub(expand, value)).expanduser())


def _explained(error: ValidationError, trees: Sequence[tuple[Path, yaml.Node | None]]) -> BadInput:
    """The first of pydantic's complaints, in words for the person who wrote the file.

    An unknown key comes first: it is often a misspelt one that is then reported as missing.
    """
    complaints = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    first = complaints[0]
    location = tuple(str(part) for part in first["loc"] if part != "[key]")
    others = (
        f" ({len(complaints) - 1} more problem{'s' * (len(complaints) > 2)} after this one)" if complaints[1:] else ""
    )
    if first["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        return BadInput(
            f"unknown key{others}",
            file=_place(trees, location),
            key=".".join(location),
            value=first["input"],
            remedy=nearest(location[-1], known),
        )
    if first["type"] == "missing":
        return BadInput(
            f"this key is missing{others}",
            file=_place(trees, location[:-1]),
            key=".".join(location),
            remedy="Add it; config/README.md describes every key",
        )
    message = str(first["msg"])
    if first["type"] == "string_pattern_mismatch":
        message = "a name has letters, digits, underscores, dots and hyphens, and begins with a letter or a digit"
    if first["type"] == "value_error":
        own_location, message = split_location(str(first["ctx"]["error"]))
        if own_location is not None:
            return BadInput(
                f"{message}{others}",
                file=_place(trees, tuple(own_location.split("."))),
                key=own_location,
                remedy="Correct this key or the one it refers to",
            )
    return BadInput(
        f"{message[:1].lower()}{message[1:]}{others}",
        file=_place(trees, location),
        key=".".join(location),
        value=first["input"],
        remedy="Correct the value; config/README.md describes every key",
    )


def _known_keys(location: tuple[str, ...]) -> list[str]:
    """The keys that the model at `location` has."""
    annotation: Any = Experiment
    for part in location:
        model = _model_in(annotation)
        if model is not None and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            if get_origin(annotation) is dict:
                annotation = _Named(get_args(annotation)[1])
        elif isinstance(annotation, _Named):
            annotation = annotation.annotation
    model = _model_in(annotation)
    return list(model.model_fields) if model is not None else []


@dataclass(frozen=True)
class _Named:
    """A mapping of names to values: one more part of a location before the keys of the value."""

    annotation: Any


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation speaks of, `Cache | None` included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)


def _place(trees: Sequence[tuple[Path, yaml.Node | None]], location: tuple[str, ...]) -> str | None:
    """file:line of the deepest part of `location` that a file has; the last file wins, as it does in merging."""
    best: tuple[int, str] | None = None
    for file, tree in trees:
        depth, line = _descend(tree, location)
        if best is None or depth >= best[0]:
            best = depth, f"{file}:{line}" if depth else str(file)
    return best[1] if best else None


def _descend(node: yaml.Node | None, location: tuple[str, ...]) -> tuple[int, int]:
    depth, line = 0, 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
        depth += 1
    return depth, line


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
