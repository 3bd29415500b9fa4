"""Every cache that a family is said to have, on its real classes: hooked, skipping, changing, and leaving nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from fleetcraft.pipelines.cache_support import SUPPORT
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings, Work

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
