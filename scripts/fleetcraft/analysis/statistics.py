"""Means and their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap

RESAMPLES = 10_000
CONFIDENCE = 0.95


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
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Mean(value, float(interval.low), float(interval.high))


def resampled(count: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Which of `count` things each resample of a bootstrap draws: [resamples, count]."""
    return generator.integers(count, size=(RESAMPLES, count))


def bounds(samples: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The percentile interval of what resamples gave."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
