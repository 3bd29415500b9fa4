"""Latencies of timed passes: medians, spread, and paired ratios with intervals.

Only records of the timed stage are taken (`kind: timings`). Nothing that a bulk job measured gets in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetcraft.analysis.statistics import RESAMPLES, bounds, resampled
from fleetcraft.analysis.tables import csv_text, number
from fleetcraft.ground.errors import BadInput, BadResult
from fleetcraft.ground.records import Record
from fleetcraft.timing.passes import KIND, PHASES

OUTLIER = 3.5
"""Modified z-score from which a pass is shown as an outlier (Iglewicz and Hoaglin, 1993). It is never dropped."""


@dataclass(frozen=True)
class Ratio:
    """How long an arm takes, as a share of the baseline's time on the same prompts and in the same rounds.

    value : geometric mean over prompts of the median over rounds.
    low, high : bootstrap interval; None where there is but one prompt and one round.
    """

    arm: str
    baseline: str
    phase: str
    value: float
    low: float | None
    high: float | None
    prompts: int
    rounds: int


@dataclass(frozen=True)
class Spread:
    """Seconds of one phase of one arm over all prompts and rounds."""

    arm: str
    phase: str
    median: float
    low: float
    high: float
    passes: int
    outliers: int


def timed_passes(records: Iterable[Record]) -> list[Record]:
    """The passes in a manifest of the timed stage, whether they count or not.

    Raises
    ------
    BadInput : a record is none of the timed stage.
    """
    found = []
    for record in records:
        kind = record.get("kind")
        if kind == KIND:
            found.append(record)
        elif kind != "surroundings":
            raise BadInput(
                "only records of timed passes can enter a latency",
                key="kind",
                value=kind,
                remedy="Bulk generation says nothing of latency; add `timing:` to the experiment and run `snakemake`",
            )
    return found


def measured(records: Iterable[Record]) -> list[Record]:
    """The passes that count: those that were alone on their node, without warm-up."""
    return [record for record in timed_passes(records) if record["valid"] and not record["warmup"]]


def refuse_mixed(records: Sequence[Record]) -> None:
    """Passes of different nodes, devices or stacks are no pair.

    Raises BadResult, naming what differs.
    """
    for name in ("host", "slot", "stack", "job"):
        seen = sorted({str(record["where"][name]) for record in records})
        if len(seen) > 1:
            raise BadResult(
                f"these passes can't be compared: they were timed on different {name}s: {', '.join(seen)}",
                remedy="Time all arms in one job: `snakemake --forcerun timing`",
            )


def ratios(records: Sequence[Record], baseline: str, phase: str) -> list[Ratio]:
    """Every other arm's time in `phase` against the baseline's; `records` are those that count (`measured`)."""
    refuse_mixed(records)
    seconds = _by_arm(records, phase)
    found = []
    for arm, ours in seconds.items():
        if arm == baseline or baseline not in seconds:
            continue
        theirs = seconds[baseline]
        pairs: dict[str, list[float]] = defaultdict(list)
        for about in sorted(ours):
            if about in theirs:
                pairs[str(about[:2])].append(ours[about] / theirs[about])
        if pairs:
            value, low, high = geometric_mean_of_medians(pairs)
            rounds = max(len(rounds) for rounds in pairs.values())
            found.append(Ratio(arm, baseline, phase, value, low, high, len(pairs), rounds))
    return found


def spreads(records: Sequence[Record], phase: str) -> list[Spread]:
    """Median and quartiles of each arm in `phase`, and how many passes lie far from their prompt's median."""
    found = []
    for arm, values in _by_arm(records, phase).items():
        seconds = np.array(list(values.values()))
        low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
        by_prompt: dict[str, list[float]] = defaultdict(list)
        for about, value in values.items():
            by_prompt[str(about[:2])].append(value)
        outliers = sum(len(outlying(group)) for group in by_prompt.values())
        found.append(Spread(arm, phase, float(median), float(low), float(high), len(seconds), outliers))
    return found


def outlying(seconds: Sequence[float]) -> list[int]:
    """Positions of values that are far from the median, by the median of deviations."""
    values = np.asarray(seconds)
    deviations = np.abs(values - np.median(values))
    typical = float(np.median(deviations))
    if typical == 0:
        return [int(index) for index in np.flatnonzero(deviations > 0)] if len(values) > 2 else []
    return [int(index) for index in np.flatnonzero(0.6745 * deviations / typical > OUTLIER)]


