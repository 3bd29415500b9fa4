"""VBench's scores of arms, from records alone: a table with intervals, and the files that VBench itself would write."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fleetcraft.analysis.encodings import not_compared
from fleetcraft.analysis.statistics import RESAMPLES, bounds, resampled
from fleetcraft.analysis.tables import Results, csv_text, number
from fleetcraft.experiment.search import searches_in
from fleetcraft.experiment.video_names import video_name
from fleetcraft.scoring.vbench_dimensions import COMPOSITES, VBENCH, VBenchDimension, combined, dimensions_of, missing

Samples = npt.NDArray[np.float64]
"""What a score would have been with other prompts: [resamples]."""


About: TypeAlias = tuple[str, int]
"""Prompt and seed."""

T = TypeVar("T")

STANDARD = "standard protocol"
"""What a row says whose score is made as the leaderboard's are."""

KEPT = 5
"""How many of a prompt's videos count at most, of those that a filter keeps."""


@dataclass(frozen=True)
class Judged:
    """An arm's videos in one dimension.

    results : (prompt, seed) → what upstream's code gave for the video, and the video's number of frames; of those that
        count.
    prompts : how many prompts it has.
    planned : how many videos were to be scored.
    unscored : how many of them lack what is needed.
    filtered : whether a filter said which count.
    candidates : of how many each video is the chosen one; 1 where nothing was searched.
    """

    dimension: VBenchDimension
    results: Mapping[About, tuple[float, int]]
    prompts: int
    planned: int
    unscored: int
    filtered: bool
    candidates: int

    @property
    def has_score(self) -> bool:
        """Only where no video is unscored: of the others alone it would be another score."""
        return not self.unscored and bool(self.results)

    @property
    def score(self) -> float:
        """As upstream aggregates it."""
        return self.dimension.aggregate(self.results.values())


@dataclass(frozen=True)
class Estimate:
    """A normalised score; `samples` is None where there are too few prompts to resample."""

    value: float
    samples: Samples | None

    def minus(self, other: Estimate) -> Estimate:
        """The difference, its samples paired: both arms' are of the same prompts."""
        if self.samples is None or other.samples is None:
            return Estimate(self.value - other.value, None)
        return Estimate(self.value - other.value, self.samples - other.samples)

    @property
    def cells(self) -> list[str]:
        """The value and its bounds, empty where it has none."""
        if self.samples is None or not np.isfinite(self.samples).all():
            return [number(self.value), "", ""]
        return [number(bound) for bound in (self.value, *bounds(self.samples))]


def vbench_table(results: Results) -> str:
    """An arm's dimensions, and its quality, semantic and total as far as their dimensions are there.

    `low` and `high` are the bounds of `normalised`. `difference`, with its own, is that of the normalised score to the
    baseline's, for arms that were encoded alike. A row that lacks its score says why; the others, whether they follow
    VBench's standard protocol.
    """
    judged = {arm: _judged(results, arm) for arm in results.arms}
    estimates = _estimates(results, judged)
    baseline, apart, rows = results.plan["baseline"], not_compared(results), []

    def numbers(arm: str, name: str) -> list[str]:
        ours = estimates[arm].get(name)
        theirs = None if arm == baseline or arm in apart else estimates[baseline].get(name)
        cells = ours.cells if ours else [""] * 3
        return [*cells, *(ours.minus(theirs).cells if ours and theirs else [""] * 3)]

    for arm, ones in judged.items():
        for name, one in ones.items():
            score = number(one.score) if one.has_score else ""
            rows.append([arm, name, len(one.results), score, *numbers(arm, name), _note(results, one)])
        for composite in COMPOSITES if ones else ():
            lacking = missing(composite, estimates[arm])
            note = f"not computed without {', '.join(lacking)}" if lacking else STANDARD
            if not lacking and any(_departures(results, ones[name]) for name in dimensions_of(composite)):
                note = "not all of these dimensions follow the standard protocol"
            rows.append([arm, composite, "", "", *numbers(arm, composite), note])
    difference = ("difference", "difference_low", "difference_high")
    return csv_text(["arm", "dimension", "videos", "score", "normalised", "low", "high", *difference, "note"], rows)


