"""Tables: from records alone, paired, with intervals, byte for byte the same."""

from __future__ import annotations

import csv
import io
import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.analysis import figures, statistics
from fleetcraft.analysis.encodings import mixed_arms, not_compared
from fleetcraft.analysis.latency import geometric_mean_of_medians
from fleetcraft.analysis.statistics import mean_over_prompts
from fleetcraft.analysis.tables import Results, make_tables, memory_table
from fleetcraft.analysis.vbench import vbench_table
from fleetcraft.experiment import alike
from fleetcraft.ground.errors import BadInput, BadResult, Damaged

OURS = {"codec": "libx264", "pixel_format": "yuv420p", "crf": 18}
PROMPTS, SEEDS, ARMS = ["b", "a", "c"], [0, 1], ["full", "fast"]


def results(score: dict[tuple[str, str, int], float]) -> Results:
    plan = {
        "baseline": "full",
        "conditions": {"full": {"arm": {"cache": None}}, "fast": {"arm": {"cache": {"type": "first_block"}}}},
        "scorers": {"flicker": {}},
        "prompts": [{"text": text, "dimensions": []} for text in PROMPTS],
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


def with_existing(codec: str = "h264", *, same_encoder: bool = False, fps: int = 8, offset: float = 0.0) -> Results:
    """The arm `fast` has existing videos, as a player finds them, which the experiment may vouch for."""
    made = results(scores(offset))
    made.plan["conditions"]["fast"] = {"videos": {}, "geometry": {}}
    made.plan["experiment"] = {"arms": {"full": {}, "fast": {"source": {"same_encoder": same_encoder}}}}
    for arm, prompt, seed in list(made.videos):
        del made.videos[arm, prompt, seed]
        about = {"arm": arm, "prompt": prompt, "seed": seed, "sample": "s", "sha256": "0" * 64, "key": "k", "bytes": 7}
        probe = {"codec": codec if arm == "fast" else "h264", "pixel_format": "yuv420p"}
        how = {"encoder": "foreign" if arm == "fast" else OURS, "probe": probe, "fps": fps if arm == "fast" else 8}
        made.add([{"kind": "videos", **about, **how}])
    return made


def test_existing_videos_are_not_compared_and_the_table_of_encoders_says_why() -> None:
    tables = make_tables(with_existing())
    full, fast = rows(tables["encoders"])
    assert full == {
        **{"arm": "full", "encoder": "libx264 yuv420p", "settings": "crf 18", "fps": "8"},
        **{"videos": "6", "mean_bytes": "7", "compared": "baseline"},
    }
    assert (fast["encoder"], fast["settings"], fast["videos"]) == ("h264 yuv420p", "unknown", "6")
    assert fast["compared"] == "no: how its videos were encoded is unknown"
    assert rows(tables["paired"]) == []
    assert [row["arm"] for row in rows(tables["scores"])] == ["full", "fast"], "scored all the same"


def test_existing_videos_that_somebody_vouches_for_are_compared_and_shown_as_such() -> None:
    tables = make_tables(with_existing(same_encoder=True, offset=0.25))
    assert [row["mean_difference"] for row in rows(tables["paired"])] == ["0.250000"]
    (_, fast) = rows(tables["encoders"])
    assert (fast["settings"], fast["compared"]) == ("vouched for", "yes")


@pytest.mark.parametrize("found", [{"codec": "hevc"}, {"fps": 24}])
def test_a_word_that_the_videos_contradict_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"'arms\.fast\.source\.same_encoder'.*they were not encoded alike"):
        make_tables(with_existing(same_encoder=True, **found))
    make_tables(with_existing(**found))


def mixing(made: Results) -> Results:
    """One of the arm `fast`'s existing videos has another codec."""
    about = next(about for about in made.videos if about[0] == "fast")
    record = made.videos[about]
    record["encoding"] = record["encoding"]._replace(encoder="hevc yuv420p", stream="hevc yuv420p")
    return made


def test_an_arm_that_mixes_codecs_is_told_of() -> None:
    assert mixed_arms(mixing(with_existing())) == {
        "fast": "its videos were not encoded alike: h264 yuv420p (5), hevc yuv420p (1); differences between them may be"
        " the encoder's"
    }
    assert mixed_arms(with_existing()) == {}
    assert mixed_arms(results(scores(0.25))) == {}


