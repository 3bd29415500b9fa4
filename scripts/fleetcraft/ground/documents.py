"""Documents that people write: YAML files that are checked against pydantic models, with errors that say where.

Whoever has models hands them in with what their file is called; what goes wrong is told as file, line, key, value and
remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Tag, ValidationError
from yaml.constructor import SafeConstructor

from fleetcraft.ground.errors import BadInput, nearest

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_NO_MAPPING = {"model_type", "model_attributes_type", "dict_type"}
"""Pydantic's complaints of what isn't a mapping."""

Tree: TypeAlias = "tuple[Path, yaml.Node | None]"
"""A file and its YAML nodes, which know the lines of their keys."""


class Model(BaseModel):
    """Strict about unknown keys and about types: a typo must never become a default."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@dataclass(frozen=True)
class Kind:
    """What a document is to be.

    Parameters
    ----------
    model : what it is checked against.
    title : what it is called in messages, with its article: "an experiment file".
    manual : the file in the repository that describes its keys.
    examples : where to look when it isn't there, a sentence without a full stop.
    """

    model: type[BaseModel]
    title: str
    manual: str
    examples: str


def compose(file: Path, kind: Kind) -> yaml.Node | None:
    """The YAML tree of a file, which knows the line of every key.

    Raises
    ------
    BadInput : it isn't there, is no YAML, or has what no document can mean (`_refuse_meaningless`).
    """
    try:
        tree: yaml.Node | None = yaml.compose(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except FileNotFoundError:
        raise BadInput(f"there is no such file; {kind.title} was expected", file=file, remedy=kind.examples) from None
    except IsADirectoryError:
        raise BadInput(f"this is a directory, not {kind.title}", file=file, remedy="Name a YAML file in it") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"this is not valid YAML: {problem}", file=where, remedy="Mend the syntax there") from None
    _refuse_meaningless(file, tree, ())
    return tree


def read(file: Path, kind: Kind) -> tuple[Any, yaml.Node | None]:
    """The document in a file, and its tree. Raises as `compose` does."""
    tree = compose(file, kind)
    return yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader), tree


