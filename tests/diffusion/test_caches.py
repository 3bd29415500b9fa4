"""Every cache that a family is said to have, on its real classes: hooked, skipping, changing, and leaving nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch

from fleetcraft.ground.errors import BadInput, BadResult
from fleetcraft.pipelines import caches, schedulers
from fleetcraft.pipelines.cache_support import SUPPORT
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings, Work
from fleetcraft.pipelines.schedulers import CHOICES

PLAIN = DenoiseSettings("float32", 8, 5.0, "", None, None, width=32, height=32, frames=9, fps=8)

SETTINGS: dict[str, dict[str, Any]] = {
    "first_block": {"type": "first_block", "threshold": 0.9},
    "pyramid_attention": {"type": "pyramid_attention", "skip_range": 2, "timesteps": [100, 960]},
    "faster": {
        "type": "faster",
        "skip_range": 2,
        "timesteps": [-1, 980],
        "attention_weight": 0.5,
        "unconditional_skip_range": 3,
        "unconditional_timesteps": [-1, 980],
        "low_frequency_weight": 1.1,
        "low_frequency_timesteps": [99, 901],
        "high_frequency_weight": 1.1,
        "high_frequency_timesteps": [-1, 301],
    },
    "mag": {"type": "mag", "ratios": [1.0, 1.01], "threshold": 0.1, "max_skip_steps": 2, "retention_ratio": 0.2},
    "sea": {
        "type": "sea",
        "threshold": 5.0,
        "residual_order": 1,
        "retention_steps": 1,
        "end_steps": 1,
        "max_skip_steps": 2,
        "power": 3.0,
    },
    "taylor_seer": {
        "type": "taylor_seer",
        "interval": 3,
        "first_steps": 2,
        "last_steps_from": None,
        "order": 1,
        "dtype": "bfloat16",
        "lite": False,
    },
}
SETTINGS["taylor_seer_lite"] = SETTINGS["taylor_seer"] | {"lite": True}

SUPPORTED = [
    (family, name)
    for family in sorted(FAMILIES)
    for name in SETTINGS
    if family in SUPPORT[SETTINGS[name]["type"]].families
]

_HOOKED = {
    # Blocks, self-attentions, and (TaylorSeer) attentions with feed-forwards of tiny models with four blocks.
    "first_block": dict.fromkeys(FAMILIES, 4),
    "pyramid_attention": dict.fromkeys(FAMILIES, 4),
    "faster": dict.fromkeys(FAMILIES, 4),
    "mag": dict.fromkeys(FAMILIES, 4),
    "sea": dict.fromkeys(FAMILIES, 4),
    "taylor_seer": {"wan": 12, "cogvideox": 8, "ltx": 12, "hunyuan_video": 12},
    "taylor_seer_lite": dict.fromkeys(FAMILIES, 5),
}
"""Settings → family → modules that are to be hooked."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tiny model of each family."""
    directory = tmp_path_factory.mktemp("models")
    for family in FAMILIES:
        FAMILIES[family].load().build_tiny(directory / family, 0)
    return directory


def loaded(models: Path, family: str, **changes: Any) -> PipelineDenoiser:
    settings = dataclasses.replace(PLAIN, **changes)
    denoiser = FAMILIES[family].load().load_denoiser(models / family, settings, "cpu")
    assert isinstance(denoiser, PipelineDenoiser)
    return denoiser


def sampled(denoiser: PipelineDenoiser, seed: int = 3) -> tuple[torch.Tensor, Work]:
    latents, work = denoiser.denoise(["a red bicycle"], [seed])
    return latents[0], work


@pytest.fixture(scope="module")
def plain(models: Path) -> dict[str, tuple[torch.Tensor, Work]]:
    """Family → the sample without a cache."""
    return {family: sampled(loaded(models, family)) for family in FAMILIES}


