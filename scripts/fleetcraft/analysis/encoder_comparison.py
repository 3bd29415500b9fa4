"""The tables and the figure of a comparison of encoders, from its records alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from fleetcraft.analysis.drawing import fitted, save
from fleetcraft.analysis.statistics import Mean, mean_over_prompts
from fleetcraft.analysis.tables import Results, by_prompt, csv_text, interval, number
from fleetcraft.ground.records import Record

MEASURES = ("psnr_db", "ssim", "vmaf")
NOT_MEASURED = "not measured"

About = tuple[str, str, int]
"""(arm, prompt, seed)"""


@dataclass(frozen=True)
class Compared:
    """What was found of the same frames in two encodings.

    results : side → scores and videos.
    fidelity : records of what was measured, by what they are about.
    """

    results: Mapping[str, Results]
    fidelity: Mapping[About, Record]

    @classmethod
    def of(cls, results: Mapping[str, Results], fidelity: Iterable[Record]) -> Compared:
        return cls(results, {(record["arm"], record["prompt"], record["seed"]): record for record in fidelity})

    @property
    def arms(self) -> list[str]:
        return self.results["declared"].arms

    @property
    def dimensions(self) -> list[str]:
        return self.results["declared"].dimensions

    def shifts(self, arm: str, dimension: str) -> dict[tuple[str, int], float]:
        """(prompt, seed) → by how much the other encoder changes the score."""
        declared, compared = (self.results[side].values(arm, dimension) for side in ("declared", "compared"))
        return {about: compared[about] - declared[about] for about in declared if about in compared}

    def measured(self, arm: str, of: str, against: str) -> dict[str, dict[tuple[str, int], float | None]]:
        """Measure → (prompt, seed) → its value; None where it could not be measured."""
        found: dict[str, dict[tuple[str, int], float | None]] = defaultdict(dict)
        for (owner, prompt, seed), record in self.fidelity.items():
            for measure in record["measures"]:
                if owner == arm and (measure["of"], measure["against"]) == (of, against):
                    found["psnr_db"][prompt, seed] = _psnr(measure["mse"])
                    found["ssim"][prompt, seed] = measure["ssim"]
                    found["vmaf"][prompt, seed] = measure["vmaf"]
        return found

    def bytes_a_video(self, arm: str, side: str) -> float:
        sizes = [record["bytes"][side] for (owner, _, _), record in self.fidelity.items() if owner == arm]
        return float(np.mean(sizes))


def make_tables(compared: Compared) -> dict[str, str]:
    """Name → CSV text: `shifts` of the scores, and `fidelity` of the videos."""
    shifts = []
    for arm in compared.arms:
        for dimension in compared.dimensions:
            sides = [compared.results[side].values(arm, dimension) for side in ("declared", "compared")]
            differences = compared.shifts(arm, dimension)
            if differences:
                means = [number(mean_over_prompts(by_prompt(values)).value) for values in sides]
                row = [arm, dimension, len(differences), *means]
                shifts.append([*row, *interval(mean_over_prompts(by_prompt(differences)))])
    fidelity = []
    for arm in compared.arms:
        for of, against in (("declared", "frames"), ("compared", "frames"), ("compared", "declared")):
            measured = compared.measured(arm, of, against)
            if measured:
                cells = [cell for name in MEASURES for cell in _cells(measured[name])]
                row = [arm, of, against, len(measured["ssim"]), round(compared.bytes_a_video(arm, of))]
                fidelity.append([*row, *cells])
    columns = [column for name in MEASURES for column in (name, f"{name}_low", f"{name}_high")]
    return {
        "shifts": csv_text(
            ["arm", "dimension", "pairs", "mean_declared", "mean_compared", "mean_shift", "low", "high"], shifts
        ),
        "fidelity": csv_text(["arm", "of", "against", "videos", "bytes_a_video", *columns], fidelity),
    }


def comparison_figure(compared: Compared, colours: Mapping[str, str], path: Path) -> None:
    """The shift of every video's score, and how close videos are to their frames: one panel a dimension and measure.

    colours : arm → its colour in all figures of the campaign.
    """
    panels: list[tuple[str, str, dict[tuple[str, str], dict[tuple[str, int], float]]]] = []
    for dimension in compared.dimensions:
        shifts = {(arm, ""): compared.shifts(arm, dimension) for arm in compared.arms}
        panels.append(
            (f"shift of {dimension}", "compared − declared", {about: part for about, part in shifts.items() if part})
        )
    for measure in MEASURES:
        groups = {
            (arm, side): _finite(compared.measured(arm, side, "frames").get(measure, {}))
            for arm in compared.arms
            for side in ("declared", "compared")
        }
        panels.append((measure, "to the frames", groups))
    width = max(2.6, 1.0 + 0.8 * 2 * len(compared.arms))
    figure, row = plt.subplots(1, len(panels), figsize=(width * len(panels), 4.0), layout="constrained", squeeze=False)
    for axes, (title, label, groups) in zip(row[0], panels, strict=True):
        for position, ((arm, _), group) in enumerate(groups.items()):
            _dots(axes, position, group, colours[arm])
        names = [f"{fitted(arm, 0.7, 8)}\n{side}".rstrip() for arm, side in groups]
        axes.set_xticks(range(len(groups)), names, fontsize=8)
        axes.set_xlim(-0.5, len(groups) - 0.3)
        axes.set_title(fitted(title, width - 0.8), fontsize=10)
        axes.set_ylabel(label, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if label.startswith("compared"):
            axes.axhline(0, color="0.8", linewidth=0.8, zorder=1)
    save(figure, path)


def _finite(values: Mapping[tuple[str, int], float | None]) -> dict[tuple[str, int], float]:
    """Those that can be drawn: measured, and not of the same pixels."""
    return {about: value for about, value in values.items() if value is not None and math.isfinite(value)}


def _dots(axes: Axes, position: int, values: Mapping[tuple[str, int], float], colour: str) -> None:
    """Values as dots, and beside them their mean with its interval; a word where there are none."""
    if not values:
        axes.text(
            position, 0.5, "identical or\nnot measured", transform=axes.get_xaxis_transform(), fontsize=7, ha="center"
        )
        return
    axes.scatter(np.full(len(values), position), list(values.values()), s=18, alpha=0.6, color=colour, zorder=2)
    mean = mean_over_prompts(by_prompt(dict(values)))
    axes.hlines(mean.value, position + 0.1, position + 0.3, color="black", linewidth=2, zorder=3)
    if mean.low is not None and mean.high is not None:
        axes.vlines(position + 0.2, mean.low, mean.high, color="black", linewidth=1, zorder=3)


def _psnr(mse: float | None) -> float | None:
    """Peak signal-to-noise ratio of 8-bit values in dB; infinite for the same pixels."""
    if mse is None:
        return None
    return math.inf if mse == 0 else 10 * math.log10(255**2 / mse)


def _cells(values: Mapping[tuple[str, int], float | None]) -> list[str]:
    """Mean, low and high; never a number for what was not measured in every video."""
    known = {about: value for about, value in values.items() if value is not None}
    if len(known) < len(values):
        return [NOT_MEASURED, "", ""]
    if not all(math.isfinite(value) for value in known.values()):
        return interval(Mean(math.inf, None, None))
    return interval(mean_over_prompts(by_prompt(known)))
