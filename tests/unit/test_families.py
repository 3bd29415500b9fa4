"""The families as the plan knows them: which shapes they take, what enters their keys, what they have no use for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed
from plans import all_samples

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.pipelines.families import FAMILIES

PlanOf = Callable[[dict[str, Any]], Plan]
Write = Callable[[dict[str, Any]], Path]


@pytest.fixture
def of_family(small: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """The small experiment with another family, in a shape that all can express."""

    def document(family: str) -> dict[str, Any]:
        video = {"width": 64, "height": 64, "frames": 9, "fps": 8}
        return changed(changed(small, "models.tiny.family", family), "video", video)

    return document


def sample_ids(plan: Plan) -> set[str]:
    return {sample.sample_id for sample in all_samples(plan)}


@pytest.mark.parametrize(
    ("family", "shape", "tokens"),
    [
        ("wan", (832, 480, 81), 32_760),
        ("wan", (832, 480, 33), 14_040),
        ("wan", (1280, 720, 81), 75_600),
        ("cogvideox", (720, 480, 49), 17_550),
        ("hunyuan_video", (1280, 720, 129), 118_800),
        ("ltx", (768, 512, 121), 6_144),
    ],
)
def test_published_shapes_are_possible_and_have_the_published_tokens(
    family: str, shape: tuple[int, int, int], tokens: int
) -> None:
    geometry = FAMILIES[family].geometry
    assert geometry.problem(*shape) is None
    assert geometry.tokens(*shape) == tokens


@pytest.mark.parametrize(
    ("family", "key", "value", "said"),
    [
        ("ltx", "video.width", 80, "no multiple of 32; use 64 or 96"),
        ("ltx", "video.height", 48, "no multiple of 32; use 32 or 64"),
        ("ltx", "video.frames", 13, r"only 8·n \+ 1; use 9 or 17"),
        ("cogvideox", "video.height", 72, "no multiple of 16; use 64 or 80"),
        ("cogvideox", "video.frames", 13, r"only 8·n \+ 1; use 9 or 17"),
        ("cogvideox", "video.frames", 5, r"only 8·n \+ 1; use 9"),
        ("hunyuan_video", "video.width", 72, "no multiple of 16; use 64 or 80"),
        ("hunyuan_video", "video.frames", 12, r"only 4·n \+ 1; use 9 or 13"),
        ("hunyuan_video", "arms.full.negative_prompt", "blurry", "no place for a negative prompt"),
        ("ltx", "arms.full.steps", 1, "needs 2 at least"),
    ],
)
def test_what_a_family_would_round_or_ignore_in_silence_is_refused(
    of_family: Callable[[str], dict[str, Any]], write: Write, family: str, key: str, value: object, said: str
) -> None:
    plan_of_file(write(of_family(family)))
    with pytest.raises(FleetcraftError, match=said) as caught:
        plan_of_file(write(changed(of_family(family), key, value)))
    assert f"'{key}'" in str(caught.value)


@pytest.mark.parametrize(
    ("family", "kernel", "dtype", "said"),
    [
        ("wan", "flash", "bfloat16", None),
        ("wan", "cudnn", "float16", None),
        ("wan", "efficient", "float32", None),
        ("ltx", "efficient", "bfloat16", None),
        ("hunyuan_video", "math", "float32", None),
        ("wan", "flash", "float32", "'flash' computes in bfloat16 and float16 on a GPU"),
        ("cogvideox", "cudnn", "float32", "'cudnn' computes in bfloat16 and float16 on a GPU"),
        ("ltx", "flash", "bfloat16", "transformer of ltx masks its attention"),
        ("hunyuan_video", "flash", "float16", "transformer of hunyuan_video masks its attention"),
    ],
)
def test_attention_that_a_gpu_can_not_compute_is_refused_before_one_is_asked_for(
    of_family: Callable[[str], dict[str, Any]], write: Write, family: str, kernel: str, dtype: str, said: str | None
) -> None:
    document = changed(changed(of_family(family), "stack.device", "cuda"), "arms.full.dtype", dtype)
    file = write(changed(document, "arms.full.attention", kernel))
    if said is None:
        plan_of_file(file)
        return
    with pytest.raises(FleetcraftError, match=rf"'arms\.full\.attention'.*{said}"):
        plan_of_file(file)


TILES = {"width": 32, "height": 32, "stride_width": 16, "stride_height": 16}


@pytest.mark.parametrize(
    ("family", "decode", "key", "said"),
    [
        ("wan", {"tiling": TILES | {"width": 36}}, "tiling.width", "36 is no multiple of 8, the VAE's stride"),
        ("ltx", {"tiling": TILES}, "tiling.stride_width", "16 is no multiple of 32"),
        ("wan", {"tiling": TILES | {"stride_height": 40}}, "tiling.stride_height", "gaps between tiles of 32"),
        ("cogvideox", {"tiling": TILES | {"width": 64, "height": 64}}, "tiling", "64×64 holds the whole frame"),
        ("wan", {"temporal_tiles": {"frames": 8, "stride": 4}}, "temporal_tiles", "pieces of time of its own"),
        ("hunyuan_video", {"temporal_tiles": {"frames": 16, "stride": 8}}, "temporal_tiles", "of its own; give null"),
        ("ltx", {"temporal_tiles": {"frames": 16, "stride": 4}}, "temporal_tiles.stride", "4 is no multiple of 8"),
        ("ltx", {"temporal_tiles": {"frames": 8, "stride": 16}}, "temporal_tiles.stride", "gaps between tiles of 8"),
        ("ltx", {"temporal_tiles": {"frames": 16, "stride": 8}}, "temporal_tiles", "holds the whole video of 9"),
        ("wan", {"slicing": True}, "slicing", "slicing splits a batch, and each video is decoded alone"),
        ("wan", {"dtype": "float16"}, "dtype", "'float32' or 'bfloat16'"),
        ("wan", {"tilling": None}, "tilling", "Did you mean 'tiling'"),
    ],
)
def test_decoding_that_a_family_can_t_follow_is_refused_before_anything_is_computed(
    of_family: Callable[[str], dict[str, Any]], write: Write, family: str, decode: dict[str, Any], key: str, said: str
) -> None:
    with pytest.raises(FleetcraftError, match=said) as caught:
        plan_of_file(write({**of_family(family), "decode": decode}))
    assert f"'decode.{key}'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_ltx_can_be_tiled_in_time_by_choice(of_family: Callable[[str], dict[str, Any]], plan_of: PlanOf) -> None:
    plain = changed(of_family("ltx"), "video.frames", 41)
    tiles = {"frames": 16, "stride": 8}
    settings = plan_of({**plain, "decode": {"temporal_tiles": tiles}}).video_settings("full")["decode"]
    assert settings == {"dtype": "float32", "tiling": False, "slicing": False, "temporal_tiles": tiles}


def test_the_same_experiment_with_another_family_shares_no_sample(
    of_family: Callable[[str], dict[str, Any]], plan_of: PlanOf
) -> None:
    ids = [sample_ids(plan_of(of_family(family))) for family in FAMILIES]
    assert len(set().union(*ids)) == sum(len(found) for found in ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rate_is_part_of_a_sample_where_the_transformer_is_told_it(
    of_family: Callable[[str], dict[str, Any]], plan_of: PlanOf, family: str
) -> None:
    before, after = (sample_ids(plan_of(changed(of_family(family), "video.fps", fps))) for fps in (8, 24))
    assert (before == after) != FAMILIES[family].paced
    assert FAMILIES[family].paced == (family == "ltx")


def test_samples_of_wan_keep_the_ids_that_they_had_before_there_were_other_families(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    """Golden: whoever changes one of these makes every store start anew."""
    plan = plan_of(small)
    assert plan.models["tiny"].digest == "60f302eff832f956e016517420933c16"
    conditions = {arm: plan.condition(arm) | {"stack": "of the pins, which may change"} for arm in plan.arms}
    assert key_of(conditions) == "2908209b109e32c385ddcd66bff423ec"
