"""What a scorer's module offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from fleetcraft.ground.errors import FleetcraftError


@dataclass(frozen=True)
class Pair:
    """A video to score, its prompt, and the baseline's video for dimensions that compare."""

    prompt: str
    video: Path
    baseline: Path | None

    @property
    def paired(self) -> Path:
        """The baseline's video, for a dimension that compares with it."""
        assert self.baseline is not None
        return self.baseline


Score: TypeAlias = float | FleetcraftError | None
"""A video's value; what kept it from having one, which keeps no other from it; or None, where there is none to have."""


class Scorer(Protocol):
    """The module of a scorer."""

    @staticmethod
    def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any]) -> Sequence[Score]:
        """One a pair, in their order; none depends on the others."""
        ...
