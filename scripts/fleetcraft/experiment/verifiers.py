"""Verifiers as a plan knows them: looked at as checkpoints are, before anything is asked of a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.experiment.models import Verifier
from fleetcraft.experiment.sources import listed_files
from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError
from fleetcraft.ground.units import BYTES
from fleetcraft.mirror.inspection import inspect_model
from fleetcraft.mirror.reading import read_json
from fleetcraft.scoring.dimensions import Dimension
from fleetcraft.scoring.verifiers import DEFAULT_FRAMES, VERIFIERS


@dataclass(frozen=True)
class KnownVerifier:
    """A verifier whose directory was looked at. files : SHA-256 of each file, by path relative to it."""

    dimension: Dimension
    settings: Verifier
    files: dict[str, str]

    @property
    def key(self) -> dict[str, str | int]:
        """What decides its scores beside the dimension and the digests of its files."""
        return {"type": self.settings.type, "dtype": self.settings.dtype, "frames": self.dimension.frames}


def resolve_verifier(name: str, settings: Verifier, *, without_weights: bool = False) -> KnownVerifier:
    """The verifier `name`, checked as far as that is cheap; `without_weights`, not looked at.

    Raises
    ------
    BadInput, MissingWeights, CorruptWeights : it can't be loaded, or would be with parts missing.
    """
    known = VERIFIERS[settings.type]
    if without_weights:
        return KnownVerifier(known.dimension(name, 1, 0), settings, {})
    directory = Path(settings.path)
    try:
        inspection = inspect_model(directory, known.model, known.processor)
        if inspection.findings:
            raise inspection.findings[0]
        fixed = _fixed_frames(settings.type, directory / "config.json")
    except FleetcraftError as finding:
        raise finding.about(f"scoring.verifiers.{name}.path") from None
    frames = _frames(name, settings, fixed)
    sums = Path(settings.sha256sums) if settings.sha256sums else None
    files = listed_files(inspection, sums, f"scoring.verifiers.{name}.sha256sums")
    size = BYTES[settings.dtype] * sum(tensor.elements for tensor in inspection.parts["model"].tensors.values())
    return KnownVerifier(known.dimension(name, frames, math.ceil(size / 2**20)), settings, files)


def _fixed_frames(kind: str, config: Path) -> int | None:
    """How many frames the model reads by its config; None where it reads as many as it is given."""
    by_config = VERIFIERS[kind].frames
    if by_config is None:
        return None
    try:
        frames = by_config(read_json(config))
    except (AttributeError, TypeError, ValueError):
        frames = 0
    if frames < 1:
        raise CorruptWeights(
            f"this config doesn't say how many frames a {kind} reads", file=config, remedy="Mirror it again"
        )
    return frames


def _frames(name: str, settings: Verifier, fixed: int | None) -> int:
    step, wanted = VERIFIERS[settings.type].step, settings.frames
    if fixed is not None and wanted not in (None, fixed):
        problem, remedy = f"by its config this model reads {fixed} frames, no more and no fewer", "Leave it out"
    elif wanted is not None and wanted % step:
        problem, remedy = f"a {settings.type} reads frames {step} at a time", f"Give a multiple of {step}"
    else:
        return fixed or wanted or DEFAULT_FRAMES
    raise BadInput(problem, key=f"scoring.verifiers.{name}.frames", value=wanted, remedy=remedy)