def official_results(results: Results) -> dict[str, str]:
    """Arm → the JSON that VBench would write of its videos; nothing where no dimension is VBench's.

    It holds {dimension: [score, [{"video_path", "video_results"}, …]]}; a path is the video's name as VBench has it. A
    dimension in which a video lacks its score is left out. Where one departs from VBench's standard protocol, a third
    entry, which upstream's scripts don't look at, says how.
    """
    return {arm: _official(results, ones) for arm in results.arms if (ones := _judged(results, arm))}


def _official(results: Results, judged: Mapping[str, Judged]) -> str:
    document: dict[str, Any] = {}
    names = _video_names(results)
    for name, one in judged.items():
        if one.has_score:
            videos = [
                {"video_path": names[about], "video_results": one.dimension.official(result)}
                for about, (result, _) in one.results.items()
            ]
            departures = _departures(results, one)
            document[name] = [one.score, videos, *([departures] if departures else [])]
    return json.dumps(document, indent=4) + "\n"


def _judged(results: Results, arm: str) -> dict[str, Judged]:
    """Dimension → what became of an arm's videos in it, for those of VBench, by their very names, in its order."""
    found = {}
    search = searches_in(results.plan).get(arm)
    for name, dimension in VBENCH.items():
        if name in results.dimensions:
            judged = {
                about: (value, results.videos[arm, *about]["shape"][0])
                for about, value in results.values(arm, name).items()
                if (arm, *about) in results.videos
            }
            prompts = len(_prompts(results, name))
            planned = prompts * len(results.seeds.scored(name))
            by = dimension.filtered_by
            verdicts = results.values(arm, by) if by in results.dimensions else None
            if verdicts is not None:
                judged = {about: result for about, result in judged.items() if about in verdicts}
            # Of a dimension that can't tell of some videos, it is an omission only where it told of none.
            unscored = 0 if dimension.skips and judged else planned - len(judged)
            if verdicts is not None:
                judged = _kept(results, judged, verdicts)
            candidates = 1 if search is None else search.candidates
            found[name] = Judged(dimension, judged, prompts, planned, unscored, verdicts is not None, candidates)
    return found


def _kept(results: Results, judged: Mapping[About, T], verdicts: Mapping[About, float]) -> dict[About, T]:
    """What counts of what a filter keeps, as upstream's has it: the first of each prompt, by their names."""
    names = _video_names(results)
    kept: dict[str, list[About]] = defaultdict(list)
    for about in sorted(judged, key=names.__getitem__):
        if verdicts[about] and len(kept[about[0]]) < KEPT:
            kept[about[0]].append(about)
    return {about: result for about, result in judged.items() if about in kept[about[0]]}


def _video_names(results: Results) -> dict[About, str]:
    """(prompt, seed) → the name that VBench has for the video."""
    return {
        (prompt["text"], seed): video_name(prompt["text"], seed, seeds)
        for prompt in results.plan["prompts"]
        for seeds in [results.seeds.of(prompt["dimensions"])]
        for seed in seeds
    }


def _prompts(results: Results, name: str) -> list[str]:
    """The prompts that are scored in a dimension: the suite's for it, or all of a file."""
    prompts = results.plan["prompts"]
    return [prompt["text"] for prompt in prompts if not prompt["dimensions"] or name in prompt["dimensions"]]


def _note(results: Results, one: Judged) -> str:
    """Why there is no score, or how it came about."""
    if one.unscored:
        return f"no score: {one.unscored} of {one.planned} videos have none"
    if not one.results:
        return f"no score: {one.dimension.filtered_by} keeps none of {one.planned} videos"
    parts = [_departures(results, one) or STANDARD]
    if one.filtered:
        kept = Counter(prompt for prompt, _ in one.results)
        if few := one.prompts - sum(count == KEPT for count in kept.values()):
            parts.append(f"{few} of {one.prompts} prompts have fewer than {KEPT} still videos")
    return "; ".join(parts)


def _departures(results: Results, one: Judged) -> str:
    """What keeps a score from being one of the leaderboard's: it isn't of VBench's standard protocol."""
    if not all(prompt["dimensions"] for prompt in results.plan["prompts"]):
        return "the prompts are not those of the suite"
    full, videos = one.dimension, len(results.seeds.scored(one.dimension.name))
    parts = []
    if one.prompts != full.prompts:
        parts.append(f"{one.prompts} of the suite's {full.prompts} prompts")
    if videos != full.videos:
        parts.append(f"{videos} videos a prompt in place of {full.videos}")
    if full.filtered_by is not None and not one.filtered:
        parts.append(f"without {full.filtered_by}")
    if one.candidates > 1:
        parts.append(f"each video chosen among {one.candidates} candidates")
    return ", ".join(parts)