def _refuse_meaningless(file: Path, node: yaml.Node | None, around: tuple[yaml.Node, ...]) -> None:
    """What is YAML and can't be meant: a key that is given twice, of which its reader drops the first without a word;
    a key that is no word; an alias of what it is part of; what looks like a date or number and is none. `around` are
    the nodes that this one is in.
    """
    if node is None:
        return
    where = f"{file}:{node.start_mark.line + 1}"
    if any(node is outer for outer in around):
        raise BadInput("this alias stands for what it is a part of", file=where, remedy="Write out what is meant")
    if isinstance(node, yaml.MappingNode):
        _refuse_repeated_keys(file, node)
        for _, value in node.value:
            _refuse_meaningless(file, value, (*around, node))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_meaningless(file, item, (*around, node))
    else:
        try:
            SafeConstructor().construct_object(node)
        except (ValueError, yaml.YAMLError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise BadInput(
                f"this value can't be read: {problem}",
                file=where,
                value=node.value[:80],
                remedy="Correct it; what is text goes in quotes",
            ) from None


def _refuse_repeated_keys(file: Path, node: yaml.MappingNode) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise BadInput("a key has to be a word", file=f"{file}:{line}", remedy="Put it in quotes, or mend it")
        if key.value in seen:
            raise BadInput(
                f"the key is given twice, first in line {seen[key.value]}",
                file=f"{file}:{line}",
                key=str(key.value),
                remedy="Remove one of the two, or rename it",
            )
        seen[key.value] = line


def expand_variables(text: str, key: str) -> str:
    """`text` with environment variables expanded.

    Raises
    ------
    BadInput : one isn't set.
    """

    def expand(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in os.environ:
            raise BadInput(
                f"the environment variable {variable} is not set",
                key=key,
                value=text,
                remedy=f"Set it (export {variable}=…) or write its value out",
            )
        return os.environ[variable]

    return _VARIABLE.sub(expand, text)


def split_location(message: str) -> tuple[str | None, str]:
    """Take the key off a message that opens with `@key: `, as validators write it that look at several keys."""
    match = re.match(r"@(\S+): (.*)", message, re.DOTALL)
    return (match[1], match[2]) if match else (None, message)


def explained(error: ValidationError, trees: Sequence[Tree], kind: Kind) -> BadInput:
    """The first of pydantic's complaints, in words for the person who wrote the file.

    An unknown key comes first: it is often a misspelt one that is then reported as missing.
    """
    # A default that follows from another key is no problem of its own.
    real = [one for one in error.errors(include_url=False) if one["type"] != "default_factory_not_called"]
    complaints = sorted(real, key=lambda one: one["type"] != "extra_forbidden")
    first = complaints[0]
    raw = tuple(str(part) for part in first["loc"] if part != "[key]")
    location, annotation = _resolved(kind.model, raw)
    others = (
        f" ({len(complaints) - 1} more problem{'s' * (len(complaints) > 2)} after this one)" if complaints[1:] else ""
    )
    if first["type"] == "extra_forbidden":
        return BadInput(
            f"unknown key{others}",
            file=place(trees, location),
            key=".".join(location),
            value=first["input"],
            remedy=nearest(location[-1], _keys(_resolved(kind.model, raw[:-1])[1])),
        )
    if first["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        location = (*location, first["ctx"]["discriminator"].strip("'"))
        if first["type"] == "union_tag_invalid":
            known = re.findall(r"'([^']+)'", first["ctx"]["expected_tags"])
            return BadInput(
                f"this is none that is known{others}",
                file=place(trees, location),
                key=".".join(location),
                value=first["ctx"]["tag"],
                remedy=nearest(first["ctx"]["tag"], known),
            )
        first = {**first, "type": "missing"}
    if first["type"] == "missing":
        return BadInput(
            f"this key is missing{others}",
            file=place(trees, location[:-1]),
            key=".".join(location),
            remedy=f"Add it; {kind.manual} describes every key",
        )
    message = str(first["msg"])
    if first["type"] in _NO_MAPPING:
        # Pydantic names a class, which nobody can write into a file.
        keys = _keys(annotation)
        shape = f", with the key{'s' * (len(keys) > 1)} {', '.join(keys)}," if keys else " of names"
        message = f"a mapping{shape} was expected"
    if first["type"] == "string_pattern_mismatch":
        message = "a name has letters, digits, underscores, dots and hyphens, and begins with a letter or a digit"
    if first["type"] == "value_error":
        own_location, message = split_location(str(first["ctx"]["error"]))
        if own_location is not None:
            inside = (*location, *own_location.split("."))
            return BadInput(
                f"{message}{others}",
                file=place(trees, inside),
                key=".".join(inside),
                remedy="Correct this key or the one it refers to",
            )
    return BadInput(
        f"{message[:1].lower()}{message[1:]}{others}",
        file=place(trees, location),
        key=".".join(location),
        value=first["input"],
        remedy=f"Correct the value; {kind.manual} describes every key",
    )


def _resolved(root: type[BaseModel], location: tuple[str, ...]) -> tuple[tuple[str, ...], Any]:
    """The keys of `location` as the file has them, and the annotation of what is there.

    Where a value may be one of several models, pydantic's location has one more part: the tag of the one it took.
    """
    annotation: Any = root
    keys: list[str] = []
    for part in location:
        members = _tagged(annotation)
        if part in members:
            annotation = members[part]
            continue
        keys.append(part)
        model = _model_in(annotation)
        if model is not None and part in model.model_fields:
            field = model.model_fields[part]
            annotation = Annotated[field.annotation, field]
        else:
            annotation = _value_of(annotation)
    return tuple(keys), annotation


def _keys(annotation: Any) -> list[str]:
    """The keys that the model there knows; where it may be one of several, those that all of them know."""
    models = [_model_in(one) for one in _tagged(annotation).values() or [annotation]]
    first, *others = [[] if model is None else list(model.model_fields) for model in models]
    return [key for key in first if all(key in keys for keys in others)]


def _tagged(annotation: Any) -> dict[str, Any]:
    """Tag → model, of a union whose members are told apart by a key or by a function."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        for mark in marks:
            name = getattr(mark, "discriminator", mark)
            if isinstance(name, str):
                return {
                    str(tag): member
                    for member in _members(inner)
                    if isinstance(member, type) and issubclass(member, BaseModel)
                    for tag in get_args(member.model_fields[name].annotation)
                }
            if callable(name):
                return {
                    mark.tag: member
                    for member in _members(inner)
                    if get_origin(member) is Annotated
                    for mark in get_args(member)[1:]
                    if isinstance(mark, Tag)
                }
        return _tagged(inner)
    return next((found for member in _members(annotation) if (found := _tagged(member))), {})


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else ()


def _value_of(annotation: Any) -> Any:
    """What a mapping of names, or a list, holds."""
    if get_origin(annotation) in {dict, list, tuple}:
        return get_args(annotation)[-1]
    return next((found for argument in get_args(annotation) if (found := _value_of(argument))), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation speaks of, `Cache | None` included, but not one inside a mapping or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {dict, list, tuple}:
        return None
    return next((model for argument in get_args(annotation) if (model := _model_in(argument))), None)


def place(trees: Sequence[Tree], location: tuple[str, ...]) -> str | None:
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
