"""Verifiers as a plan knows them: looked at as checkpoints are, before anything is asked of a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.experiment.models import Verifier
from fleetcraft.experiment.sources import listed_files
from fleetcraft.ground.errors import CorruptWeights, FleetcraftError
from fleetcraft.mirror.inspection import inspect_model
from fleetcraft.mirror.reading import read_json
from fleetcraft.scoring.dimensions import Dimension
from fleetcraft.scoring.verifiers import VERIFIERS


@dataclass(frozen=True)
class KnownVerifier:
    """A verifier whose directory was looked at. files : SHA-256 of each file, by path relative to it."""

    dimension: Dimension
    settings: Verifier
    files: dict[str, str]

    @property
    def key(self) -> dict[str, str]:
        """What decides its scores beside the dimension and the digests of its files."""
        return {"type": self.settings.type, "dtype": self.settings.dtype}


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
        frames = _frames(settings.type, directory / "config.json")
    except FleetcraftError as finding:
        raise finding.about(f"scoring.verifiers.{name}.path") from None
    sums = Path(settings.sha256sums) if settings.sha256sums else None
    files = listed_files(inspection, sums, f"scoring.verifiers.{name}.sha256sums")
    size = sum(tensor.end - tensor.start for tensor in inspection.parts["model"].tensors.values())
    return KnownVerifier(known.dimension(name, frames, math.ceil(size / 2**20)), settings, files)


def _frames(kind: str, config: Path) -> int:
    try:
        frames = VERIFIERS[kind].frames(read_json(config))
    except (AttributeError, TypeError, ValueError):
        frames = 0
    if frames < 1:
        raise CorruptWeights(
            f"this config doesn't say how many frames a {kind} reads", file=config, remedy="Mirror it again"
        )
    return frames
