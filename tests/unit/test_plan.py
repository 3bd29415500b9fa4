"""Keys: what changes them, and what must not."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import list_digests
from experiments import changed
from plans import all_samples

from fleetcraft.analysis.tables import Results
from fleetcraft.evidence.planned import check_samples
from fleetcraft.experiment.conditions import conditions_of
from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.ground.errors import BadInput, MissingWeights
from fleetcraft.ground.paths import Paths
from fleetcraft.ground.toolchain import Toolchain
from fleetcraft.pipelines.interface import DecodeSettings, SpatialTiles
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.stages.describe import describe

PlanOf = Callable[[dict[str, Any]], Plan]


def keys(plan: Plan) -> dict[str, set[str]]:
    samples = list(all_samples(plan))
    return {
        "samples": {sample.sample_id for sample in samples},
        "videos": {plan.video_key(sample) for sample in samples},
        "scores": {
            plan.score_key(sample, dimension)
            for dimension in plan.dimensions
            for arm in plan.arms
            for shard in plan.scored_shards(arm, dimension)
            for sample in plan.scored_samples(arm, dimension, shard)
        },
    }


def test_a_plan_has_every_arm_prompt_and_seed_once(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(small)
    about = [(sample.arm, sample.prompt.text, sample.seed) for sample in all_samples(plan)]
    assert len(about) == len(set(about)) == plan.sample_count == 2 * 3 * 2
    assert len(keys(plan)["samples"]) == 12


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arms.full.steps", 3),
        ("arms.full.guidance", 4.0),
        ("arms.full.dtype", "bfloat16"),
        ("arms.full.negative_prompt", "blurry"),
        ("arms.full.cache", {"type": "first_block", "threshold": 0.9}),
        ("arms.full.attention", "math"),
        ("arms.full.batch", 2),
    ],
)
def test_what_decides_an_arm_s_pixels_changes_that_arm_s_keys_alone(
    small: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    before, after = plan_of(small), plan_of(changed(small, key, value))
    for shard in before.shards:
        assert not set(before.samples("full", shard)) & set(after.samples("full", shard))
        assert before.samples("cached", shard) == after.samples("cached", shard)
        assert before.generate_digest("cached", shard) == after.generate_digest("cached", shard)
        assert before.generate_digest("full", shard) != after.generate_digest("full", shard)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("models.tiny.source.seed", 1),
        ("video.width", 48),
        ("video.frames", 9),
        ("stack.device", "cuda"),
    ],
)
def test_what_decides_all_pixels_changes_every_key(
    small: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    before, after = keys(plan_of(small)), keys(plan_of(changed(small, key, value)))
    assert not any(before[kind] & after[kind] for kind in before)


@pytest.mark.parametrize(("key", "value"), [("encoder.crf", 30), ("video.fps", 24), ("stack.machine", "aarch64")])
def test_the_encoder_changes_videos_and_scores_but_no_sample(
    small: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    before, after = keys(plan_of(small)), keys(plan_of(changed(small, key, value)))
    assert before["samples"] == after["samples"]
    assert not before["videos"] & after["videos"]
    assert not before["scores"] & after["scores"]


TILES = {"width": 16, "height": 16, "stride_width": 8, "stride_height": 8}


@pytest.mark.parametrize(("key", "value"), [("dtype", "bfloat16"), ("tiling", TILES)])
def test_how_latents_are_decoded_changes_videos_and_scores_but_no_sample(
    small: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    before, after = keys(plan_of(small)), keys(plan_of(changed(small, "decode", {key: value})))
    assert before["samples"] == after["samples"]
    assert not before["videos"] & after["videos"]
    assert not before["scores"] & after["scores"]


def test_other_tiles_are_other_videos(small: dict[str, Any], plan_of: PlanOf) -> None:
    one, other = (
        keys(plan_of(changed(small, "decode", {"tiling": TILES | {"stride_width": stride}}))) for stride in (8, 16)
    )
    assert not one["videos"] & other["videos"]


def test_decoding_as_ever_has_the_keys_that_it_had_before_it_could_be_set(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    """Golden: whoever changes this makes every video of every store anew."""
    as_ever = {"dtype": "float32", "tiling": None, "temporal_tiles": None, "slicing": False}
    for document in (small, changed(small, "decode", {}), changed(small, "decode", as_ever)):
        settings = plan_of(document).video_settings("full")
        assert settings["decode"] == {"dtype": "float32", "tiling": False, "slicing": False}


def test_naming_a_preset_s_own_value_changes_nothing(small: dict[str, Any], plan_of: PlanOf) -> None:
    assert keys(plan_of(small)) == keys(plan_of(changed(small, "encoder.crf", 18)))


def test_the_places_and_names_of_things_enter_no_key(small: dict[str, Any], plan_of: PlanOf, tmp_path: Path) -> None:
    moved = changed(small, "paths", {"scratch": str(tmp_path / "s2"), "work": str(tmp_path / "w2")})
    moved["name"] = "renamed"
    moved["models"]["other-name"] = moved["models"].pop("tiny")
    for arm in moved["arms"].values():
        arm["model"] = "other-name"
    assert keys(plan_of(small)) == keys(plan_of(moved))


def test_arms_with_the_same_settings_share_their_samples(small: dict[str, Any], plan_of: PlanOf) -> None:
    small["arms"]["twin"] = copy.deepcopy(small["arms"]["full"])
    plan = plan_of(small)
    ids = {arm: {sample.sample_id for shard in plan.shards for sample in plan.samples(arm, shard)} for arm in plan.arms}
    assert ids["twin"] == ids["full"] != ids["cached"]


@pytest.mark.parametrize("size", [1, 2, 20])
def test_neither_the_size_of_shards_nor_the_order_of_seeds_enters_a_key(
    small: dict[str, Any], plan_of: PlanOf, size: int
) -> None:
    before, other = plan_of(small), plan_of(changed(small, "shard_size", size) | {"seeds": small["seeds"][::-1]})
    assert len(before.shards) != len(other.shards)
    assert keys(other) == keys(before)


def test_a_dimension_that_compares_skips_the_baseline(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(small)
    assert plan.scored_shards("full", "ssim") == []
    assert plan.scored_shards("cached", "ssim") == list(plan.shards)


def test_a_suite_s_dimension_is_scored_on_its_own_prompts_only(small: dict[str, Any], plan_of: PlanOf) -> None:
    small["prompts"] = {"suite": "vbench"}
    small["scoring"] = {"dimensions": ["temporal_flickering", "ssim", "psnr", "mean_frame_difference"]}
    plan = plan_of(small)
    scored = {
        dimension: {
            sample.prompt.text
            for shard in plan.scored_shards("cached", dimension)
            for sample in plan.scored_samples("cached", dimension, shard)
        }
        for dimension in plan.dimensions
    }
    assert len(plan.prompts) == 944
    assert len(scored["temporal_flickering"]) == 75
    assert len(scored["ssim"]) == len(scored["psnr"]) == len(scored["mean_frame_difference"]) == 944


STANDARD = {
    "prompts": {"suite": "vbench", "dimensions": ["temporal_flickering", "human_action"]},
    "scoring": {"dimensions": ["temporal_flickering", "ssim", "mean_frame_difference"]},
}


def test_further_seeds_add_samples_of_some_prompts_and_scores_of_their_dimension_alone(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    before = plan_of(small | STANDARD)
    after = plan_of(small | STANDARD | {"further_seeds": {"temporal_flickering": [2, 3, 4]}})
    assert len(after.prompts) == 175
    assert after.sample_count - before.sample_count == 2 * 75 * 3
    assert after.sample_count == len(list(all_samples(after)))
    for kind, found in keys(before).items():
        assert found < keys(after)[kind]
    # What ran before runs no more: shards have their names and their digests.
    assert list(before.shards) == list(after.shards)[: len(before.shards)]
    for shard in before.shards:
        assert before.generate_digest("full", shard) == after.generate_digest("full", shard)
        assert before.score_digest("full", "temporal_flickering", shard) == after.score_digest(
            "full", "temporal_flickering", shard
        )
    scored = {
        dimension: [
            sample
            for shard in after.scored_shards("cached", dimension)
            for sample in after.scored_samples("cached", dimension, shard)
        ]
        for dimension in after.dimensions
    }
    assert len(scored["temporal_flickering"]) == 75 * 5
    assert {sample.seed for sample in scored["temporal_flickering"]} == {0, 1, 2, 3, 4}
    for dimension in ("ssim", "mean_frame_difference"):
        assert len(scored[dimension]) == 175 * 2
        assert all(after.scored_samples("cached", dimension, shard) for shard in after.scored_shards("full", dimension))
    assert before.digest != after.digest


def test_a_plan_without_further_seeds_has_the_digest_that_it_had_before_there_were_any(
    small: dict[str, Any], plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(changed(small, "further_seeds", {}))
    assert plan.digest == plan_of(small).digest
    hashed: list[Any] = []
    monkeypatch.setattr("fleetcraft.experiment.plan.key_of", lambda value: hashed.append(value) or "")
    del plan.__dict__["digest"]
    assert plan.digest == ""
    names = {"arms", "baseline", "prompts", "seeds", "videos", "scorers", "shard_size"}
    assert hashed[-1].keys() == names, "golden: whoever changes this has every plan written anew"


def test_the_static_filter_judges_the_videos_whose_flickering_is_scored(
    small: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    raft = tmp_path / "weights/raft_model/models/raft-things.pth"
    raft.parent.mkdir(parents=True)
    raft.write_text("weights")
    list_digests(tmp_path / "weights")
    document = small | STANDARD | {"further_seeds": {"temporal_flickering": [5]}}
    document["video"] = {"width": 128, "height": 128, "frames": 5, "fps": 8}
    document["scoring"] = {
        "dimensions": ["temporal_flickering", "static_filter"],
        "weights": str(tmp_path / "weights"),
    }
    plan = plan_of(document)
    assert plan.scored_shards("full", "static_filter") == plan.scored_shards("full", "temporal_flickering")
    for shard in plan.shards:
        assert plan.scored_samples("full", "static_filter", shard) == plan.scored_samples(
            "full", "temporal_flickering", shard
        )
    assert plan.scorer_settings("static_filter")["weights"] == {
        "raft_model/models/raft-things.pth": hashlib.sha256(b"weights").hexdigest()
    }
    with pytest.raises(BadInput, match=r"'video\.width': static_filter needs 128"):
        plan_of(changed(document, "video.width", 64))
    document["scoring"] = {"dimensions": ["temporal_flickering", "static_filter"]}
    with pytest.raises(MissingWeights, match=r"'scoring\.weights': static_filter can't be scored without weights"):
        plan_of(document)


def test_scores_in_stores_keep_their_keys(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(small)
    pinned = Toolchain("diffusion").pinned(["imageio-ffmpeg"])
    assert plan.scorer_settings("ssim") == {"dimension": "ssim", "packages": pinned}


def test_what_our_own_code_scores_is_keyed_by_its_version_and_the_ffmpeg_that_plays(
    small: dict[str, Any], plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["mean_frame_difference", "psnr", "vmaf"]
    small["scoring"] = {"dimensions": names}
    before = keys(plan_of(small))
    assert all(plan_of(small).scorer_settings(name)["ffmpeg_sha256"] for name in names)
    for name in names:
        known = DIMENSIONS[name]
        assert known.version is not None
        monkeypatch.setitem(DIMENSIONS, name, replace(known, version=known.version + 1))
    after = keys(plan_of(small))
    assert after["videos"] == before["videos"]
    assert not after["scores"] & before["scores"]


def test_the_plan_of_thirty_thousand_samples_is_made_without_enumerating_them(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    small["prompts"], small["seeds"], small["shard_size"] = {"suite": "vbench"}, list(range(17)), 64
    plan = plan_of(small)
    assert plan.sample_count == 32_096
    assert sum(len(shard) for shard in plan.shards.values()) == 944 * 17
    assert plan.samples.cache_info().currsize == 0  # type: ignore[attr-defined]


def test_the_plan_document_tells_how_to_recompute_every_sample_id(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(small | STANDARD | {"further_seeds": {"temporal_flickering": [2, 9]}})
    document = plan.document()
    recomputed = {
        condition.sample_id(prompt["text"], seed, 0)
        for condition in conditions_of(document["conditions"]).values()
        for prompt in document["prompts"]
        for seed in Seeds.of_plan(document).of(prompt["dimensions"])
    }
    assert recomputed == keys(plan)["samples"]


def test_what_becomes_of_long_prompts_changes_no_sample_that_is_made(small: dict[str, Any], plan_of: PlanOf) -> None:
    assert keys(plan_of(small)) == keys(plan_of(changed(small, "prompts.long", "cut")))


def test_a_setting_of_an_arm_that_says_what_is_so_anyway_changes_nothing(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    spelt_out = changed(changed(small, "arms.full.attention", None), "arms.full.batch", 1)
    assert keys(plan_of(small)) == keys(plan_of(spelt_out))


def test_a_batched_sample_s_key_has_its_place_and_so_the_order_of_its_shard(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    """Batches are cut from shards: what moves in its shard to another place of its batch is another sample."""
    small["seeds"] = [0]
    batched = changed(small, "arms.full.batch", 2)
    prompts = Path(batched["prompts"]["file"])
    before, (shard,) = plan_of(batched), plan_of(batched).shards
    ids = {
        text: [before.conditions["full"].sample_id(text, 0, position) for position in range(4)]
        for text in prompts.read_text().splitlines()
    }
    assert all(found[0] == found[2] != found[1] == found[3] for found in ids.values())
    for position, sample in enumerate(before.samples("full", shard)):
        assert sample.sample_id == ids[sample.prompt.text][position]
    prompts.write_text("\n".join(reversed(prompts.read_text().splitlines())))
    assert before.samples("full", shard) == plan_of(batched).samples("full", shard), "the order in the file is nothing"


def test_pairs_are_compared_whatever_their_batches(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(changed(small, "arms.full.batch", 3))
    for shard in plan.shards:
        assert [plan.twin(sample) for sample in plan.samples("cached", shard)] == list(plan.samples("full", shard))


def test_paths_are_patterns_and_paths_alike() -> None:
    paths = Paths("/scratch", "/work", "demo")
    assert paths.videos("{arm}", "{shard}").format(arm="full", shard="s0") == paths.videos("full", "s0")


@pytest.mark.parametrize("changes", [{}, STANDARD | {"further_seeds": {"temporal_flickering": [2, 9]}}])
def test_evidence_is_checked_by_the_places_of_batched_samples(
    small: dict[str, Any], plan_of: PlanOf, changes: dict[str, Any]
) -> None:
    plan = plan_of(changed(small | changes, "arms.full.batch", 2))
    results = Results(plan.document())
    for sample in all_samples(plan):
        about = (sample.arm, sample.prompt.text, sample.seed)
        results.latents[about] = results.videos[about] = {"sample": sample.sample_id, "key": plan.video_key(sample)}
    assert list(check_samples(results.plan, results)) == []
    misplaced = next(sample for sample in all_samples(plan) if sample.arm == "full" and sample.position == 1)
    elsewhere = plan.conditions["full"].sample_id(misplaced.prompt.text, misplaced.seed, 0)
    results.latents["full", misplaced.prompt.text, misplaced.seed] = {"sample": elsewhere}
    (finding,) = check_samples(results.plan, results)
    assert finding == f"mismatched: a latents record is of sample {elsewhere}, planned was {misplaced.sample_id}"


def test_jobs_that_decode_are_told_how_timed_ones_too(small: dict[str, Any], plan_of: PlanOf) -> None:
    small["decode"] = {"dtype": "bfloat16", "tiling": TILES}
    plan = plan_of(small | {"timing": {"prompts": 1}})
    jobs = [describe(plan, "decode", {"arm": "full", "shard": next(iter(plan.shards))}), describe(plan, "timing", {})]
    for job in jobs:
        assert DecodeSettings.from_json(job.settings["decode"]) == DecodeSettings("bfloat16", SpatialTiles(**TILES))
