"""Encoder presets, read from resources/encoders.yaml."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.ground.repository import RESOURCES

PRESETS_FILE = RESOURCES / "encoders.yaml"


@dataclass(frozen=True)
class EncoderSettings:
    """Everything that decides the bytes of a video, given its frames.

    ffmpeg_sha256 : digest of the binary that has to run; a stage refuses another.
    """

    codec: str
    pixel_format: str
    crf: int
    arguments: tuple[str, ...]
    ffmpeg_sha256: str

    def as_json(self) -> dict[str, Any]:
        """The settings as they enter keys and jobs."""
        return {**asdict(self), "arguments": list(self.arguments)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> EncoderSettings:
        return cls(**{**document, "arguments": tuple(document["arguments"])})


@cache
def _document(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(file.read_text(), yaml.CSafeLoader)
    return document


def encoder_settings(preset: str, machine: str, crf: int | None = None) -> EncoderSettings:
    """The settings of a preset, with another `crf` where one is given, for nodes of the architecture `machine`."""
    document = _document(PRESETS_FILE)
    if preset not in document["presets"]:
        raise BadInput(
            "no encoder preset has this name",
            key="encoder.preset",
            value=preset,
            remedy=nearest(preset, document["presets"]),
        )
    chosen = document["presets"][preset]
    settings = EncoderSettings(
        codec=chosen["codec"],
        pixel_format=chosen["pixel_format"],
        crf=chosen["crf"],
        arguments=tuple(part for pair in chosen["arguments"] for part in pair),
        ffmpeg_sha256=document["ffmpeg"]["sha256"][machine],
    )
    return settings if crf is None else replace(settings, crf=crf)
