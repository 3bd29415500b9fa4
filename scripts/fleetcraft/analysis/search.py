"""Tables of searches: what the candidates cost, what was chosen, and what quality that is for the compute.

FLOPs are those that transformers computed, counted; device seconds are how long models had their device: text encoder,
transformer and VAE, and the verifier where it is a model. Both are of one video of the experiment, with all candidates
that it was chosen from, whoever has made them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fleetcraft.analysis.statistics import Mean, mean_over_prompts
from fleetcraft.analysis.tables import Results, by_prompt, csv_text, interval, number
from fleetcraft.experiment.arms import Search
from fleetcraft.experiment.search import entrants, searches_in

AS_IT_IS, BEST_OF, RECOMMITTED = "as they are", "best of candidates", "recommitted"
"""What the videos of a point are."""

_Values = Mapping[tuple[str, int], float]
"""(prompt, seed) → value."""


@dataclass(frozen=True)
class Cost:
    """Of one video of the experiment. flops : None where they weren't counted, as of existing videos."""

    flops: float | None
    device_seconds: float

    def times(self, factor: float) -> Cost:
        return Cost(None if self.flops is None else self.flops * factor, self.device_seconds * factor)


@dataclass(frozen=True)
class Point:
    """A quality and what it costs.

    candidates : how many videos were made, of each prompt and seed, of which one was chosen.
    """

    arm: str
    videos_are: str
    candidates: int
    dimension: str
    videos: int
    mean: Mean
    cost: Cost


class Costs:
    """Arm → the cost of one of its videos, those of candidates among the arms."""

    def __init__(self, results: Results):
        self._made: dict[str, Cost] = {}
        flops: dict[str, list[float | None]] = defaultdict(list)
        seconds: dict[str, list[float]] = defaultdict(list)
        for (arm, prompt, seed), _ in results.videos.items():
            latents = results.latents.get((arm, prompt, seed), {})
            flops[arm].append(latents.get("work", {}).get("flops_computed"))
            seconds[arm].append(results.device_seconds[arm, prompt, seed])
        for arm, counted in flops.items():
            known = [one for one in counted if one is not None]
            self._made[arm] = Cost(fmean(known) if len(known) == len(counted) else None, fmean(seconds[arm]))
        # A scorer that has a model says where it runs.
        self._judged: dict[tuple[str, str], list[float]] = defaultdict(list)
        for dimension, settings in results.plan["scorers"].items():
            if "place" in settings:
                for (arm, _, _), record in results.scores[dimension].items():
                    self._judged[arm, dimension].append(record.get("seconds", {}).get("score", 0.0))

    def of(self, arms: Iterable[str], verifier: str | None = None) -> Cost:
        """Of one video of each of the arms together; with a `verifier`, scored by it."""
        flops: float | None = 0.0
        seconds = 0.0
        for arm in arms:
            made = self._made.get(arm, Cost(None, 0.0))
            flops = None if flops is None or made.flops is None else flops + made.flops
            judged = [] if verifier is None else self._judged.get((arm, verifier), [])
            seconds += made.device_seconds + (fmean(judged) if judged else 0.0)
        return Cost(flops, seconds)


def search_tables(results: Results) -> dict[str, str]:
    """Name → CSV text: `search` and `search_quality`; nothing for a campaign that searches nothing."""
    searches = searches_in(results.plan)
    if not searches:
        return {}
    costs = Costs(results)
    return {"search": _accounts(results, searches, costs), "search_quality": _quality(results, costs)}


def quality_points(results: Results, costs: Costs) -> Iterator[Point]:
    """Every other arm as it is; and of each search the best of more and more candidates, and its winners."""
    searches = searches_in(results.plan)
    for arm in results.arms:
        if arm not in searches:
            for dimension in results.dimensions:
                values = results.values(arm, dimension)
                yield from _points(arm, AS_IT_IS, 1, dimension, values, costs.of([arm]))
    for arm, search in searches.items():
        first = entrants(arm, search)[0]
        pools, each = _pools(results, first, search), costs.of(first, search.verifier).times(1 / len(first))
        for count in _powers_of_two(len(first)):
            best = {
                about: expected_best(values, count, search.prefer)
                for about, values in pools.items()
                if len(values) == len(first)
            }
            yield from _points(arm, BEST_OF, count, search.verifier, best, each.times(count))
        whole = costs.of(_all(arm, search), search.verifier)
        for dimension in results.dimensions:
            values = results.values(arm, dimension)
            yield from _points(arm, RECOMMITTED, search.candidates, dimension, values, whole)


