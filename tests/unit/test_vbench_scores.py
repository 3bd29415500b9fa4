"""VBench's scores from records: as upstream aggregates and normalises them, refused where anything is missing."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import list_digests
from conclusions import conclude
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcraft.analysis import statistics
from fleetcraft.analysis.tables import Results, make_tables
from fleetcraft.analysis.vbench import official_results, vbench_table
from fleetcraft.evidence.archive import MANIFEST
from fleetcraft.evidence.verify import verify
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.records import Record, read_records
from fleetcraft.ground.repository import RESOURCES
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.scoring.vbench_dimensions import COMPOSITES, VBENCH, combined, missing

# In percent. Scores: VBench++ (arXiv 2411.13503), Table II; quality, semantic and total: Goku (arXiv 2502.04896),
# Table 7. `official` is what upstream's own script gives for these rounded scores.
LEADERBOARD: dict[str, dict[str, list[float]]] = {
    "Show-1": {
        "quality": [95.53, 98.02, 99.12, 98.24, 44.44, 57.35, 58.66],
        "semantic": [93.07, 45.47, 95.60, 86.35, 53.50, 47.03, 23.06, 25.28, 27.46],
        "official": [80.4245, 72.9767, 78.9350],
        "published": [80.42, 72.98, 78.93],
    },
    "VideoCrafter-2.0": {
        "quality": [96.85, 98.22, 98.41, 97.73, 42.50, 63.13, 67.22],
        "semantic": [92.55, 40.66, 95.00, 92.92, 35.86, 55.29, 25.13, 25.84, 28.23],
        "official": [82.1971, 73.4182, 80.4414],
        "published": [82.20, 73.42, 80.44],
    },
    "Kling": {
        "quality": [98.33, 97.60, 99.30, 99.40, 46.94, 61.21, 65.62],
        "semantic": [87.24, 68.05, 93.40, 89.90, 73.03, 50.86, 19.62, 24.17, 26.42],
        "official": [83.3854, 75.6761, 81.8435],
        "published": [83.39, 75.68, 81.85],
    },
    "Gen-3": {
        "quality": [97.10, 96.62, 98.61, 99.23, 60.14, 63.34, 66.82],
        "semantic": [87.81, 53.64, 96.40, 80.90, 65.09, 54.57, 24.31, 24.71, 26.69],
        "official": [84.1112, 75.1690, 82.3228],
        "published": [84.11, 75.17, 82.32],
    },
}
"""The dimensions of each group are in the order of `VBENCH`."""


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def normalised_of(model: str) -> dict[str, float]:
    scores = zip(VBENCH.values(), LEADERBOARD[model]["quality"] + LEADERBOARD[model]["semantic"], strict=True)
    return {dimension.name: dimension.normalised(score / 100) for dimension, score in scores}


@pytest.mark.parametrize("model", LEADERBOARD)
def test_the_leaderboard_s_rows_come_out(model: str) -> None:
    normalised = normalised_of(model)
    for place, composite in enumerate(("quality", "semantic", "total")):
        ours = 100 * combined(composite, normalised)
        assert ours == pytest.approx(LEADERBOARD[model]["official"][place], abs=0.0001)
        assert ours == pytest.approx(LEADERBOARD[model]["published"][place], abs=0.015)


@pytest.mark.parametrize("lost", VBENCH)
def test_nothing_is_totalled_without_one_of_its_dimensions(lost: str) -> None:
    normalised = normalised_of("Kling")
    del normalised[lost]
    mine, other = ("quality", "semantic") if lost in COMPOSITES["quality"] else ("semantic", "quality")
    for composite in (mine, "total"):
        with pytest.raises(BadResult, match=f"no VBench {composite} without {lost}"):
            combined(composite, normalised)
    assert combined(other, normalised) == combined(other, normalised_of("Kling"))


@pytest.mark.parametrize("stranger", ["proxy-subject_consistency", "ssim"])
def test_what_is_no_dimension_of_vbench_enters_nothing(stranger: str) -> None:
    with pytest.raises(BadResult, match=f"'{stranger}' is no dimension of VBench"):
        combined("total", normalised_of("Kling") | {stranger: 0.9})
    assert "subject_consistency" in missing("total", ["proxy-subject_consistency"])


def test_the_registry_knows_the_suite_and_what_can_be_scored() -> None:
    suite = json.loads((RESOURCES / "prompts/vbench.json").read_text())["prompts"]
    counted = Counter(dimension for entry in suite for dimension in entry["dimensions"])
    assert {name: dimension.prompts for name, dimension in VBENCH.items()} == counted
    assert sorted([*COMPOSITES["quality"], *COMPOSITES["semantic"]]) == sorted(VBENCH)
    assert (sum(COMPOSITES["quality"].values()), sum(COMPOSITES["semantic"].values())) == (6.5, 9)
    assert {name for name, known in DIMENSIONS.items() if known.scorer == "vbench" and not known.proxy} == VBENCH.keys()


VIDEOS = st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=40), min_size=1, max_size=6)
"""Videos, each as what was measured of its frames or from frame to frame."""


@given(VIDEOS)
def test_where_upstream_averages_over_all_frames_a_long_video_counts_more(videos: list[list[float]]) -> None:
    # As compute_subject_consistency and compute_appearance_style do on one device: one sum over everything.
    everything = np.mean([value for video in videos for value in video])
    steps = [(float(np.mean(video)), len(video) + 1) for video in videos]
    frames = [(float(np.mean(video)), len(video)) for video in videos]
    assert VBENCH["subject_consistency"].aggregate(steps) == pytest.approx(everything)
    assert VBENCH["background_consistency"].aggregate(steps) == pytest.approx(everything)
    assert VBENCH["appearance_style"].aggregate(frames) == pytest.approx(everything)


@given(VIDEOS)
def test_elsewhere_every_video_counts_alike_however_long(videos: list[list[float]]) -> None:
    results = [(float(np.mean(video)), len(video)) for video in videos]
    alike = np.mean([result for result, _ in results])
    by_frames = {"subject_consistency", "background_consistency", "appearance_style", "imaging_quality"}
    for name in VBENCH.keys() - by_frames:
        assert VBENCH[name].aggregate(results) == pytest.approx(alike)
    percentages = [(100 * result, frames) for result, frames in results]
    assert VBENCH["imaging_quality"].aggregate(percentages) == pytest.approx(alike)


# ---------------------------------------------------------------------- campaigns

ScoreOf = Callable[[str, str, str, int], "float | None"]
"""What an arm's video of a prompt and seed scores in a dimension; None where there is no record."""


