"""Tables: from records alone, paired, with intervals, byte for byte the same."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import pytest

from fleetcraft.analysis.statistics import mean_over_prompts
from fleetcraft.analysis.tables import Results, make_tables, memory_table
from fleetcraft.ground.errors import BadResult, Damaged

OURS = {"codec": "libx264", "pixel_format": "yuv420p", "crf": 18}
PROMPTS, SEEDS, ARMS = ["b", "a", "c"], [0, 1], ["full", "fast"]


def results(score: dict[tuple[str, str, int], float]) -> Results:
    plan = {
        "baseline": "full",
        "conditions": {"full": {"arm": {"cache": None}}, "fast": {"arm": {"cache": {"type": "first_block"}}}},
        "scorers": {"flicker": {}},
        "prompts": [{"text": text} for text in PROMPTS],
        "seeds": SEEDS,
    }
    made = Results(plan)
    for arm, prompt, seed in itertools.product(ARMS, PROMPTS, SEEDS):
        about = {"arm": arm, "prompt": prompt, "seed": seed, "sample": f"{arm}-{prompt}-{seed}"}
        work = {"forwards": 4, "blocks_computed": 8 if arm == "full" else 2, "blocks_possible": 8}
        work |= {"attentions_computed": work["blocks_computed"], "attentions_possible": 8}
        work |= {"flops_computed": 1000 if arm == "full" else 400, "flops_possible": 1000}
        made.add(
            [
                {"kind": "latents", "work": work, "values_sha256": about["sample"], **about},
                {"kind": "videos", "sha256": "0" * 64, "key": "k", "bytes": 1000 + seed, "encoder": OURS, **about},
                {"kind": "scores", "dimension": "flicker", "video": "k", "value": score[arm, prompt, seed], **about},
            ]
        )
    return made


def scores(offset: float) -> dict[tuple[str, str, int], float]:
    return {
        (arm, prompt, seed): 0.1 * number + seed / 100 + (offset if arm == "fast" else 0.0)
        for arm in ARMS
        for number, prompt in enumerate(PROMPTS)
        for seed in SEEDS
    }


def test_an_arm_whose_cache_saved_nothing_is_no_row_in_a_table() -> None:
    made = results(scores(0.25))
    for record in made.latents.values():
        for unit in ("blocks", "attentions", "flops"):
            record["work"][f"{unit}_computed"] = record["work"][f"{unit}_possible"]
    with pytest.raises(BadResult, match=r"'arms\.fast\.cache'.*everything was computed in all 6 videos"):
        make_tables(made)


def test_an_arm_whose_cache_saved_half_a_batch_and_no_whole_block_did_save_something() -> None:
    made = results(scores(0.25))
    for record in made.latents.values():
        for unit in ("blocks", "attentions"):
            record["work"][f"{unit}_computed"] = record["work"][f"{unit}_possible"]
    assert rows(make_tables(made)["compute"])[1]["share_of_flops"] == "0.400000"


def same_latents(made: Results, prompts: list[str]) -> Results:
    for (_, prompt, seed), record in made.latents.items():
        record["values_sha256"] = f"{prompt}-{seed}" if prompt in prompts else record["sample"]
    return made


def test_an_arm_whose_setting_changed_no_latents_is_no_row_in_a_table() -> None:
    make_tables(same_latents(results(scores(0.25)), PROMPTS[:2]))
    made = same_latents(results(scores(0.25)), PROMPTS)
    with pytest.raises(
        BadResult, match=r"'arms\.fast\.cache'.*changed nothing: all latents are those of the arm 'full'"
    ):
        make_tables(made)
    made.plan["conditions"]["fast"]["arm"] = {"cache": None, "scheduler": "UniPCMultistepScheduler"}
    with pytest.raises(BadResult, match=r"'arms\.fast\.scheduler'.*changed nothing"):
        make_tables(made)
    made.plan["conditions"]["fast"]["arm"] |= {"steps": 9}
    make_tables(made)


def test_records_of_an_earlier_version_leave_what_they_lack_empty() -> None:
    made = results(scores(0.25))
    for record in made.latents.values():
        record["work"] = {key: record["work"][key] for key in ("forwards", "blocks_computed", "blocks_possible")}
        del record["values_sha256"]
    (_, fast) = rows(make_tables(made)["compute"])
    assert (fast["share_of_blocks"], fast["share_of_flops"], fast["flops_per_video"]) == ("0.250000", "", "")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_encoders_are_told_apart_and_a_foreign_one_is_not_known() -> None:
    made = results(scores(0.0))
    for arm, prompt, seed in list(made.videos):
        if arm == "fast":
            del made.videos[arm, prompt, seed]
            about = {"arm": arm, "prompt": prompt, "seed": seed, "sample": "s"}
            foreign = {"encoder": "foreign", "probe": {"codec": "h264", "pixel_format": "yuv420p"}}
            made.add([{"kind": "videos", "sha256": "0" * 64, "key": "k", "bytes": 7, **foreign, **about}])
    full, fast = rows(make_tables(made)["encoders"])
    assert full == {
        **{"arm": "full", "encoder": "libx264 yuv420p", "settings": "crf 18"},
        **{"videos": "6", "mean_bytes": "1000"},
    }
    assert (fast["encoder"], fast["settings"], fast["videos"]) == ("h264 yuv420p", "unknown", "6")


def test_a_constant_difference_is_found_exactly_although_scores_vary() -> None:
    (row,) = rows(make_tables(results(scores(0.25)))["paired"])
    assert row == {
        "arm": "fast",
        "baseline": "full",
        "dimension": "flicker",
        "pairs": "6",
        "mean_difference": "0.250000",
        "low": "0.250000",
        "high": "0.250000",
    }


def test_means_and_counts_are_those_of_the_records() -> None:
    full, fast = rows(make_tables(results(scores(0.0)))["scores"])
    assert (full["arm"], full["videos"], full["mean"]) == ("full", "6", "0.105000")
    assert full["mean"] == fast["mean"]
    assert float(full["low"]) < 0.105 < float(full["high"])


def test_compute_is_counted_and_not_timed() -> None:
    table = rows(make_tables(results(scores(0.0)))["compute"])
    assert [row["share_of_blocks"] for row in table] == ["1.000000", "0.250000"]
    assert [row["share_of_flops"] for row in table] == ["1.000000", "0.400000"]
    assert [row["flops_per_video"] for row in table] == ["1000", "400"]
    assert [row["forwards_per_video"] for row in table] == ["4", "4"]
    assert not any("second" in column or "latency" in column for column in table[0])


def test_an_arm_whose_attention_ran_on_several_kernels_shows_them() -> None:
    made = results(scores(0.0))
    for arm, _, seed in made.latents:
        for prompt in PROMPTS:
            made.latents[arm, prompt, seed]["work"] |= {"attention": ["flash"]}
    made.latents["fast", "c", 1]["work"] = made.latents["fast", "c", 1]["work"] | {"attention": ["flash", "math"]}
    assert [row["attention"] for row in rows(make_tables(made)["compute"])] == ["flash", "flash or flash+math"]


def test_videos_of_prompts_that_were_cut_are_counted() -> None:
    made = results(scores(0.0))
    made.latents["fast", "a", 0]["prompt_cut"] = made.latents["fast", "b", 1]["prompt_cut"] = True
    assert [row["cut_prompts"] for row in rows(make_tables(made)["compute"])] == ["0", "2"]


def test_memory_is_the_most_of_any_sample_by_phase_and_owner_and_empty_where_not_measured() -> None:
    made = Results(results(scores(0.0)).plan)
    for seed, size in ((0, 100.0), (1, 300.0), (2, 200.0)):
        about = {"arm": "fast", "prompt": "a", "seed": seed, "sample": "s"}
        held = {"host_mb": size, "device_mb": None}
        phases = {"denoise": {"feature_cache": {"host_mb": 1.5, "device_mb": 7.0}, "peak": held}}
        decoded = {"memory": {"decode": {"peak": held, "vae": {"host_mb": 5.0, "device_mb": None}}}}
        video = {"kind": "videos", "sha256": "0", "key": "k", "bytes": 7, "encoder": OURS, "decoded": decoded}
        made.add(
            [
                {**video, "memory": {}, **about},
                {"kind": "latents", "work": {}, "memory": phases, **about},
            ]
        )
    # As records were before memory was told by phase.
    made.add([{"kind": "latents", "work": {}, "arm": "fast", "prompt": "b", "seed": 0, "sample": "s"}])
    assert [list(row.values()) for row in rows(memory_table(made))] == [
        ["fast", "denoise", "peak", "300.000", ""],
        ["fast", "denoise", "feature_cache", "1.500", "7.000"],
        ["fast", "decode", "peak", "300.000", ""],
        ["fast", "decode", "vae", "5.000", ""],
    ]


def test_every_sample_has_a_row_in_the_order_of_the_plan() -> None:
    table = rows(make_tables(results(scores(0.0)))["samples"])
    assert [(row["arm"], row["prompt"], int(row["seed"])) for row in table] == list(
        itertools.product(ARMS, PROMPTS, SEEDS)
    )


def test_the_order_of_records_does_not_count() -> None:
    first, second = results(scores(0.1)), results(scores(0.1))
    second.latents = dict(reversed(second.latents.items()))
    second.scores["flicker"] = dict(reversed(second.scores["flicker"].items()))
    assert make_tables(first) == make_tables(second)


def test_two_records_about_one_thing_are_an_error() -> None:
    made = results(scores(0.0))
    with pytest.raises(Damaged, match="two latents records for arm 'full', prompt 'a', seed 1"):
        made.add([{"kind": "latents", "arm": "full", "prompt": "a", "seed": 1}])


def test_the_interval_resamples_prompts_and_not_videos() -> None:
    # Two prompts whose many seeds agree: there are two independent values, however many videos there are.
    wide: dict[str, Any] = {"a": [0.0] * 50, "b": [1.0] * 50}
    mean = mean_over_prompts(wide)
    assert (mean.value, mean.low, mean.high) == (0.5, 0.0, 1.0)


def test_a_single_prompt_has_no_interval() -> None:
    mean = mean_over_prompts({"a": [0.25, 0.75]})
    assert (mean.value, mean.low, mean.high) == (0.5, None, None)
