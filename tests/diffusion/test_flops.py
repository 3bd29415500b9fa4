"""FLOPs counted on the meta device: of published models, by module, and as what a real forward does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from diffusers import FirstBlockCacheConfig
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fleetcraft.pipelines.configs import published
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.flops import forward_flops
from fleetcraft.pipelines.interface import DenoiseSettings

FIGURES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "published_geometry.yaml").read_text())
SHAPE = (96, 64, 9)


@pytest.mark.parametrize("name", FIGURES)
def test_the_count_is_within_a_percent_of_published_figures(name: str) -> None:
    model = published()[name]
    for figures in FIGURES[name]["shapes"]:
        counted = forward_flops(model.family, model.transformer, *figures["shape"])
        assert counted.total / 1e12 == pytest.approx(figures["tflop"], rel=0.01)


@pytest.mark.parametrize("name", published())
def test_the_closed_forms_are_the_count(name: str) -> None:
    """To the last multiplication; with few layers, as many of each kind don't show more."""
    model = published()[name]
    family = FAMILIES[model.family]
    kinds = [key for key in model.transformer if key.startswith("num_") and key.endswith("layers")]
    config = dict(model.transformer) | {kind: 2 + number for number, kind in enumerate(kinds)}
    transformer, geometry = family.transformer_of(config), family.geometry_of(config, model.vae)
    for batch, text_tokens in ((1, 100), (2, None)):
        counted = forward_flops(model.family, config, *SHAPE, batch=batch, text_tokens=text_tokens)
        text = text_tokens or family.text_tokens_of(config)
        assert counted.total == transformer.flops(geometry.tokens(*SHAPE), text, batch)
    with torch.device("meta"):
        built = family.load().TRANSFORMER.from_config(config)
    assert transformer.parameters == sum(parameter.numel() for parameter in built.parameters())


def test_a_forward_of_the_pipeline_does_what_was_counted(family: str, tiny: Path) -> None:
    """A real sample on the CPU; with the math backend, where the counter sees attention."""
    settings = DenoiseSettings("float32", 2, 5.0, "", None, None, *SHAPE, fps=8)
    denoiser = FAMILIES[family].load().load_denoiser(tiny, settings, "cpu")
    transformer = denoiser.pipeline.transformer  # type: ignore[attr-defined]
    one = forward_flops(family, transformer.config, *SHAPE)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        _, work = denoiser.denoise(["a red bicycle"], [0])
    flops = sum(counter.get_flop_counts()[type(transformer).__name__].values())
    batch = 2 if FAMILIES[family].guidance == "batch of two" else 1
    assert flops == work.forwards * batch * one.total == work.flops_computed


def test_modules_are_named_as_in_the_transformer_and_add_up(family: str, tiny: Path) -> None:
    config = json.loads((tiny / "transformer/config.json").read_text())
    counted = forward_flops(family, config, *SHAPE)
    with torch.device("meta"):
        names = {name for name, _ in FAMILIES[family].load().TRANSFORMER.from_config(config).named_modules()}
    assert set(counted.modules) <= names
    outermost = [name for name in counted.modules if not set(parents(name)) & set(counted.modules)]
    assert sum(counted.modules[name] for name in outermost) == counted.total
    # Attention has products of its own beside those of its linear layers.
    attention = next(name for name in counted.modules if name.endswith((".attn", ".attn1")))
    inside = [name for name in counted.modules if attention in parents(name)]
    layers = [name for name in inside if not any(name in parents(other) for other in inside)]
    assert counted.modules[attention] > sum(counted.modules[name] for name in layers) > 0


def parents(name: str) -> list[str]:
    """Qualified names of the modules that a module is in."""
    parts = name.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def test_a_cache_that_is_on_changes_no_count(family: str, tiny: Path) -> None:
    settings = DenoiseSettings("float32", 2, 5.0, "", None, None, *SHAPE, fps=8)
    transformer = FAMILIES[family].load().load_denoiser(tiny, settings, "cpu").pipeline.transformer  # type: ignore[attr-defined]
    before = forward_flops(family, transformer.config, *SHAPE)
    transformer.enable_cache(FirstBlockCacheConfig(threshold=0.9))
    assert forward_flops(family, transformer.config, *SHAPE) is before, "counted once"
    assert forward_flops(family, {**transformer.config, "_name_or_path": "elsewhere"}, *SHAPE) is before
