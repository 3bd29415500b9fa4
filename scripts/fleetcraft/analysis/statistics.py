"""Means and their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap

RESAMPLES = 10_000
CONFIDENCE = 0.95

_DRAWN_AT_ONCE = 1_000_000
"""Draws that are held together. All resamples of a large campaign's prompts would take gigabytes."""


@dataclass(frozen=True)
class Mean:
    """A mean and its interval; the interval is None where there is a single prompt."""

    value: float
    low: float | None
    high: float | None


def mean_over_prompts(values: Mapping[str, Sequence[float]]) -> Mean:
    """Mean of values grouped by prompt, with a percentile bootstrap interval that resamples prompts.

    Seeds of one prompt resemble each other: resampling single videos would make the interval too narrow. The generator
    is seeded, so the same records give the same interval.
    """
    by_prompt = np.array([np.mean(group) for group in values.values()])
    value = float(np.mean(by_prompt))
    if len(by_prompt) < 2:
        return Mean(value, None, None)
    interval = bootstrap(
        (by_prompt,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=_at_once(len(by_prompt)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Mean(value, float(interval.low), float(interval.high))


def resampled(count: int, generator: np.random.Generator) -> Iterator[tuple[slice, npt.NDArray[np.int64]]]:
    """Which of `count` things each resample of a bootstrap draws, so many resamples at once as memory should hold.

    Yields which of the `RESAMPLES` these are, and what they draw: [some, count]. How many come at once changes nothing
    of what is drawn.
    """
    at_once = _at_once(count)
    for first in range(0, RESAMPLES, at_once):
        some = slice(first, min(first + at_once, RESAMPLES))
        yield some, generator.integers(count, size=(some.stop - some.start, count))


def _at_once(count: int) -> int:
    """How many resamples of `count` things are drawn together."""
    return max(1, min(RESAMPLES, _DRAWN_AT_ONCE // count))


def bounds(samples: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The percentile interval of what resamples gave."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
