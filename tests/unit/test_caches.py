"""Caches and schedulers as the plan knows them: what doesn't fit, or could never save anything, is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed
from plans import all_samples

from fleetcraft.experiment import arms
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.documents import Model
from fleetcraft.ground.errors import BadInput
from fleetcraft.pipelines.cache_support import SUPPORT
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.schedulers import CHOICES

PlanOf = Callable[[dict[str, Any]], Plan]
Write = Callable[[dict[str, Any]], Path]

MODELS = {
    model.model_fields["type"].annotation.__args__[0]: model
    for model in vars(arms).values()
    if isinstance(model, type) and issubclass(model, Model) and "type" in model.model_fields
}
"""Type → model of each cache in `fleetcraft.experiment.arms`."""


def least(name: str) -> dict[str, Any]:
    """A cache with the keys that it can't do without."""
    return {"type": name} | {"first_block": {"threshold": 0.2}, "mag": {"ratios": [1.0, 1.02, 0.98]}}.get(name, {})


@pytest.fixture
def with_cache(small: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """An experiment of a family, of whose arms one has a cache."""

    def document(family: str, cache: dict[str, Any] | None, **arm: Any) -> dict[str, Any]:
        result = changed(small, "video", {"width": 64, "height": 64, "frames": 9, "fps": 8})
        result["models"]["tiny"]["family"] = family
        result["arms"]["cached"] |= {"steps": 10, **arm, "cache": cache}
        return result

    return document


def test_every_cache_of_the_experiment_is_known_to_the_plan_and_says_why_where_it_does_not_work() -> None:
    assert set(MODELS) == set(SUPPORT)
    for support in SUPPORT.values():
        assert set(support.families) | set(support.reasons) == set(FAMILIES)
        assert not set(support.families) & set(support.reasons)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", sorted(SUPPORT))
def test_a_pair_is_planned_or_refused_with_what_the_family_has(
    with_cache: Callable[..., dict[str, Any]], write: Write, family: str, name: str
) -> None:
    file = write(with_cache(family, least(name)))
    if family in SUPPORT[name].families:
        plan_of_file(file)
        return
    with pytest.raises(BadInput, match=f"{name}' doesn't work for the family {family}: .*; {family} has ") as caught:
        plan_of_file(file)
    assert caught.value.key == "arms.cached.cache.type"
    assert "'first_block'" in str(caught.value) or "first_block, " in str(caught.value)


@pytest.mark.parametrize(
    ("family", "cache", "arm", "key", "said"),
    [
        ("wan", {"type": "piramid_attention"}, {}, "type", "Did you mean 'pyramid_attention'"),
        ("ltx", {"type": "pyramid_attention", "timesteps": [800, 100]}, {}, "timesteps", r"use \[100, 800\]"),
        ("ltx", {"type": "pyramid_attention", "timesteps": [800]}, {}, "timesteps", "at least 2 items"),
        ("ltx", {"type": "pyramid_attention", "skip_range": 1}, {}, "skip_range", "greater than or equal to 2"),
        ("cogvideox", {"type": "faster"}, {"guidance": 1.0}, "type", "guidance 1 makes none"),
        ("hunyuan_video", {"type": "faster", "timesteps": [0, 1001]}, {}, "timesteps", "nothing to extrapolate from"),
        ("hunyuan_video", {"type": "faster", "low_frequency_weight": 1.2}, {}, "low_frequency_weight", "no half of a"),
        ("wan", {"type": "mag"}, {}, "ratios", "missing"),
        ("wan", {"type": "mag", "ratios": [1.0, 1.0], "retention_ratio": 0.97}, {}, "retention_ratio", "all 10 steps"),
        ("wan", {"type": "mag", "ratios": [1.3, 1.2, 1.1]}, {}, "threshold", "predict an error of 0.1 and more"),
        ("wan", {"type": "sea", "retention_steps": 9}, {}, "retention_steps", "all 10 steps are always computed"),
        ("wan", {"type": "taylor_seer", "first_steps": 10}, {}, "first_steps", "no step of 10 is left"),
        ("wan", {"type": "taylor_seer", "last_steps_from": 3}, {}, "first_steps", "no step of 10 is left"),
        ("wan", {"type": "taylor_seer", "interval": 1}, {}, "interval", "greater than or equal to 2"),
        ("wan", {"type": "first_block", "threshold": 0.1}, {"steps": 1}, "type", "there is one step"),
    ],
)
def test_a_cache_that_could_never_save_anything_is_refused(
    with_cache: Callable[..., dict[str, Any]],
    write: Write,
    family: str,
    cache: dict[str, Any],
    arm: dict[str, Any],
    key: str,
    said: str,
) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        plan_of_file(write(with_cache(family, cache, **arm)))
    assert caught.value.key is not None
    assert caught.value.key.startswith(f"arms.cached.cache.{key}")


@pytest.mark.parametrize(
    ("family", "arm", "key", "said"),
    [
        ("wan", {"scheduler": "CogVideoXDDIMScheduler"}, "scheduler", "choose from FlowMatchEulerDiscreteScheduler, "),
        ("cogvideox", {"scheduler": "UniPCMultistepScheduler"}, "scheduler", "CogVideoXDDIMScheduler"),
        ("ltx", {"scheduler": "DPMSolverMultistepScheduler"}, "scheduler", "doesn't suit the family ltx"),
        ("ltx", {"flow_shift": 3.0}, "flow_shift", "shifted by the size of the video"),
        ("cogvideox", {"flow_shift": 3.0}, "flow_shift", "no flow"),
        ("wan", {"flow_shift": 0.0}, "flow_shift", "greater than 0"),
    ],
)
def test_a_scheduler_that_does_not_suit_the_family_is_refused(
    with_cache: Callable[..., dict[str, Any]], write: Write, family: str, arm: dict[str, Any], key: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        plan_of_file(write(with_cache(family, None, **arm)))
    assert caught.value.key == f"arms.cached.{key}"


def ids(plan: Plan) -> set[str]:
    return {sample.sample_id for sample in all_samples(plan) if sample.arm == "cached"}


def test_a_scheduler_is_part_of_a_sample_and_the_checkpoint_s_own_adds_nothing(
    with_cache: Callable[..., dict[str, Any]], plan_of: PlanOf
) -> None:
    assert all(set(CHOICES[family].names) for family in FAMILIES)
    own = ids(plan_of(with_cache("wan", None)))
    assert own == ids(plan_of(with_cache("wan", None, scheduler=None, flow_shift=None)))
    others = [
        ids(plan_of(with_cache("wan", None, **arm)))
        for arm in (
            {"scheduler": "UniPCMultistepScheduler"},
            {"scheduler": "DPMSolverMultistepScheduler"},
            {"flow_shift": 3.0},
            {"flow_shift": 5.0},
        )
    ]
    assert len(own.union(*others)) == 5 * len(own)


OTHER = {"bfloat16": "float32", False: True, None: 8}


@pytest.mark.parametrize("name", sorted(SUPPORT))
def test_every_key_of_a_cache_is_part_of_a_sample(
    with_cache: Callable[..., dict[str, Any]], plan_of: PlanOf, name: str
) -> None:
    family = SUPPORT[name].families[0]
    document = with_cache(family, least(name), steps=20)
    base = ids(plan_of(document))
    defaults = MODELS[name].model_validate(least(name)).model_dump()
    for key, value in defaults.items():
        if key == "type":
            continue
        other = [value[0], value[1] + 1] if isinstance(value, list) else OTHER.get(value)
        if other is None:
            other = 0 if key == "residual_order" else value * 1.5 if isinstance(value, float) else value + 1
        assert not base & ids(plan_of(changed(document, f"arms.cached.cache.{key}", other))), key
    assert base == ids(plan_of(changed(document, "arms.cached.cache", defaults))), "defaults written out"
