"""The closed forms of parameters, tokens and FLOPs against published figures. tests/diffusion counts on meta."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcraft.pipelines.configs import published, tiny
from fleetcraft.pipelines.families import FAMILIES

FIGURES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "published_geometry.yaml").read_text())
SHAPES = [(name, figures) for name, known in FIGURES.items() for figures in known["shapes"]]


@pytest.mark.parametrize(("name", "figures"), SHAPES, ids=[f"{name}-{f['shape']}" for name, f in SHAPES])
def test_tokens_are_the_published_ones_and_flops_within_a_percent(name: str, figures: dict[str, Any]) -> None:
    model = published()[name]
    family = FAMILIES[model.family]
    geometry = family.geometry_of(model.transformer, model.vae)
    assert geometry.problem(*figures["shape"]) is None
    tokens = geometry.tokens(*figures["shape"])
    assert tokens == figures["tokens"]
    flops = family.transformer_of(model.transformer).flops(tokens, family.text_tokens_of(model.transformer))
    assert flops / 1e12 == pytest.approx(figures["tflop"], rel=0.01)


@pytest.mark.parametrize("name", FIGURES)
def test_parameters_are_the_published_ones(name: str) -> None:
    model = published()[name]
    parameters = FAMILIES[model.family].transformer_of(model.transformer).parameters
    assert parameters / 1e9 == pytest.approx(FIGURES[name]["parameters_b"], abs=0.001)


def test_guidance_in_one_batch_costs_two_forwards_of_one() -> None:
    model = published()["CogVideoX-5b"]
    transformer = FAMILIES["cogvideox"].transformer_of(model.transformer)
    assert transformer.flops(17_550, 226, batch=2) == 2 * transformer.flops(17_550, 226)


def test_tokens_of_cogvideox_1_5_span_two_latent_frames_the_first_padded() -> None:
    model = published()["CogVideoX1.5-5B"]
    geometry = FAMILIES["cogvideox"].geometry_of(model.transformer, model.vae)
    assert geometry.latent_shape(1360, 768, 81) == (16, 21, 96, 170)
    assert geometry.tokens(1360, 768, 81) == 11 * 48 * 85


@pytest.mark.parametrize("family", FAMILIES)
def test_the_registry_s_geometry_is_that_of_the_published_and_the_tiny_checkpoints(family: str) -> None:
    known = FAMILIES[family]
    models = [tiny(family), *(model for model in published().values() if model.family == family)]
    assert len(models) > 1
    for model in models:
        geometry = known.geometry_of(model.transformer, model.vae)
        if model.transformer.get("patch_size_t") == 2:
            assert geometry.patch == (2, 2, 2)
            geometry = replace(geometry, patch=(1, 2, 2))
        assert geometry == known.geometry


def test_decoding_is_planned_to_hold_as_much_however_long_the_video_is_where_it_is_streamed() -> None:
    for name, model in published().items():
        held = FAMILIES[model.family].vae_of(model.vae).held
        longer = held(832, 480, 241) / held(832, 480, 81)
        assert longer == (pytest.approx(3, rel=0.05) if name == "LTX-Video" else 1), name


def test_the_mask_of_hunyuan_video_s_attention_outgrows_its_activations() -> None:
    """It grows with the square of the frame's area."""
    held = FAMILIES["hunyuan_video"].vae_of(published()["HunyuanVideo"].vae).held
    assert held(2560, 1440, 129) / held(1280, 720, 129) == pytest.approx(4, rel=0.5)
    assert held(5120, 2880, 129) / held(2560, 1440, 129) == pytest.approx(16)
