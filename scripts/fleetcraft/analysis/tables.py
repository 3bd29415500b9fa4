"""The tables of a campaign, from its plan and its records; the same records give the same bytes."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from fleetcraft.analysis.encodings import ENCODERS, encoders_rows, encoding_of, not_compared
from fleetcraft.analysis.idle_arms import UNITS, refuse_idle_arms
from fleetcraft.analysis.statistics import Mean, mean_over_prompts
from fleetcraft.experiment.batches import DEVICE_PHASES
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.ground.errors import Damaged
from fleetcraft.ground.ledger import PEAK, PHASES, Held, most
from fleetcraft.ground.records import Record, iterate_records

_KEPT = {
    "latents": ("sample", "work", "values_sha256", "prompt_cut"),
    "videos": ("sample", "key", "sha256", "bytes", "shape"),
    "scores": ("sample", "key", "video", "value", "seconds"),
}
"""The fields of each kind of record that tables and checks need. A campaign has too many records to hold them whole."""

_NOTHING = object()

_ABOUT: dict[str, Any] = {"arm": str, "prompt": str, "seed": int}
_FORM: dict[str, dict[str, Any]] = {
    "latents": _ABOUT | {"sample": str, "work": dict},
    "videos": _ABOUT | {"sample": str, "key": str, "sha256": str, "bytes": int, "encoder": (str, dict)},
    "scores": _ABOUT | {"dimension": str, "sample": str, "video": str, "value": (int, float, NoneType)},
    "choices": _ABOUT | {"round": int, "candidates": list, "kept": list},
}
"""Kind → field → what it is, of the fields that every version has written."""


@dataclass
class Results:
    """Records, as far as tables need them, by what they are about: arm, prompt and seed.

    plan : the document of `plan.json`.
    memory : (arm, phase, owner) → the most that any sample's record tells. Figures of the machine that computed, so
        not the same in another campaign.
    choices : (searched arm, round, prompt, seed) → what was kept of which candidates.
    device_seconds : how long models had their device to make a video. Of a bulk campaign, so an account of what was
        occupied, and no latency.
    """

    plan: dict[str, Any]
    latents: dict[tuple[str, str, int], Record] = field(default_factory=dict)
    videos: dict[tuple[str, str, int], Record] = field(default_factory=dict)
    scores: dict[str, dict[tuple[str, str, int], Record]] = field(default_factory=lambda: defaultdict(dict))
    memory: dict[tuple[str, str, str], Held] = field(default_factory=dict)
    choices: dict[tuple[str, int, str, int], Record] = field(default_factory=dict)
    device_seconds: dict[tuple[str, str, int], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, records: Iterable[Record]) -> None:
        """Sort records in; a second one about the same thing is an error, not a choice.

        Raises
        ------
        Damaged : there is such a second one, or one that lacks what it is to tell.
        """
        for record in records:
            _refuse_formless(record)
            about = (record["arm"], record["prompt"], record["seed"])
            kind = record["kind"]
            place = self._place(record)
            key = (record["arm"], record["round"], *about[1:]) if kind == "choices" else about
            if key in place:
                raise Damaged(
                    f"there are two {kind} records for arm {about[0]!r}, prompt {about[1]!r}, seed {about[2]}",
                    remedy="Delete the manifests of this arm and start again",
                )
            if kind == "choices":
                place[key] = record
                continue
            # Some latents were made before their records had all of these.
            place[about] = {name: record[name] for name in _KEPT[kind] if name in record}
            if kind == "videos":
                place[about]["encoding"] = encoding_of(record)
            # A video's record holds that of its decoding. What an earlier version put into the store tells nothing.
            for part in (record, record.get("decoded", {})):
                if kind != "scores":
                    seconds = part.get("seconds", {})
                    self.device_seconds[about] += sum(seconds.get(phase, 0.0) for phase in DEVICE_PHASES)
                for phase, owners in part.get("memory", {}).items():
                    for owner, held in owners.items():
                        held_by = (record["arm"], phase, owner)
                        self.memory[held_by] = most(self.memory.get(held_by), held)

    def _place(self, record: Record) -> dict[Any, Record]:
        """Where a record belongs."""
        found: dict[Any, Record] = getattr(self, record["kind"])
        return self.scores[record["dimension"]] if record["kind"] == "scores" else found

    @property
    def arms(self) -> list[str]:
        return list(self.plan["conditions"])

    @property
    def dimensions(self) -> list[str]:
        return list(self.plan["scorers"])

    @property
    def seeds(self) -> Seeds:
        return Seeds.of_plan(self.plan)

    @property
    def planned(self) -> Iterator[tuple[str, int]]:
        """Every prompt and seed, in the order of the plan."""
        seeds = self.seeds
        return ((prompt["text"], seed) for prompt in self.plan["prompts"] for seed in seeds.of(prompt["dimensions"]))

    def values(self, arm: str, dimension: str) -> dict[tuple[str, int], float]:
        """(prompt, seed) → score, in the order of the plan's prompts and seeds; without videos that have none."""
        records = self.scores[dimension]
        return {
            about: record["value"]
            for about in self.planned
            if (record := records.get((arm, *about))) and record["value"] is not None
        }


def read_results(plan: dict[str, Any], manifests: Iterable[Path | str]) -> Results:
    """The results in some manifests; `plan` is the plan's document.

    Raises
    ------
    PurgedScratch, Damaged : a manifest has gone, isn't whole, or its records aren't those of a campaign.
    """
    results = Results(plan)
    for manifest in manifests:
        try:
            results.add(iterate_records(Path(manifest)))
        except Damaged as error:
            raise error.located(manifest) from None
    return results