def suite_prompts() -> list[dict[str, Any]]:
    merged: dict[str, set[str]] = {}
    for entry in json.loads((RESOURCES / "prompts/vbench.json").read_text())["prompts"]:
        merged.setdefault(entry["prompt"], set()).update(entry["dimensions"])
    return [{"text": text, "dimensions": sorted(dimensions)} for text, dimensions in merged.items()]


def campaign(
    score: ScoreOf,
    prompts: list[dict[str, Any]],
    dimensions: list[str],
    *,
    arms: tuple[str, ...] = ("full", "fast"),
    seeds: tuple[int, ...] = (0, 1),
    further: dict[str, list[int]] | None = None,
) -> Results:
    results = Results(
        {
            "baseline": arms[0],
            "conditions": {arm: {} for arm in arms},
            "scorers": {dimension: {} for dimension in dimensions},
            "prompts": prompts,
            "seeds": list(seeds),
            **({"further_seeds": further} if further else {}),
        }
    )

    def records() -> Iterator[Record]:
        samples = [(prompt, seed) for prompt in prompts for seed in results.seeds.of(prompt["dimensions"])]
        for arm, (prompt, seed) in itertools.product(arms, samples):
            about = {"arm": arm, "prompt": prompt["text"], "seed": seed, "sample": "s"}
            encoder = {"codec": "libx264", "pixel_format": "yuv420p", "crf": 18}
            video = {"key": "k", "sha256": "0", "bytes": 1, "shape": [9, 64, 64, 3], "encoder": encoder}
            yield {"kind": "videos", **video, **about}
            for dimension in dimensions:
                suited = DIMENSIONS[dimension].suited if dimension in DIMENSIONS else dimension
                if not prompt["dimensions"] or (
                    suited in prompt["dimensions"] and seed in results.seeds.scored(suited)
                ):
                    value = score(arm, dimension, prompt["text"], seed)
                    yield {"kind": "scores", "dimension": dimension, "video": "k", "value": value, **about}

    results.add(records())
    return results