@pytest.mark.parametrize("baseline", ["full", "fast"])
def test_nobody_can_vouch_for_an_arm_that_mixes_codecs(baseline: str) -> None:
    made = mixing(with_existing(same_encoder=True))
    made.plan["baseline"] = baseline
    with pytest.raises(
        BadInput,
        match=r"'arms\.fast\.source\.same_encoder'.*the videos of 'fast' are h264 .* or hevc .*: they were not encoded",
    ):
        make_tables(made)
    made.videos = {about: record for about, record in made.videos.items() if about[0] == "fast"}
    with pytest.raises(BadInput, match="they were not encoded alike"):
        not_compared(made)


@pytest.mark.parametrize("other", [{"crf": 30}, {"arguments": [["-preset", "slow"]]}, {"codec": "libx265"}])
def test_arms_with_other_encoder_settings_are_not_compared(other: dict[str, Any]) -> None:
    made = results(scores(0.25))
    for arm, prompt, seed in list(made.videos):
        if arm == "fast":
            record = {"kind": "videos", "arm": arm, "prompt": prompt, "seed": seed, "bytes": 7, "sha256": "0" * 64}
            del made.videos[arm, prompt, seed]
            made.add([record | {"sample": "s", "key": "k", "encoder": OURS | other}])
    tables = make_tables(made)
    assert rows(tables["paired"]) == []
    assert rows(tables["encoders"])[1]["compared"] == (
        "no: its videos were encoded otherwise than those of the baseline 'full'"
    )


@given(vouched=st.sets(st.sampled_from("abcd")), baseline=st.sampled_from("abcd"))
def test_whoever_is_compared_was_encoded_as_the_baseline_was(vouched: set[str], baseline: str) -> None:
    unknown = set("abc") - vouched
    apart = alike.not_compared("abcd", baseline, unknown)
    assert baseline not in apart
    compared = set("abcd") - apart.keys() - {baseline}
    assert not compared & unknown
    assert not (compared and baseline in unknown)
    if not unknown:
        assert apart == {}


def test_vbench_s_table_has_no_difference_of_an_arm_that_is_not_compared() -> None:
    made = with_existing()
    made.plan["scorers"] = {"temporal_flickering": {}}
    made.plan["prompts"] = [{"text": text, "dimensions": []} for text in PROMPTS]
    made.scores["temporal_flickering"] = made.scores.pop("flicker")
    for record in made.videos.values():
        record["shape"] = [9, 32, 32, 3]
    differences = {row["arm"]: row["difference"] for row in rows(vbench_table(made)) if row["score"]}
    assert differences == {"full": "", "fast": ""}
    made.plan["experiment"]["arms"]["fast"]["source"]["same_encoder"] = True
    differences = {row["arm"]: row["difference"] for row in rows(vbench_table(made)) if row["score"]}
    assert differences == {"full": "", "fast": "0.000000"}


def test_the_figure_joins_the_pairs_of_arms_that_are_compared_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure.axes[0]))
    for vouched in (False, True):
        figures.score_figure(with_existing(same_encoder=vouched), "flicker", "flicker", tmp_path / "figure.png")
    apart, joined = drawn
    assert [label.get_text() for label in apart.get_xticklabels()] == ["full", "fast\nnot compared"]
    assert [label.get_text() for label in joined.get_xticklabels()] == ["full", "fast"]
    assert (len(apart.get_lines()), len(joined.get_lines())) == (0, 6)


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
        made.add([{"kind": "latents", "arm": "full", "prompt": "a", "seed": 1, "sample": "s", "work": {}}])


def test_the_interval_resamples_prompts_and_not_videos() -> None:
    # Two prompts whose many seeds agree: there are two independent values, however many videos there are.
    wide: dict[str, Any] = {"a": [0.0] * 50, "b": [1.0] * 50}
    mean = mean_over_prompts(wide)
    assert (mean.value, mean.low, mean.high) == (0.5, 0.0, 1.0)


def test_resamples_of_many_prompts_are_not_held_at_once() -> None:
    values = {str(number): [number % 97 / 97] for number in range(2_000)}
    tracemalloc.start()
    try:
        mean_over_prompts(values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * 2**20, "all at once would be 160 MB of draws"


def test_how_many_resamples_are_drawn_at_once_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {str(number): [1 + number % 7, 1 + number % 11] for number in range(23)}

    def found(at_once: int) -> tuple[object, ...]:
        monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", at_once)
        generator = np.random.default_rng(0)
        drawn = [part for _ in range(2) for _, part in statistics.resampled(23, generator)]
        return mean_over_prompts(values), geometric_mean_of_medians(values), np.concatenate(drawn).tolist()

    assert found(10**9) == found(23 * 777) == found(1000)


def test_a_single_prompt_has_no_interval() -> None:
    mean = mean_over_prompts({"a": [0.25, 0.75]})
    assert (mean.value, mean.low, mean.high) == (0.5, None, None)