def _refuse_formless(record: Any) -> None:
    """Raises Damaged where a record isn't of a kind that `Results` holds, or lacks a field of its kind."""
    remedy = "Make the file anew; no version of Fleetcraft has written such a record"
    form = _FORM.get(str(record.get("kind"))) if isinstance(record, dict) else None
    if form is None:
        raise Damaged("this is no record of latents, videos, scores or choices", value=record, remedy=remedy)
    for name, expected in form.items():
        if not isinstance(record.get(name, _NOTHING), expected):
            raise Damaged(
                f"a {record['kind']} record lacks its {name!r}, or has none that can be one",
                value=record,
                remedy=remedy,
            )


def make_tables(results: Results) -> dict[str, str]:
    """Name → CSV text: `scores`, `paired`, `encoders`, `compute`, `memory` and `samples`.

    Raises
    ------
    BadResult : an arm didn't do what it says (`fleetcraft.analysis.idle_arms`).
    BadInput : existing videos aren't encoded as the experiment says (`fleetcraft.analysis.encodings`).
    """
    refuse_idle_arms(results)
    return {
        "scores": _scores(results),
        "paired": _paired(results),
        "encoders": csv_text(ENCODERS, encoders_rows(results)),
        "compute": _compute(results),
        "memory": memory_table(results),
        "samples": _samples(results),
    }


def _scores(results: Results) -> str:
    rows = []
    for arm in results.arms:
        for dimension in results.dimensions:
            values = results.values(arm, dimension)
            if values:
                rows.append([arm, dimension, len(values), *interval(mean_over_prompts(by_prompt(values)))])
    return csv_text(["arm", "dimension", "videos", "mean", "low", "high"], rows)


def _paired(results: Results) -> str:
    """Differences to the baseline, pair by pair of the same prompt and seed, of arms that were encoded alike."""
    baseline, apart, rows = results.plan["baseline"], not_compared(results), []
    for arm in (arm for arm in results.arms if arm not in apart):
        for dimension in results.dimensions:
            ours, theirs = results.values(arm, dimension), results.values(baseline, dimension)
            differences = {about: ours[about] - theirs[about] for about in ours if about in theirs}
            if arm != baseline and differences:
                mean = mean_over_prompts(by_prompt(differences))
                rows.append([arm, baseline, dimension, len(differences), *interval(mean)])
    return csv_text(["arm", "baseline", "dimension", "pairs", "mean_difference", "low", "high"], rows)


def _compute(results: Results) -> str:
    """What the transformer did, counted and not timed: a bulk campaign says nothing about latency."""
    rows = []
    for arm in results.arms:
        records = [record for (owner, _, _), record in results.latents.items() if owner == arm]
        works = [record["work"] for record in records]
        if works:
            shares = [_share(works, unit) for unit in UNITS]
            # More than one where torch had the choice and chose differently, by device for example.
            kernels = " or ".join(sorted({"+".join(work["attention"]) for work in works if "attention" in work}))
            cut = sum(record.get("prompt_cut", False) for record in records)
            counts = [_mean(works, "forwards"), _mean(works, "flops_computed"), *shares]
            rows.append([arm, len(works), *counts, kernels, cut])
    columns = ["arm", "videos", "forwards_per_video", "flops_per_video", *(f"share_of_{unit}" for unit in UNITS)]
    return csv_text([*columns, "attention", "cut_prompts"], rows)


def _mean(works: list[dict[str, Any]], field: str) -> str:
    """Empty where a record of an earlier version lacks the field."""
    if not all(field in work for work in works):
        return ""
    return f"{sum(work[field] for work in works) / len(works):.0f}"


def _share(works: list[dict[str, Any]], unit: str) -> str:
    computed, possible = f"{unit}_computed", f"{unit}_possible"
    if not all(computed in work for work in works):
        return ""
    return number(sum(work[computed] for work in works) / sum(work[possible] for work in works))


def memory_table(results: Results) -> str:
    """The most that each phase and each owner in it held in any sample of an arm, in MiB; empty where not measured."""
    keys = sorted(
        (key for key in results.memory if key[0] in results.plan["conditions"]),
        key=lambda key: (results.arms.index(key[0]), PHASES.index(key[1]), key[2] != PEAK, key[2]),
    )
    figures = ("host_mb", "device_mb")
    rows = [
        [*key, *("" if (value := results.memory[key][name]) is None else f"{value:.3f}" for name in figures)]
        for key in keys
    ]
    return csv_text(["arm", "phase", "owner", *figures], rows)


def _samples(results: Results) -> str:
    rows = []
    for arm in results.arms:
        for prompt, seed in results.planned:
            about = (arm, prompt, seed)
            if about not in results.videos:
                continue
            video = results.videos[about]
            scores = [results.scores[dimension].get(about) for dimension in results.dimensions]
            rows.append(
                [*about, video["sample"], video["sha256"]]
                + ["" if score is None or score["value"] is None else number(score["value"]) for score in scores]
            )
    return csv_text(["arm", "prompt", "seed", "sample", "video_sha256", *results.dimensions], rows)


def by_prompt(values: dict[tuple[str, int], float]) -> dict[str, list[float]]:
    """Prompt → the values of all its seeds."""
    grouped: dict[str, list[float]] = defaultdict(list)
    for (prompt, _), value in values.items():
        grouped[prompt].append(value)
    return grouped


def interval(mean: Mean) -> list[str]:
    """The cells of a mean: itself and its bounds, empty where it has none."""
    return [number(mean.value), *("" if bound is None else number(bound) for bound in (mean.low, mean.high))]


def number(value: float) -> str:
    """As tables have it: six decimals."""
    return f"{value:.6f}"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