def noise(arm: str, dimension: str, prompt: str, seed: int) -> float:
    """The same in all arms."""
    if dimension == "static_filter":
        return 1.0
    value = (sum(map(ord, f"{dimension}{prompt}")) * 7919 + 31 * seed) % 1000 / 1000
    if VBENCH[dimension].per_video == "yes_or_no":
        return float(value > 0.5)
    return value * (100 if VBENCH[dimension].per_video == "percentage" else 1)


def of(table: str, arm: str) -> dict[str, dict[str, str]]:
    return {row["dimension"]: row for row in rows(table) if row["arm"] == arm}


def static(count: int) -> list[dict[str, Any]]:
    return [{"text": f"prompt {number}", "dimensions": ["temporal_flickering"]} for number in range(count)]


@pytest.fixture(scope="module")
def whole() -> dict[str, dict[str, str]]:
    """The first arm of a campaign over the whole suite in all dimensions, as VBench's standard protocol has it."""
    dimensions, further = [*VBENCH, "static_filter"], {"temporal_flickering": list(range(5, 25))}
    made = campaign(noise, suite_prompts(), dimensions, arms=("full",), seeds=tuple(range(5)), further=further)
    return of(vbench_table(made), "full")


def test_the_whole_suite_gives_all_dimensions_and_totals_and_says_that_it_is(whole: dict[str, dict[str, str]]) -> None:
    assert list(whole) == [*VBENCH, "quality", "semantic", "total"]
    assert {row["note"] for row in whole.values()} == {"standard protocol"}
    assert whole["color"]["videos"] == str(85 * 5)
    assert whole["temporal_flickering"]["videos"] == str(75 * 5), "the first five of those that are still"
    for name, dimension in VBENCH.items():
        assert float(whole[name]["normalised"]) == pytest.approx(
            dimension.normalised(float(whole[name]["score"])), abs=1e-5
        )
    normalised = {name: float(whole[name]["normalised"]) for name in VBENCH}
    for composite in COMPOSITES:
        assert float(whole[composite]["normalised"]) == pytest.approx(combined(composite, normalised), abs=1e-5)
        assert float(whole[composite]["low"]) < float(whole[composite]["normalised"]) < float(whole[composite]["high"])


def test_a_total_is_surer_than_the_dimensions_that_it_is_made_of(whole: dict[str, dict[str, str]]) -> None:
    def width(name: str) -> float:
        return float(whole[name]["high"]) - float(whole[name]["low"])

    # Semantic dimensions have prompts of their own, nearly: variances of independent means add up.
    independent = np.sqrt(sum(width(name) ** 2 for name in COMPOSITES["semantic"])) / 9
    assert width("semantic") == pytest.approx(independent, rel=0.1)
    assert width("total") < width("quality")


def test_dimensions_of_the_same_prompts_are_resampled_together() -> None:
    prompts = [{"text": f"prompt {number}", "dimensions": sorted(VBENCH)} for number in range(30)]

    def opposed(arm: str, dimension: str, prompt: str, seed: int) -> float:
        """What quality gains by one dimension it loses by another."""
        value, known = int(prompt.split()[1]) / 30, VBENCH[dimension]
        if dimension in {"aesthetic_quality", "temporal_flickering"}:
            part = value if dimension == "aesthetic_quality" else 1 - value
            return part * (known.maximum - known.minimum) + known.minimum
        return 0.0

    table = of(vbench_table(campaign(opposed, prompts, list(VBENCH), arms=("full",))), "full")
    assert float(table["aesthetic_quality"]["high"]) - float(table["aesthetic_quality"]["low"]) > 0.1
    assert table["quality"]["low"] == table["quality"]["high"] == table["quality"]["normalised"]


def test_a_total_with_missing_dimensions_is_no_number_and_the_row_names_them() -> None:
    scored = [name for name in VBENCH if name not in {"color", "scene"}]
    prompts = suite_prompts()
    table = of(vbench_table(campaign(noise, prompts, scored, arms=("full",))), "full")
    assert table["quality"]["normalised"]
    assert table["quality"]["note"] == "not all of these dimensions follow the standard protocol"
    for composite in ("semantic", "total"):
        assert table[composite]["note"] == "not computed without color, scene"
        assert not any(table[composite][column] for column in ("score", "normalised", "low", "high", "difference"))


