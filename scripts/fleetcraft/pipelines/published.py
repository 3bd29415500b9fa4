"""Published models that can be planned with before their weights are here, read from resources/architectures.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from fleetcraft.ground.repository import RESOURCES

PUBLISHED_FILE = RESOURCES / "architectures.yaml"


@dataclass(frozen=True)
class Published:
    """What is known of a published model without looking at a checkpoint.

    source : the repository on the hub whose configs these are.
    transformer, vae : as much of their configs as decides shapes, FLOPs and memory.
    """

    family: str
    source: str
    transformer: Mapping[str, Any]
    vae: Mapping[str, Any]


@cache
def published_models() -> dict[str, Published]:
    """Name of a checkpoint's directory → the model."""
    document = yaml.load(PUBLISHED_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {name: Published(**entry) for name, entry in document.items()}