def _estimates(results: Results, judged: Mapping[str, Mapping[str, Judged]]) -> dict[str, dict[str, Estimate]]:
    """Arm → name → estimate, of all dimensions that have a score and of all that can be made of them."""
    samples = _samples(results, judged)
    found: dict[str, dict[str, Estimate]] = {}
    for arm, ones in judged.items():
        found[arm] = {
            name: Estimate(one.dimension.normalised(one.score), samples[arm].get(name))
            for name, one in ones.items()
            if one.has_score
        }
        values = {name: estimate.value for name, estimate in found[arm].items()}
        resampled_values = {name: each for name, each in samples[arm].items() if name in values}
        for composite in COMPOSITES:
            if not missing(composite, values):
                told = not missing(composite, resampled_values)
                found[arm][composite] = Estimate(
                    combined(composite, values), combined(composite, resampled_values) if told else None
                )
    return found


def _samples(results: Results, judged: Mapping[str, Mapping[str, Judged]]) -> dict[str, dict[str, Samples]]:
    """Arm → dimension → normalised scores of resampled prompts.

    The suite has a set of prompts for each few dimensions. Prompts are drawn from each set as many as it has, once for
    all arms and dimensions: what dimensions share and arms have in common then counts in totals and differences. A
    dimension with a single prompt has none.
    """
    names = [name for name in VBENCH if name in results.dimensions and len(_prompts(results, name)) > 1]
    sums = {arm: {name: np.zeros((2, RESAMPLES)) for name in names} for arm in judged}
    generator = np.random.default_rng(0)
    for for_it, prompts in _sets(results, names):
        parts = [
            (total, of_prompts)
            for arm, ones in judged.items()
            for name in for_it
            for total, of_prompts in zip(sums[arm][name], _by_prompt(ones[name], prompts), strict=True)
        ]
        for some, drawn in resampled(len(prompts), generator):
            for total, of_prompts in parts:
                total[some] += of_prompts[drawn].sum(axis=1)
    found: dict[str, dict[str, Samples]] = {}
    for arm, by_name in sums.items():
        found[arm] = {}
        for name, (weighed, weights) in by_name.items():
            dimension = VBENCH[name]
            # Where no drawn prompt has a result, which only a dimension that skips videos knows, there is no score.
            score = np.divide(weighed, weights, out=np.full(RESAMPLES, np.nan), where=weights > 0)
            found[arm][name] = dimension.normalised(dimension.fraction(score))
    return found


def _sets(results: Results, names: Sequence[str]) -> list[tuple[frozenset[str], list[str]]]:
    """Those of the dimensions `names` that prompts are for, and these prompts, in sets to be drawn from.

    A set of one prompt would be drawn alike every time: its prompt, which may be another as much as any, would add
    nothing to an interval, which would be too narrow. So it joins the smallest set that has a dimension with it, for
    which it is one prompt more to draw from; a set that shares none has no dimension with a second prompt.
    """
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for prompt in results.plan["prompts"]:
        if for_it := frozenset(prompt["dimensions"] or names).intersection(names):
            found[for_it].append(prompt["text"])
    sets = list(found.items())
    for lone in [one for one in sets if len(one[1]) == 1]:
        # It may have been joined by another in the meantime.
        if lone in sets and (others := [one for one in sets if one is not lone and one[0] & lone[0]]):
            nearest = min(others, key=lambda one: (len(one[1]), -len(one[0] & lone[0])))
            sets[sets.index(nearest)] = (nearest[0] | lone[0], [*nearest[1], *lone[1]])
            sets.remove(lone)
    return sets


def _by_prompt(one: Judged, prompts: list[str]) -> npt.NDArray[np.float64]:
    """The weighed sum of each prompt's results, and the sum of their weights: [2, prompts]."""
    place = {prompt: number for number, prompt in enumerate(prompts)}
    sums = np.zeros((2, len(prompts)))
    for (prompt, _), (result, frames) in one.results.items():
        if prompt in place:
            weight = one.dimension.weight(frames)
            sums[:, place[prompt]] += (result * weight, weight)
    return sums