def test_a_total_of_less_than_the_suite_says_so_and_others_are_not_suspected() -> None:
    table = of(vbench_table(campaign(noise, suite_prompts(), list(VBENCH), seeds=tuple(range(5)))), "fast")
    assert table["temporal_flickering"]["note"] == "5 videos a prompt in place of 25, without static_filter"
    notes = {name: table[name]["note"] for name in COMPOSITES}
    lacking = "not all of these dimensions follow the standard protocol"
    assert notes == {"quality": lacking, "semantic": "standard protocol", "total": lacking}
    assert {table[name]["difference"] for name in COMPOSITES} == {"0.000000"}


def test_a_proxy_s_scores_are_no_row_and_stand_for_no_dimension() -> None:
    stand_in = "proxy-temporal_flickering"
    prompts = [{"text": prompt["text"], "dimensions": []} for prompt in static(3)]
    made = campaign(lambda *_: 0.5, prompts, [stand_in, "ssim"])
    assert rows(vbench_table(made)) == []
    assert official_results(made) == {}


def test_a_dimension_without_all_of_its_scores_has_none_and_says_how_many_lack() -> None:
    def lossy(arm: str, dimension: str, prompt: str, seed: int) -> float | None:
        return None if (arm, prompt, seed) == ("fast", "prompt 1", 0) else 0.9

    made = campaign(lossy, static(3), ["temporal_flickering"])
    row = of(vbench_table(made), "fast")["temporal_flickering"]
    assert (row["videos"], row["score"], row["normalised"], row["difference"]) == ("5", "", "", "")
    assert row["note"] == "no score: 1 of 6 videos have none"
    assert json.loads(official_results(made)["fast"]) == {}
    assert list(json.loads(official_results(made)["full"])) == ["temporal_flickering"]


def test_videos_that_upstream_can_not_tell_of_are_left_out_as_upstream_does() -> None:
    prompts = [{"text": f"prompt {number}", "dimensions": ["color"]} for number in range(4)]
    made = campaign(
        lambda arm, dimension, prompt, seed: None if prompt == "prompt 0" else 0.25 + seed / 2, prompts, ["color"]
    )
    row = of(vbench_table(made), "full")["color"]
    assert (row["videos"], row["score"]) == ("6", "0.500000")
    nowhere = of(vbench_table(campaign(lambda *_: None, prompts, ["color"])), "full")["color"]
    assert (nowhere["score"], nowhere["note"]) == ("", "no score: 8 of 8 videos have none")


def test_the_part_of_the_suite_that_was_scored_is_told() -> None:
    made = campaign(noise, static(8), ["temporal_flickering"])
    note = "8 of the suite's 75 prompts, 2 videos a prompt in place of 25, without static_filter"
    assert of(vbench_table(made), "full")["temporal_flickering"]["note"] == note
    assert json.loads(official_results(made)["full"])["temporal_flickering"][2] == note
    made.plan["prompts"] = [prompt | {"dimensions": []} for prompt in made.plan["prompts"]]
    assert of(vbench_table(made), "full")["temporal_flickering"]["note"] == "the prompts are not those of the suite"


STILL = st.dictionaries(st.integers(0, 24), st.booleans(), min_size=25)


@settings(max_examples=25)
@given(first=STILL, second=STILL)
def test_flickering_counts_the_first_five_still_videos_of_a_prompt_in_the_order_of_their_names(
    first: dict[int, bool], second: dict[int, bool]
) -> None:
    still = {"prompt 0": first, "prompt 1": second}

    def score(arm: str, dimension: str, prompt: str, seed: int) -> float:
        return float(still[prompt][seed]) if dimension == "static_filter" else seed / 32

    dimensions, further = ["temporal_flickering", "static_filter"], {"temporal_flickering": list(range(5, 25))}
    made = campaign(score, static(2), dimensions, arms=("full",), seeds=tuple(range(5)), further=further)
    # What upstream's script does: names in their order, -1 before -10 before -2, and five of a prompt at most.
    kept = [
        name
        for prompt, verdicts in still.items()
        for name in sorted(f"{prompt}-{seed}.mp4" for seed in range(25) if verdicts[seed])[:5]
    ]
    row, official = of(vbench_table(made), "full")["temporal_flickering"], json.loads(official_results(made)["full"])
    if not kept:
        assert (row["score"], row["note"]) == ("", "no score: static_filter keeps none of 50 videos")
        assert official == {}
        return
    aggregate, videos, departures = official["temporal_flickering"]
    assert {video["video_path"] for video in videos} == set(kept)
    assert aggregate == pytest.approx(np.mean([int(name[9:-4]) / 32 for name in kept]))
    assert row["videos"] == str(len(kept))
    assert departures == "2 of the suite's 75 prompts"
    few = sum(sum(verdicts.values()) < 5 for verdicts in still.values())
    said = f"; {few} of 2 prompts have fewer than 5 still videos" if few else ""
    assert row["note"] == departures + said


