"""VBench's sixteen dimensions: how results of videos become a score, and scores quality, semantic and total.

Everything in numbers is in resources/vbench.yaml, with its source. VBench's own code isn't needed, nor looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml

from fleetcraft.ground.errors import BadResult, nearest
from fleetcraft.ground.repository import RESOURCES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VBENCH_FILE = RESOURCES / "vbench.yaml"

Number = TypeVar("Number", float, "npt.NDArray[np.float64]")
"""A score, or many resampled ones."""


@dataclass(frozen=True)
class VBenchDimension:
    """One of the sixteen; resources/vbench.yaml says what each of these is."""

    name: str
    label: str
    prompts: int
    minimum: float
    maximum: float
    videos: int = 5
    filtered_by: str | None = None
    per_video: Literal["fraction", "percentage", "yes_or_no"] = "fraction"
    weighed_by: Literal["videos", "frames", "steps"] = "videos"
    skips: bool = False

    def weight(self, frames: int) -> int:
        """How much a video of so many frames counts in the mean."""
        return {"videos": 1, "frames": frames, "steps": frames - 1}[self.weighed_by]

    def aggregate(self, results: Iterable[tuple[float, int]]) -> float:
        """The score, from what upstream gives for each video, and the video's number of frames."""
        weighed = [(result, self.weight(frames)) for result, frames in results]
        return self.fraction(math.fsum(result * weight for result, weight in weighed) / sum(w for _, w in weighed))

    def fraction(self, result: Number) -> Number:
        """A result, or a mean of them, as scores are: percentages as fractions, everything else as it is."""
        return result / 100 if self.per_video == "percentage" else result

    def normalised(self, score: Number) -> Number:
        """Not clipped: a score outside of the range stays outside of 0 to 1."""
        return (score - self.minimum) / (self.maximum - self.minimum)

    def official(self, result: float) -> float | bool:
        """What upstream writes for a video, of what a record has."""
        return bool(result) if self.per_video == "yes_or_no" else result


_READ: dict[str, Any] = yaml.load(VBENCH_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)

VBENCH = {name: VBenchDimension(name, **entry) for name, entry in _READ["dimensions"].items()}
"""Name → dimension, in the order of upstream's table."""

COMPOSITES: dict[str, dict[str, float]] = _READ["composites"]
"""Quality, semantic and total → what each is the weighted mean of."""


def dimensions_of(composite: str) -> list[str]:
    """Those that a composite is made of, in upstream's order."""
    parts = [name for part in COMPOSITES[composite] for name in COMPOSITES.get(part, [part])]
    return [name for name in VBENCH if name in parts]


def missing(composite: str, known: Iterable[str]) -> list[str]:
    """The dimensions that a composite can't do without and that aren't among the known, in upstream's order."""
    there = set(known)
    return [name for name in dimensions_of(composite) if name not in there]


def combined(composite: str, normalised: Mapping[str, Number]) -> Number:
    """Quality, semantic or total, of the normalised scores of dimensions.

    Raises
    ------
    BadResult : a dimension is missing, which upstream would count as 0; or there is a score that isn't VBench's, such
        as one that a proxy gave in a dimension's place.
    """
    for name in normalised:
        if name not in VBENCH:
            raise BadResult(
                f"{name!r} is no dimension of VBench: nothing else enters its {composite}, a proxy least of all",
                remedy=nearest(name, VBENCH),
            )
    lacking = missing(composite, normalised)
    if lacking:
        raise BadResult(
            f"there is no VBench {composite} without {', '.join(lacking)}",
            remedy="Score these dimensions too, or report the dimensions one by one",
        )
    parts = COMPOSITES[composite]
    values = {part: combined(part, normalised) if part in COMPOSITES else normalised[part] for part in parts}
    return reduce(add, (weight * values[part] for part, weight in parts.items())) / sum(parts.values())
