"""The closed forms of parameters, tokens and FLOPs against published figures. tests/diffusion counts on meta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.published import published_models

FIGURES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "published_geometry.yaml").read_text())
SHAPES = [(name, figures) for name, known in FIGURES.items() for figures in known["shapes"]]


@pytest.mark.parametrize(("name", "figures"), SHAPES, ids=[f"{name}-{f['shape']}" for name, f in SHAPES])
def test_tokens_are_the_published_ones_and_flops_within_a_percent(name: str, figures: dict[str, Any]) -> None:
    model = published_models()[name]
    family = FAMILIES[model.family]
    geometry = family.geometry_of(model.transformer)
    assert geometry.problem(*figures["shape"]) is None
    tokens = geometry.tokens(*figures["shape"])
    assert tokens == figures["tokens"]
    flops = family.architecture(model.transformer).flops(tokens, family.text_tokens_of(model.transformer))
    assert flops / 1e12 == pytest.approx(figures["tflop"], rel=0.01)


@pytest.mark.parametrize("name", FIGURES)
def test_parameters_are_the_published_ones(name: str) -> None:
    model = published_models()[name]
    parameters = FAMILIES[model.family].architecture(model.transformer).parameters
    assert parameters / 1e9 == pytest.approx(FIGURES[name]["parameters_b"], abs=0.001)


def test_guidance_in_one_batch_costs_two_forwards_of_one() -> None:
    model = published_models()["CogVideoX-5b"]
    transformer = FAMILIES["cogvideox"].architecture(model.transformer)
    assert transformer.flops(17_550, 226, batch=2) == 2 * transformer.flops(17_550, 226)


def test_tokens_of_cogvideox_1_5_span_two_latent_frames_the_first_padded() -> None:
    geometry = FAMILIES["cogvideox"].geometry_of(published_models()["CogVideoX1.5-5B"].transformer)
    assert geometry.latent_shape(1360, 768, 81) == (16, 21, 96, 170)
    assert geometry.tokens(1360, 768, 81) == 11 * 48 * 85