def test_a_video_without_a_verdict_leaves_the_dimension_without_a_score() -> None:
    def lossy(arm: str, dimension: str, prompt: str, seed: int) -> float | None:
        return None if dimension == "static_filter" and (prompt, seed) == ("prompt 1", 0) else 1.0

    row = of(vbench_table(campaign(lossy, static(3), ["temporal_flickering", "static_filter"])), "full")
    assert row["temporal_flickering"]["score"] == ""
    assert row["temporal_flickering"]["note"] == "no score: 1 of 6 videos have none"
    assert "static_filter" not in row


def test_a_filter_with_other_weights_than_upstream_s_filters_nothing() -> None:
    dimensions = ["temporal_flickering", "proxy-static_filter"]
    made = campaign(lambda arm, dimension, *_: float(dimension in VBENCH), static(3), dimensions)
    row = of(vbench_table(made), "full")["temporal_flickering"]
    assert (row["videos"], row["score"]) == ("6", "1.000000")
    assert "without static_filter" in row["note"]


def test_the_experiment_of_the_standard_protocol_has_all_that_it_asks_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    plan = plan_of_file(root / "config/experiments/vbench-standard.yaml", without_weights=True)
    assert {*plan.dimensions} == {*VBENCH, "static_filter"}
    assert plan.sample_count == 944 * 5 + 75 * 20
    for name, dimension in VBENCH.items():
        assert sum(name in prompt.dimensions for prompt in plan.prompts) == dimension.prompts
        assert len(plan.seeds.scored(name)) == dimension.videos


def test_more_videos_than_the_protocol_has_are_told_too() -> None:
    prompts = [prompt for prompt in suite_prompts() if "scene" in prompt["dimensions"]]
    row = of(vbench_table(campaign(noise, prompts, ["scene"], seeds=tuple(range(6)))), "full")["scene"]
    assert row["note"] == "6 videos a prompt in place of 5"


def test_videos_that_were_chosen_among_candidates_do_not_follow_the_protocol() -> None:
    prompts = [prompt for prompt in suite_prompts() if "scene" in prompt["dimensions"]]
    made = campaign(noise, prompts, ["scene"], seeds=tuple(range(5)))
    search = {"candidates": 4, "rounds": [{"arm": "full"}], "verifier": "scene", "recommit": "full"}
    made.plan["conditions"]["fast"] = {"search": search}
    notes = {arm: of(vbench_table(made), arm)["scene"]["note"] for arm in ("full", "fast")}
    assert notes == {"full": "standard protocol", "fast": "each video chosen among 4 candidates"}


def test_a_dimension_s_interval_is_that_of_the_table_of_scores_on_another_scale() -> None:
    made = campaign(noise, static(12), ["temporal_flickering"])
    (raw, _), dimension = rows(make_tables(made)["scores"]), VBENCH["temporal_flickering"]
    row = of(vbench_table(made), "full")["temporal_flickering"]
    assert row["score"] == raw["mean"]
    for bound in ("low", "high"):
        assert float(row[bound]) == pytest.approx(dimension.normalised(float(raw[bound])), abs=1e-5)


