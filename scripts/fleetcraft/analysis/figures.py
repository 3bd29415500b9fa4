"""Figures of scores, latencies and searches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fleetcraft.analysis.drawing import colours_of, fitted, save
from fleetcraft.analysis.encodings import not_compared
from fleetcraft.analysis.latency import measured, timed_passes
from fleetcraft.analysis.search import BEST_OF, RECOMMITTED, Costs, Point, quality_points
from fleetcraft.analysis.statistics import mean_over_prompts
from fleetcraft.analysis.tables import Results, by_prompt
from fleetcraft.experiment.search import searches_in
from fleetcraft.ground.records import Record
from fleetcraft.timing.passes import PHASES

_MOST_LINES = 200
"""Pairs that are joined by lines; with more of them the lines would hide the dots."""

_ALONG_AXIS_IN, _BELOW_ARM_IN = 3.0, 1.4
"""How long, in inches, lines of a label may be: beside a panel, which is higher, and below an arm, which is wider."""

_PANEL_IN = (5.6, 4.4)
"""Width and height of a panel of the figure of searches, in inches."""


def score_figure(results: Results, dimension: str, label: str, path: Path) -> None:
    """Every video's score as a dot, arms side by side, and each arm's mean with its interval.

    Lines join the pairs of arms that are compared; the name of another arm says that it isn't.
    """
    arms = [arm for arm in results.arms if results.values(arm, dimension)]
    scores = {arm: results.values(arm, dimension) for arm in arms}
    figure, axes = _side_by_side(arms)
    apart, colours = not_compared(results), colours_of(results.arms)
    joined = [arm for arm in arms if arm not in apart]
    shared = [about for about in scores[joined[0]] if all(about in scores[arm] for arm in joined)] if joined else []
    if len(joined) > 1 and len(shared) <= _MOST_LINES:
        places = [arms.index(arm) for arm in joined]
        for about in shared:
            axes.plot(places, [scores[arm][about] for arm in joined], color="0.8", linewidth=0.8, zorder=1)
    for position, arm in enumerate(arms):
        values = list(scores[arm].values())
        axes.scatter(np.full(len(values), position), values, s=18, alpha=0.6, color=colours[arm], zorder=2)
        mean = mean_over_prompts(by_prompt(scores[arm]))
        axes.hlines(mean.value, position + 0.12, position + 0.3, color="black", linewidth=2, zorder=3)
        if mean.low is not None and mean.high is not None:
            axes.vlines(position + 0.21, mean.low, mean.high, color="black", linewidth=1, zorder=3)
    names = [fitted(arm, _BELOW_ARM_IN) for arm in arms]
    axes.set_xticks(
        range(len(arms)),
        [f"{name}\nnot compared" if arm in apart else name for arm, name in zip(arms, names, strict=True)],
    )
    axes.set_xlim(-0.4, max(1, len(arms) - 1) + 0.5 if len(arms) > 1 else 0.6)
    axes.set_ylabel(fitted(label, _ALONG_AXIS_IN))
    videos = max(map(len, scores.values()), default=0)
    axes.set_title(fitted(f"{dimension}: {videos} videos an arm", 4.0, 12))
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def latency_figure(records: Sequence[Record], arms: Sequence[str], colours: Mapping[str, str], path: Path) -> None:
    """Every timed pass as a dot, arms side by side, those of one prompt and round joined; crosses don't count."""
    passes = timed_passes(records)
    counted = {_about(one): one["seconds"]["total"] for one in measured(passes)}
    figure, axes = _side_by_side(arms)
    pairs = sorted({about[1:] for about in counted})
    for pair in pairs[:_MOST_LINES]:
        heights = [counted.get((arm, *pair), np.nan) for arm in arms]
        axes.plot(range(len(arms)), heights, color="0.8", linewidth=0.8, zorder=1)
    for position, arm in enumerate(arms):
        kept = [seconds for about, seconds in counted.items() if about[0] == arm]
        dropped = [
            one["seconds"]["total"] for one in passes if one["arm"] == arm and (one["warmup"] or not one["valid"])
        ]
        axes.scatter(np.full(len(kept), position), kept, s=18, alpha=0.6, color=colours[arm], zorder=2)
        axes.scatter(np.full(len(dropped), position - 0.15), dropped, s=16, marker="x", color="0.6", zorder=2)
        if kept:
            axes.hlines(float(np.median(kept)), position + 0.1, position + 0.3, color="black", linewidth=2, zorder=3)
    axes.set_xticks(range(len(arms)), [fitted(arm, _BELOW_ARM_IN) for arm in arms])
    axes.set_xlim(-0.4, max(1, len(arms) - 1) + 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("prompt to frames, seconds")
    axes.set_title(fitted(f"{len(counted)} timed passes count (×: those that don't)", 4.0, 12))
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
    axes.set_yticks(range(len(arms)), [fitted(arm, _ALONG_AXIS_IN) for arm in arms])
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
    width, height = _PANEL_IN
    figure, panels = plt.subplots(
        1, len(verifiers), figsize=(width * len(verifiers), height), layout="constrained", squeeze=False
    )
    colours = colours_of(results.arms)
    marks: dict[str, Line2D] = {}
    for axes, verifier in zip(panels[0], verifiers, strict=True):
        shown = [(one.cost.flops / unit, one) for one in points if one.dimension == verifier and one.cost.flops]
        lines: dict[str, list[tuple[float, Point]]] = defaultdict(list)
        for place, one in shown:
            if one.videos_are == BEST_OF:
                lines[one.arm].append((place, one))
                continue
            mark, size = ("*", 11) if one.videos_are == RECOMMITTED else ("o", 6)
            (marks[one.arm],) = axes.plot(place, one.mean.value, mark, color=colours[one.arm], markersize=size)
            if one.mean.low is not None and one.mean.high is not None:
                axes.vlines(place, one.mean.low, one.mean.high, color=colours[one.arm], linewidth=1)
        for arm, line in lines.items():
            heights = [one.mean.value for _, one in line]
            drafted = f"{arm}: best of up to {line[-1][1].candidates} in {searches[arm].rounds[0].arm}"
            (marks[drafted],) = axes.plot(
                [place for place, _ in line], heights, ".-", color=colours[arm], linewidth=1, markersize=4
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(f"compute a video, all candidates included\n({measure})")
        axes.set_ylabel(fitted(labels[verifier], _ALONG_AXIS_IN))
        axes.set_title(fitted(f"by {verifier}", 4.0), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    title = figure.suptitle("Quality against compute: searches and other arms")
    _add_legend(figure, marks)
    # Above the panels, and not above the legend.
    title.set_x(width * len(verifiers) / figure.get_figwidth() / 2)
    save(figure, path)


def _side_by_side(arms: Sequence[str]) -> tuple[Figure, Axes]:
    """A panel with a place for each arm."""
    return plt.subplots(figsize=(1.8 + 1.6 * max(2, len(arms)), 4.2), layout="constrained")


def _add_legend(figure: Figure, marks: Mapping[str, Line2D]) -> None:
    """Say what the marks are, to the right of all panels, where nothing is hidden; the figure grows by as much."""
    legend = figure.legend(
        list(marks.values()),
        [fitted(text, 2.0, 8) for text in marks],
        loc="outside right upper",
        fontsize=8,
        title="★ winners in full   ● as they are",
        title_fontsize=8,
        alignment="left",
        frameon=False,
    )
    figure.draw_without_rendering()
    box = legend.get_window_extent()
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + box.width / figure.dpi, max(height, box.height / figure.dpi + 0.4))


def _about(record: Record) -> tuple[str, str, int, int]:
    return record["arm"], record["prompt"], record["seed"], record["round"]


def _median(records: Sequence[Record], arm: str, phase: str) -> float:
    values = [record["seconds"][phase] for record in records if record["arm"] == arm]
    return float(np.median(values)) if values else 0.0