@pytest.mark.parametrize(("family", "name"), SUPPORTED)
def test_a_cache_saves_work_changes_latents_and_leaves_nothing_behind_when_a_sample_fails(
    models: Path,
    plain: dict[str, tuple[torch.Tensor, Work]],
    family: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denoiser = loaded(models, family, cache=SETTINGS[name])
    fresh, work = sampled(denoiser)
    full, full_work = plain[family]
    assert work.hooked_modules == _HOOKED[name][family]
    assert work.forwards == full_work.forwards
    assert work.flops_computed < work.flops_possible == full_work.flops_computed == full_work.flops_possible
    assert not torch.equal(fresh, full)
    assert (fresh - full).abs().mean() < full.std(), "the same video still"

    step, calls = denoiser.pipeline.scheduler.step, 0

    def failing(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise RuntimeError("killed in the middle")
        return step(*arguments, **named)

    monkeypatch.setattr(denoiser.pipeline.scheduler, "step", failing)
    with pytest.raises(RuntimeError, match="killed in the middle"):
        sampled(denoiser, seed=4)
    monkeypatch.undo()
    again, again_work = sampled(denoiser)
    assert torch.equal(again, fresh)
    assert again_work == work


SPENT = {
    "pyramid_attention": {"timesteps": [-3, -2]},
    "faster": {"timesteps": [-3, -2], "unconditional_timesteps": [-3, -2]},
    "mag": {"ratios": [1.5, 1.5]},
    "taylor_seer": {"first_steps": 8},
}
"""Settings with which caches that decide by their settings alone skip nothing, as far as a plan lets them through."""


@pytest.mark.parametrize("name", SPENT)
def test_a_cache_whose_settings_skip_nothing_is_found_after_the_first_sample(models: Path, name: str) -> None:
    denoiser = loaded(models, "cogvideox", cache=SETTINGS[name] | SPENT[name])
    with pytest.raises(BadResult, match="skipped nothing in 8 steps, and will in no other sample"):
        sampled(denoiser)


@pytest.mark.parametrize("name", sorted({name for name, support in SUPPORT.items() if support.adaptive}))
def test_a_sample_in_which_an_adaptive_cache_skips_nothing_proves_nothing(models: Path, name: str) -> None:
    _, work = sampled(loaded(models, "wan", cache=SETTINGS[name] | {"threshold": 1e-9}))
    assert work.flops_computed == work.flops_possible


def test_one_state_for_two_forwards_gives_one_of_them_the_attention_of_the_other(models: Path) -> None:
    """Why Wan has no pyramid attention: what it reuses is what the other forward of the step gave."""
    denoiser = loaded(models, "wan", steps=4)
    caches.enable(denoiser.pipeline, SETTINGS["pyramid_attention"] | {"timesteps": [-1, 1001]}, "wan", 4)
    attention = denoiser.pipeline.transformer.blocks[0].attn1
    given: list[torch.Tensor] = []
    attention.register_forward_hook(lambda _module, _inputs, output: given.append(output))
    sampled(denoiser)
    guided, unguided = given[0::2], given[1::2]
    assert len(guided) == len(unguided) == 4
    assert all(torch.equal(one, other) for one, other in zip(guided, unguided, strict=True))


OWN = {
    "wan": "UniPCMultistepScheduler",
    "cogvideox": "CogVideoXDPMScheduler",
    "ltx": "FlowMatchEulerDiscreteScheduler",
    "hunyuan_video": "FlowMatchEulerDiscreteScheduler",
}
"""The schedulers of the tiny models, as of the published checkpoints."""

CHOSEN = [(family, name) for family, choice in sorted(CHOICES.items()) for name in choice.names if name != OWN[family]]


@pytest.mark.parametrize(("family", "name"), CHOSEN)
def test_a_scheduler_takes_the_place_of_the_checkpoint_s_and_gives_the_same_sample_again(
    models: Path, plain: dict[str, tuple[torch.Tensor, Work]], family: str, name: str
) -> None:
    denoiser = loaded(models, family, scheduler=name)
    assert type(denoiser.pipeline.scheduler).__name__ == name
    first, work = sampled(denoiser)
    sampled(denoiser, seed=4)
    assert torch.equal(sampled(denoiser)[0], first), (
        "its state is that of the sample, and so is the noise that it draws"
    )
    assert work == plain[family][1]
    assert not torch.equal(first, plain[family][0])


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_checkpoint_s_own_scheduler_has_no_second_name(models: Path, family: str) -> None:
    with pytest.raises(BadInput, match="this is what the checkpoint has itself") as caught:
        loaded(models, family, scheduler=OWN[family])
    assert caught.value.key == "scheduler"


@pytest.mark.parametrize("family", [family for family, choice in sorted(CHOICES.items()) if choice.shift])
def test_a_shift_is_kept_from_the_checkpoint_or_set_whatever_the_scheduler_calls_it(models: Path, family: str) -> None:
    def shift(scheduler: str | None, flow_shift: float | None) -> float:
        pipeline = SimpleNamespace(
            scheduler=getattr(diffusers, OWN[family]).from_pretrained(models / family / "scheduler")
        )
        schedulers.replace(pipeline, scheduler, flow_shift)
        return float(pipeline.scheduler.config["shift" if scheduler == CHOICES[family].names[0] else "flow_shift"])

    kept = {"wan": 3.0, "hunyuan_video": 7.0}[family]
    for name in CHOICES[family].names:
        assert name == OWN[family] or shift(name, None) == kept
        assert shift(name, 5.0) == 5.0