def expected_best(values: Sequence[float], count: int, prefer: str) -> float:
    """What the best of `count` of the `values` is on average, over all ways to draw so many of them.

    Of all draws of n among N, the i-th best of all is the best of C(N - i, n - 1). This mean varies less than what the
    best of the first n happens to be, and estimates the same.
    """
    ranked = sorted(values, reverse=prefer == "highest")
    draws = math.comb(len(ranked), count)
    return math.fsum(
        value * (math.comb(len(ranked) - place, count - 1) / draws) for place, value in enumerate(ranked, 1)
    )


def _accounts(results: Results, searches: Mapping[str, Search], costs: Costs) -> str:
    """A row a round, one of the winners, and one of all together."""
    rows: list[list[object]] = []
    baseline = costs.of([results.plan["baseline"]]).flops
    for arm, search in searches.items():
        rounds = zip(search.rounds, entrants(arm, search), search.counts, strict=True)
        for place, (one, names, (entering, kept)) in enumerate(rounds, 1):
            ranked = [
                sorted(pool, reverse=search.prefer == "highest") for pool in _pools(results, names, search).values()
            ]
            means = [_mean([fmean(pool) for pool in ranked]), _mean([fmean(pool[:kept]) for pool in ranked])]
            cost = costs.of(names, search.verifier)
            rows.append(
                [arm, f"round {place}", one.arm, entering, kept, search.verifier, *means, *_cells(cost, baseline)]
            )
        won = _mean(list(results.values(arm, search.verifier).values()))
        for step, made_in, entering, names in (
            ("recommit", search.recommit, 1, _winners(arm, search)),
            ("total", "", search.candidates, _all(arm, search)),
        ):
            cost = costs.of(names, search.verifier)
            rows.append([arm, step, made_in, entering, 1, search.verifier, won, won, *_cells(cost, baseline)])
    columns = ["arm", "step", "made_in", "candidates", "kept", "verifier", "mean", "mean_of_kept"]
    return csv_text([*columns, "flops_per_video", "flops_to_baseline", "device_seconds_per_video"], rows)


def _quality(results: Results, costs: Costs) -> str:
    baseline = costs.of([results.plan["baseline"]]).flops
    rows = [
        [
            *(point.arm, point.videos_are, point.candidates, point.dimension, point.videos),
            *interval(point.mean),
            *_cells(point.cost, baseline),
        ]
        for point in quality_points(results, costs)
    ]
    columns = ["arm", "videos_are", "candidates", "dimension", "videos", "mean", "low", "high"]
    return csv_text([*columns, "flops_per_video", "flops_to_baseline", "device_seconds_per_video"], rows)


def _points(arm: str, videos_are: str, candidates: int, dimension: str, values: _Values, cost: Cost) -> Iterator[Point]:
    """A point, where there are values."""
    if values:
        mean = mean_over_prompts(by_prompt(dict(values)))
        yield Point(arm, videos_are, candidates, dimension, len(values), mean, cost)


def _pools(results: Results, names: Sequence[str], search: Search) -> dict[tuple[str, int], list[float]]:
    """(prompt, seed) → what the verifier gave its candidates, of those for which it has a value."""
    pools: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name in names:
        for about, value in results.values(name, search.verifier).items():
            pools[about].append(value)
    return pools


def _all(arm: str, search: Search) -> list[str]:
    """The arms of all that a search has made: of its candidates, and of its winners."""
    return [*(name for names in entrants(arm, search) for name in names), *_winners(arm, search)]


def _winners(arm: str, search: Search) -> list[str]:
    """The arm whose videos are made once the winners are known; none where a round has made and scored them."""
    return [] if search.winner_is_a_candidate else [arm]


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4 and so on, and `most`."""
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})


def _mean(values: Sequence[float]) -> str:
    return number(fmean(values)) if values else ""


def _cells(cost: Cost, baseline: float | None) -> list[str]:
    ratio = "" if cost.flops is None or not baseline else f"{cost.flops / baseline:.3f}"
    return ["" if cost.flops is None else f"{cost.flops:.0f}", ratio, f"{cost.device_seconds:.3f}"]