def test_differences_are_of_pairs_so_a_constant_one_is_exact_although_scores_vary() -> None:
    def shifted(arm: str, dimension: str, prompt: str, seed: int) -> float:
        known = VBENCH[dimension]
        return noise(arm, dimension, prompt, seed) + (known.maximum - known.minimum) / 10 * (arm == "fast")

    made = campaign(shifted, static(12), ["temporal_flickering"])
    full, fast = (of(vbench_table(made), arm)["temporal_flickering"] for arm in ("full", "fast"))
    assert full["difference"] == full["difference_low"] == ""
    assert fast["difference"] == fast["difference_low"] == fast["difference_high"] == "0.100000"
    assert float(fast["low"]) < float(fast["normalised"]) < float(fast["high"])


def test_a_single_prompt_has_a_score_and_no_interval() -> None:
    row = of(vbench_table(campaign(noise, static(1), ["temporal_flickering"])), "fast")["temporal_flickering"]
    assert row["normalised"]
    assert (row["low"], row["high"], row["difference_low"]) == ("", "", "")


def with_dimensions(*dimensions: str, count: int = 1, name: str = "prompt") -> list[dict[str, Any]]:
    return [{"text": f"{name} {number} of {dimensions}", "dimensions": [*dimensions]} for number in range(count)]


def test_a_prompt_with_dimensions_like_no_other_s_takes_the_interval_from_none_of_them() -> None:
    scored = ["appearance_style", "overall_consistency"]
    suite = [prompt for prompt in suite_prompts() if {*scored} & {*prompt["dimensions"]}]
    both = next(prompt for prompt in suite if {*scored} <= {*prompt["dimensions"]})
    prompts = [both, *[prompt for prompt in suite if prompt["dimensions"] == ["appearance_style"]][:2]]
    table = of(vbench_table(campaign(noise, prompts, scored, arms=("full",))), "full")
    assert float(table["appearance_style"]["low"]) < float(table["appearance_style"]["high"])
    assert table["overall_consistency"]["normalised"]
    assert table["overall_consistency"]["low"] == "", "it has a single prompt"


def test_a_prompt_like_no_other_adds_to_the_spread_as_much_as_any() -> None:
    lone = with_dimensions("aesthetic_quality", "appearance_style")
    prompts = [*lone, *with_dimensions("aesthetic_quality", count=9), *with_dimensions("appearance_style", count=9)]

    def score(arm: str, dimension: str, prompt: str, seed: int) -> float:
        return 0.9 if prompt == lone[0]["text"] else 0.5

    scored = ["aesthetic_quality", "appearance_style"]
    table = of(vbench_table(campaign(score, prompts, scored, arms=("full",))), "full")
    for name in scored:
        assert float(table[name]["low"]) < float(table[name]["normalised"]) < float(table[name]["high"]), name


@pytest.mark.parametrize("third", ["scene", "appearance_style"])
def test_prompts_like_no_other_are_drawn_together(third: str) -> None:
    """Each of them stands for one dimension of its own, too, in which other prompts are sure to be drawn."""
    prompts = [
        *with_dimensions("aesthetic_quality", "appearance_style"),
        *with_dimensions("aesthetic_quality", third, name="other"),
        *with_dimensions("appearance_style", count=4),
        *with_dimensions("scene", count=4),
    ]
    scored = ["aesthetic_quality", "appearance_style", "scene"]
    table = of(vbench_table(campaign(noise, prompts, scored, arms=("full",))), "full")
    assert all(table[name]["low"] for name in scored)


def test_how_many_resamples_are_drawn_at_once_changes_no_bit_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = campaign(noise, suite_prompts()[:200], list(VBENCH))
    monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", 10**9)
    at_once = vbench_table(made)
    monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", 20_000)
    assert vbench_table(made) == at_once


def test_the_official_file_has_upstream_s_shape_values_and_names() -> None:
    dimensions = ["imaging_quality", "dynamic_degree"]
    prompts = [
        {"text": "A/a fantasy landscape", "dimensions": dimensions},
        {"text": "a boat", "dimensions": dimensions},
    ]

    def score(arm: str, dimension: str, prompt: str, seed: int) -> float:
        return 50.0 + seed if dimension == "imaging_quality" else float(seed == 7)

    official = json.loads(official_results(campaign(score, prompts, dimensions, arms=("full",), seeds=(7, 3)))["full"])
    names = ["A∕a fantasy landscape-0.mp4", "A∕a fantasy landscape-1.mp4", "a boat-0.mp4", "a boat-1.mp4"]
    assert list(official) == ["dynamic_degree", "imaging_quality"]
    for number, (aggregate, results) in {
        "imaging_quality": (0.55, [57.0, 53.0] * 2),
        "dynamic_degree": (0.5, [True, False] * 2),
    }.items():
        assert official[number][0] == pytest.approx(aggregate)
        assert official[number][1] == [
            {"video_path": name, "video_results": result} for name, result in zip(names, results, strict=True)
        ]
    assert official["dynamic_degree"][1][0]["video_results"] is True


