"""Figures of scores."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from fleetcraft.analysis.statistics import mean_over_prompts
from fleetcraft.analysis.tables import Results, by_prompt
from fleetcraft.ground.files import new_file
from fleetcraft.scoring.dimensions import DIMENSIONS

_MOST_LINES = 200
"""Pairs that are joined by lines; with more of them the lines would hide the dots."""


def score_figure(results: Results, dimension: str, path: Path) -> None:
    """Every video's score as a dot, arms side by side, pairs joined, and each arm's mean with its interval."""
    arms = [arm for arm in results.arms if results.values(arm, dimension)]
    scores = {arm: results.values(arm, dimension) for arm in arms}
    figure, axes = plt.subplots(figsize=(1.8 + 1.6 * max(2, len(arms)), 4.2), layout="constrained")
    shared = [about for about in scores[arms[0]] if all(about in scores[arm] for arm in arms)]
    if len(arms) > 1 and len(shared) <= _MOST_LINES:
        for about in shared:
            axes.plot(range(len(arms)), [scores[arm][about] for arm in arms], color="0.8", linewidth=0.8, zorder=1)
    for position, arm in enumerate(arms):
        values = list(scores[arm].values())
        axes.scatter(np.full(len(values), position), values, s=18, alpha=0.6, color=f"C{position % 10}", zorder=2)
        mean = mean_over_prompts(by_prompt(scores[arm]))
        axes.hlines(mean.value, position + 0.12, position + 0.3, color="black", linewidth=2, zorder=3)
        if mean.low is not None and mean.high is not None:
            axes.vlines(position + 0.21, mean.low, mean.high, color="black", linewidth=1, zorder=3)
    axes.set_xticks(range(len(arms)), arms)
    axes.set_xlim(-0.4, max(1, len(arms) - 1) + 0.5 if len(arms) > 1 else 0.6)
    axes.set_ylabel(DIMENSIONS[dimension].label)
    axes.set_title(f"{dimension}: {len(scores[arms[0]])} videos an arm")
    axes.spines[["top", "right"]].set_visible(False)
    with new_file(path) as temporary:
        # Without the version of matplotlib in it, the same scores give the same bytes.
        figure.savefig(temporary, dpi=160, metadata={"Software": None})
    plt.close(figure)
