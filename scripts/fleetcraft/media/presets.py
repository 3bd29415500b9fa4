"""Encoder presets, read from resources/encoders.yaml."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.ground.repository import RESOURCES

PRESETS_FILE = RESOURCES / "encoders.yaml"


_PLAYED = {"libx264": "h264", "libx264rgb": "h264"}
"""ffmpeg's encoders by the codec that they write."""
_PLANAR = {"rgb24": "gbrp"}
"""What becomes of pixel formats that no codec stores as they are given."""


@dataclass(frozen=True)
class EncoderSettings:
    """Everything that decides the bytes of a video, given its frames.

    crf : x264's constant rate factor, from whichever knob the preset has.
    ffmpeg_sha256 : digest of the binary that has to run; a stage refuses another.
    """

    codec: str
    pixel_format: str
    crf: int
    arguments: tuple[str, ...]
    ffmpeg_sha256: str

    @property
    def stream(self) -> str | None:
        """Codec and pixel format as a player finds them; None of an encoder that isn't known here."""
        codec = _PLAYED.get(self.codec)
        return codec and f"{codec} {_PLANAR.get(self.pixel_format, self.pixel_format)}"

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


def encoder_settings(
    preset: str, machine: str, crf: int | None = None, quality: float | None = None, *, key: str = "encoder"
) -> EncoderSettings:
    """The settings of a preset for nodes of the architecture `machine`; `crf` or `quality` in place of the preset's.

    Raises
    ------
    BadInput : there is no such preset, or it has another knob than the one that was given; at `key` and below.
    """
    document = _document(PRESETS_FILE)
    if preset not in document["presets"]:
        raise BadInput(
            "no encoder preset has this name",
            key=f"{key}.preset",
            value=preset,
            remedy=nearest(preset, document["presets"]),
        )
    chosen = document["presets"][preset]
    knob = next(name for name in ("crf", "quality", "lossless") if name in chosen)
    for name, value in (("crf", crf), ("quality", quality)):
        if value is not None and name != knob:
            raise BadInput(
                f"the encoder preset {preset!r} has no `{name}`: "
                + ("it loses nothing" if knob == "lossless" else f"its knob is `{knob}`"),
                key=f"{key}.{name}",
                value=value,
                remedy="Leave this out" if knob == "lossless" else f"Give `{knob}`, or choose another preset",
            )
    if knob == "crf":
        factor = chosen["crf"] if crf is None else crf
    elif knob == "quality":
        factor = imageio_crf(chosen["quality"] if quality is None else quality)
    else:
        factor = 0
    return EncoderSettings(
        codec=chosen["codec"],
        pixel_format=chosen["pixel_format"],
        crf=factor,
        arguments=tuple(part for pair in chosen["arguments"] for part in pair),
        ffmpeg_sha256=document["ffmpeg"]["sha256"][machine],
    )


def imageio_crf(quality: float) -> int:
    """The constant rate factor that imageio gives to libx264 for a `quality` from 1 to 10."""
    return int((1 - quality / 10.0) * 51)