# ---------------------------------------------------------------------- evidence


@pytest.fixture
def concluded(small: dict[str, Any], plan_of: Callable[[dict[str, Any]], Plan]) -> Plan:
    """A campaign in temporal flickering whose manifests, tables and evidence are there."""
    small["scoring"]["dimensions"] = ["temporal_flickering"]
    return conclude(plan_of(small))


def test_evidence_holds_what_would_be_submitted_and_it_follows_from_the_records(concluded: Plan) -> None:
    evidence = Path(concluded.paths.evidence)
    assert list(verify(evidence)) == []
    file = evidence / "vbench/cached_eval_results.json"
    score, videos, _ = json.loads(file.read_text())["temporal_flickering"]
    scores = [
        record["value"] for record in read_records(evidence / "records/scores.jsonl") if record["arm"] == "cached"
    ]
    assert len(videos) == 6
    assert sorted(video["video_results"] for video in videos) == sorted(scores)
    assert score == pytest.approx(np.mean(scores))


def test_a_filtered_score_with_further_seeds_follows_from_the_records_and_no_other_does(
    small: dict[str, Any], plan_of: Callable[[dict[str, Any]], Plan], tmp_path: Path
) -> None:
    raft = tmp_path / "weights/raft_model/models/raft-things.pth"
    raft.parent.mkdir(parents=True)
    raft.write_text("weights")
    list_digests(tmp_path / "weights")
    small["prompts"] = {"suite": "vbench", "dimensions": ["temporal_flickering"], "limit": 3}
    small["further_seeds"] = {"temporal_flickering": [2, 3, 4]}
    small["video"] = {"width": 128, "height": 128, "frames": 5, "fps": 8}
    small["scoring"] = {"dimensions": ["temporal_flickering", "static_filter"], "weights": str(tmp_path / "weights")}
    evidence = Path(conclude(plan_of(small)).paths.evidence)
    assert list(verify(evidence)) == []
    official, manifest = evidence / "vbench/cached_eval_results.json", evidence / MANIFEST
    score, videos, said = json.loads(official.read_text())["temporal_flickering"]
    assert {video["video_path"][-6:] for video in videos} == {"-0.mp4", "-2.mp4", "-4.mp4"}
    # A video that moves, counted all the same.
    videos.append(videos[0] | {"video_path": videos[0]["video_path"].replace("-0.mp4", "-1.mp4")})
    old = sha256_file(official)
    official.write_text(json.dumps({"temporal_flickering": [score, videos, said]}, indent=4) + "\n")
    manifest.write_text(manifest.read_text().replace(old, sha256_file(official)))
    assert "underived: vbench/cached_eval_results.json is not what the records give" in list(verify(evidence))


@pytest.mark.parametrize("name", ["vbench/cached_eval_results.json", "tables/vbench.csv"])
def test_a_flattering_score_is_found_out_even_with_its_digest_replaced(concluded: Plan, name: str) -> None:
    evidence = Path(concluded.paths.evidence)
    file, manifest = evidence / name, evidence / MANIFEST
    old = sha256_file(file)
    file.write_text(file.read_text().replace("0.9", "0.99", 1))
    manifest.write_text(manifest.read_text().replace(old, sha256_file(file)))
    assert f"underived: {name} is not what the records give" in list(verify(evidence))


def test_a_result_file_that_is_not_there_is_missed(concluded: Plan) -> None:
    evidence = Path(concluded.paths.evidence)
    (evidence / "vbench/full_eval_results.json").unlink()
    lines = (evidence / MANIFEST).read_text().splitlines(keepends=True)
    (evidence / MANIFEST).write_text("".join(line for line in lines if "full_eval_results" not in line))
    assert "incomplete: vbench/full_eval_results.json is not there" in list(verify(evidence))
