"""Figures of scores, latencies and searches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from fleetcraft.analysis.encodings import not_compared
from fleetcraft.analysis.latency import measured, timed_passes
from fleetcraft.analysis.search import BEST_OF, RECOMMITTED, Costs, Point, quality_points
from fleetcraft.analysis.statistics import mean_over_prompts
from fleetcraft.analysis.tables import Results, by_prompt
from fleetcraft.experiment.search import searches_in
from fleetcraft.ground.files import new_file
from fleetcraft.ground.records import Record
from fleetcraft.timing.passes import PHASES

_MOST_LINES = 200
"""Pairs that are joined by lines; with more of them the lines would hide the dots."""


def score_figure(results: Results, dimension: str, label: str, path: Path) -> None:
    """Every video's score as a dot, arms side by side, and each arm's mean with its interval.

    Lines join the pairs of arms that are compared; the name of another arm says that it isn't.
    """
    arms = [arm for arm in results.arms if results.values(arm, dimension)]
    scores = {arm: results.values(arm, dimension) for arm in arms}
    figure, axes = plt.subplots(figsize=(1.8 + 1.6 * max(2, len(arms)), 4.2), layout="constrained")
    apart = not_compared(results)
    joined = [arm for arm in arms if arm not in apart]
    shared = [about for about in scores[joined[0]] if all(about in scores[arm] for arm in joined)] if joined else []
    if len(joined) > 1 and len(shared) <= _MOST_LINES:
        places = [arms.index(arm) for arm in joined]
        for about in shared:
            axes.plot(places, [scores[arm][about] for arm in joined], color="0.8", linewidth=0.8, zorder=1)
    for position, arm in enumerate(arms):
        values = list(scores[arm].values())
        axes.scatter(np.full(len(values), position), values, s=18, alpha=0.6, color=f"C{position % 10}", zorder=2)
        mean = mean_over_prompts(by_prompt(scores[arm]))
        axes.hlines(mean.value, position + 0.12, position + 0.3, color="black", linewidth=2, zorder=3)
        if mean.low is not None and mean.high is not None:
            axes.vlines(position + 0.21, mean.low, mean.high, color="black", linewidth=1, zorder=3)
    axes.set_xticks(range(len(arms)), [f"{arm}\nnot compared" if arm in apart else arm for arm in arms])
    axes.set_xlim(-0.4, max(1, len(arms) - 1) + 0.5 if len(arms) > 1 else 0.6)
    axes.set_ylabel(label)
    axes.set_title(f"{dimension}: {len(scores[arms[0]])} videos an arm")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def latency_figure(records: Sequence[Record], arms: Sequence[str], path: Path) -> None:
    """Every timed pass as a dot, arms side by side, those of one prompt and round joined; crosses don't count."""
    passes = timed_passes(records)
    counted = {_about(one): one["seconds"]["total"] for one in measured(passes)}
    figure, axes = plt.subplots(figsize=(1.8 + 1.6 * max(2, len(arms)), 4.2), layout="constrained")
    pairs = sorted({about[1:] for about in counted})
    for pair in pairs[:_MOST_LINES]:
        heights = [counted.get((arm, *pair), np.nan) for arm in arms]
        axes.plot(range(len(arms)), heights, color="0.8", linewidth=0.8, zorder=1)
    for position, arm in enumerate(arms):
        kept = [seconds for about, seconds in counted.items() if about[0] == arm]
        dropped = [
            one["seconds"]["total"] for one in passes if one["arm"] == arm and (one["warmup"] or not one["valid"])
        ]
        axes.scatter(np.full(len(kept), position), kept, s=18, alpha=0.6, color=f"C{position % 10}", zorder=2)
        axes.scatter(np.full(len(dropped), position - 0.15), dropped, s=16, marker="x", color="0.6", zorder=2)
        if kept:
            axes.hlines(float(np.median(kept)), position + 0.1, position + 0.3, color="black", linewidth=2, zorder=3)
    axes.set_xticks(range(len(arms)), arms)
    axes.set_xlim(-0.4, max(1, len(arms) - 1) + 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("prompt to frames, seconds")
    axes.set_title(f"{len(counted)} timed passes count (×: those that don't)")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def phases_figure(counted: Sequence[Record], arms: Sequence[str], path: Path) -> None:
    """The median of each phase, stacked, arm by arm; `counted` are the passes that count."""
    figure, axes = plt.subplots(figsize=(7.5, 1.6 + 0.5 * len(arms)), layout="constrained")
    left = np.zeros(len(arms))
    for number, phase in enumerate(PHASES):
        medians = np.array([_median(counted, arm, phase) for arm in arms])
        axes.barh(range(len(arms)), medians, left=left, color=f"C{number}", label=phase.replace("_", " "))
        left += medians
    axes.set_yticks(range(len(arms)), arms)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    if not counted:
        axes.text(0.5, 0.5, "no pass was alone on its node", transform=axes.transAxes, ha="center", va="center")
    axes.set_xlabel("seconds a video, medians")
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def search_figure(results: Results, labels: Mapping[str, str], path: Path) -> None:
    """Quality against compute, a panel a verifier: other arms as dots, winners in full as stars, and as a line the best
    of more and more candidates. `labels` names the dimensions."""
    searches, costs = searches_in(results.plan), Costs(results)
    points = list(quality_points(results, costs))
    baseline = costs.of([results.plan["baseline"]]).flops
    unit, measure = (baseline, "FLOPs of a baseline's video") if baseline else (1e12, "TFLOP")
    verifiers = sorted({search.verifier for search in searches.values()})
    figure, panels = plt.subplots(
        1, len(verifiers), figsize=(5.6 * len(verifiers), 4.4), layout="constrained", squeeze=False
    )
    colours = {arm: f"C{number % 10}" for number, arm in enumerate(results.arms)}
    for axes, verifier in zip(panels[0], verifiers, strict=True):
        shown = [(one.cost.flops / unit, one) for one in points if one.dimension == verifier and one.cost.flops]
        lines: dict[str, list[tuple[float, Point]]] = defaultdict(list)
        for place, one in shown:
            if one.videos_are == BEST_OF:
                lines[one.arm].append((place, one))
                continue
            mark, size = ("*", 11) if one.videos_are == RECOMMITTED else ("o", 6)
            axes.plot(place, one.mean.value, mark, color=colours[one.arm], markersize=size, label=one.arm)
            if one.mean.low is not None and one.mean.high is not None:
                axes.vlines(place, one.mean.low, one.mean.high, color=colours[one.arm], linewidth=1)
        for arm, line in lines.items():
            heights = [one.mean.value for _, one in line]
            axes.plot([place for place, _ in line], heights, ".-", color=colours[arm], linewidth=1, markersize=4)
            drafted = f"best of {line[-1][1].candidates}\nin {searches[arm].rounds[0].arm}"
            axes.annotate(drafted, (line[-1][0], heights[-1]), (4, 0), textcoords="offset points", fontsize=7, va="top")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(f"compute a video, all candidates included ({measure})")
        axes.set_ylabel(labels[verifier])
        axes.legend(fontsize=8, title="★ winners in full   ● as they are", title_fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def _about(record: Record) -> tuple[str, str, int, int]:
    return record["arm"], record["prompt"], record["seed"], record["round"]


def _median(records: Sequence[Record], arm: str, phase: str) -> float:
    values = [record["seconds"][phase] for record in records if record["arm"] == arm]
    return float(np.median(values)) if values else 0.0


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, and let go of it."""
    with new_file(path) as temporary:
        # Without the version of matplotlib in it, the same scores give the same bytes.
        figure.savefig(temporary, dpi=160, metadata={"Software": None})
    plt.close(figure)