def geometric_mean_of_medians(groups: Mapping[str, Sequence[float]]) -> tuple[float, float | None, float | None]:
    """The mean of ratios grouped by prompt, and its percentile bootstrap interval.

    Prompts are resampled, and within each its rounds: with few prompts the spread of the rounds is what is known. The
    generator is seeded, so the same records give the same interval.
    """
    logs = [np.log(np.asarray(values, dtype=float)) for values in groups.values()]
    value = float(np.exp(np.mean([np.median(values) for values in logs])))
    if len(logs) == 1 and len(logs[0]) == 1:
        return value, None, None
    generator = np.random.default_rng(0)
    # Medians of resampled rounds; then prompts are resampled among them.
    medians, means = np.empty((len(logs), RESAMPLES)), np.empty(RESAMPLES)
    for of_prompt, values in zip(medians, logs, strict=True):
        for some, drawn in resampled(len(values), generator):
            of_prompt[some] = np.median(values[drawn], axis=1)
    for some, chosen in resampled(len(logs), generator):
        means[some] = np.mean(medians[chosen, np.arange(RESAMPLES)[some, None]], axis=1)
    return value, *bounds(np.exp(means))


def _by_arm(records: Sequence[Record], phase: str) -> dict[str, dict[tuple[str, int, int], float]]:
    """Arm → (prompt, seed, round) → seconds."""
    found: dict[str, dict[tuple[str, int, int], float]] = defaultdict(dict)
    for record in records:
        found[record["arm"]][record["prompt"], record["seed"], record["round"]] = record["seconds"][phase]
    return found


def latency_tables(records: Iterable[Record], plan: Mapping[str, Any]) -> dict[str, str]:
    """Name → CSV text: `latency` by arm and phase, and `latency_ratios` to the baseline; `plan` is its document."""
    records = list(records)
    passes = timed_passes(records)
    # Arms in the order of the plan, whichever of them was the first to have a pass that counts.
    places = {arm: place for place, arm in enumerate(plan["conditions"])}
    counted = sorted(measured(passes), key=lambda one: places[one["arm"]])
    invalid = Counter(one["arm"] for one in passes if not one["valid"] and not one["warmup"])
    rows, frames = [], plan["experiment"]["video"]["frames"]
    for phase in ("total", *PHASES):
        for spread in spreads(counted, phase) if counted else []:
            fps = number(frames / spread.median) if phase == "total" else ""
            seconds = [number(value) for value in (spread.median, spread.low, spread.high)]
            rows.append([spread.arm, phase, *seconds, fps, spread.passes, invalid[spread.arm], spread.outliers])
        if phase == "denoise":
            rows += [_steps(arm, counted) for arm in _arms(counted, plan)]
    loaded = {
        arm: seconds for one in records if one["kind"] == "surroundings" for arm, seconds in one["load_s"].items()
    }
    rows += [[arm, "load", number(loaded[arm]), "", "", "", 1, "", ""] for arm in plan["conditions"] if arm in loaded]
    for arm in plan["conditions"]:
        if not any(record["arm"] == arm for record in counted) and invalid[arm]:
            rows.append([arm, "total", "", "", "", "", 0, invalid[arm], 0])
    header = ["arm", "phase", "median_s", "low_s", "high_s", "frames_per_second", "passes", "invalid", "outliers"]
    # The campaign's baseline may be a directory of videos: then the first arm that is timed stands in.
    timed = _arms(counted, plan)
    baseline = plan["baseline"] if plan["baseline"] in timed else next(iter(timed), plan["baseline"])
    pairs = [ratio for phase in ("total", *PHASES) for ratio in ratios(counted, baseline, phase)]
    return {
        "latency": csv_text(header, rows),
        "latency_ratios": csv_text(
            ["arm", "baseline", "phase", "ratio", "low", "high", "prompts", "rounds"],
            [
                [
                    *(ratio.arm, ratio.baseline, ratio.phase),
                    *("" if value is None else number(value) for value in (ratio.value, ratio.low, ratio.high)),
                    *(ratio.prompts, ratio.rounds),
                ]
                for ratio in pairs
            ],
        ),
    }


def _steps(arm: str, counted: Sequence[Record]) -> list[object]:
    """The row of an arm's denoising steps: median and quartiles of all of them, over all passes."""
    seconds = [step for record in counted if record["arm"] == arm for step in record["steps_s"]]
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    passes = sum(record["arm"] == arm for record in counted)
    return [arm, "denoise_step", number(median), number(low), number(high), "", passes, "", ""]


def _arms(counted: Sequence[Record], plan: Mapping[str, Any]) -> list[str]:
    """The arms that have passes that count, in the order of the plan."""
    return [arm for arm in plan["conditions"] if any(one["arm"] == arm for one in counted)]
