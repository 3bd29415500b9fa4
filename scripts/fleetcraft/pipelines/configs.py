"""Configs of transformers and VAEs as far as plans need them, read from resources/architectures.yaml.

A checkpoint has its own; published models can be planned with before a checkpoint is here, and tiny ones before they
are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import yaml

from fleetcraft.ground.repository import RESOURCES

Config: TypeAlias = Mapping[str, Any]

ARCHITECTURES_FILE = RESOURCES / "architectures.yaml"


@dataclass(frozen=True)
class Architecture:
    """What is known of a model without loading it.

    transformer, vae : their configs, where diffusers' defaults stand for keys that a config.json lacks.
    parameters : trained numbers of `text_encoder` (of all of them, where there are two) and `vae`.
    """

    family: str
    transformer: Config
    vae: Config
    parameters: Mapping[str, int]


def with_defaults(family: str, part: Literal["transformer", "vae"], config: Config) -> Config:
    """A config with the defaults that diffusers has for the keys it lacks."""
    return {**_document()["defaults"][family][part], **config}


def tiny(family: str) -> Architecture:
    """The family's tiny model, as its builder makes it."""
    return _architecture(family, _document()["tiny"][family])


def published() -> dict[str, Architecture]:
    """Name of a checkpoint's directory → the published model."""
    return {name: _architecture(entry["family"], entry) for name, entry in _document()["published"].items()}


def _architecture(family: str, entry: Mapping[str, Any]) -> Architecture:
    return Architecture(
        family,
        with_defaults(family, "transformer", entry["transformer"]),
        with_defaults(family, "vae", entry["vae"]),
        entry["parameters"],
    )


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(ARCHITECTURES_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return document
