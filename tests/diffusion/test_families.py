"""What every family owes: the same bytes for the same seed, exact decoding, no state from sample to sample."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadResult, MissingWeights
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings
from fleetcraft.pipelines.numerics import to_uint8

FULL = DenoiseSettings("float32", 4, 5.0, "", None, width=64, height=48, frames=9)
CACHED = dataclasses.replace(FULL, cache={"type": "first_block", "threshold": 0.3})
PROMPTS = ["a red bicycle", "a blue boat on a lake"]


def files(directory: Path) -> dict[str, str]:
    return {str(f.relative_to(directory)): sha256_file(f) for f in sorted(directory.rglob("*")) if f.is_file()}


def test_a_tiny_model_is_the_same_bytes_for_the_same_seed(family: str, tiny: Path, tmp_path: Path) -> None:
    FAMILIES[family].load().build_tiny(tmp_path / "again", 0)
    FAMILIES[family].load().build_tiny(tmp_path / "other", 1)
    assert files(tmp_path / "again") == files(tiny)
    assert files(tmp_path / "other") != files(tiny)
    assert sum(f.stat().st_size for f in tiny.rglob("*") if f.is_file()) < 2_000_000


@pytest.mark.parametrize("settings", [FULL, CACHED], ids=["full", "cached"])
def test_a_sample_does_not_depend_on_what_came_before_it(family: str, tiny: Path, settings: DenoiseSettings) -> None:
    load = FAMILIES[family].load().load_denoiser
    one_way, other_way, alone = load(tiny, settings, "cpu"), load(tiny, settings, "cpu"), load(tiny, settings, "cpu")
    forward = [one_way.denoise(prompt, 3)[0] for prompt in PROMPTS]
    backward = [other_way.denoise(prompt, 3)[0] for prompt in reversed(PROMPTS)][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))
    assert torch.equal(alone.denoise(PROMPTS[1], 3)[0], forward[1])


def test_a_failure_in_the_middle_of_a_sample_leaves_no_state(
    family: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = FAMILIES[family].load().load_denoiser
    expected = load(tiny, CACHED, "cpu").denoise(PROMPTS[1], 3)
    denoiser = load(tiny, CACHED, "cpu")
    scheduler = denoiser.pipeline.scheduler  # type: ignore[attr-defined]
    step, calls = scheduler.step, 0

    def failing(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("killed in the middle")
        return step(*arguments, **named)

    monkeypatch.setattr(scheduler, "step", failing)
    with pytest.raises(RuntimeError, match="killed in the middle"):
        denoiser.denoise(PROMPTS[0], 3)
    monkeypatch.undo()
    latents, work = denoiser.denoise(PROMPTS[1], 3)
    assert torch.equal(latents, expected[0])
    assert work == expected[1]


def test_prompt_and_seed_both_decide_the_latents(family: str, tiny: Path) -> None:
    denoiser = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")
    base = denoiser.denoise(PROMPTS[0], 0)[0]
    assert base.shape == FAMILIES[family].geometry.latent_shape(64, 48, 9)
    assert not torch.equal(base, denoiser.denoise(PROMPTS[0], 1)[0])
    assert not torch.equal(base, denoiser.denoise(PROMPTS[1], 0)[0])


def test_caching_skips_blocks_and_full_compute_skips_none(family: str, tiny: Path) -> None:
    load = FAMILIES[family].load().load_denoiser
    full, cached = (load(tiny, settings, "cpu").denoise(PROMPTS[0], 0) for settings in (FULL, CACHED))
    assert full[1].forwards == cached[1].forwards == 2 * FULL.steps
    assert full[1].blocks_computed == full[1].blocks_possible
    assert cached[1].blocks_computed < cached[1].blocks_possible
    assert not torch.equal(full[0], cached[0])


def test_latents_carry_no_autograd_graph(family: str, tiny: Path) -> None:
    latents, _ = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu").denoise(PROMPTS[0], 0)
    assert latents.grad_fn is None
    assert latents.is_inference()


def test_decoding_apart_and_in_chunks_is_bit_equal_to_the_pipeline_s_own(family: str, tiny: Path) -> None:
    module = FAMILIES[family].load()
    latents, _ = module.load_denoiser(tiny, FULL, "cpu").denoise(PROMPTS[0], 7)
    chunks = list(module.load_decoder(tiny, "cpu").decode(latents))
    assert len(chunks) > 1, "streamed"
    pipeline = DiffusionPipeline.from_pretrained(tiny)
    with torch.inference_mode():
        pixels = pipeline(
            prompt=PROMPTS[0],
            negative_prompt="",
            width=FULL.width,
            height=FULL.height,
            num_frames=FULL.frames,
            num_inference_steps=FULL.steps,
            guidance_scale=FULL.guidance,
            generator=[torch.Generator("cpu").manual_seed(7)],
            output_type="pt",
        ).frames[0]
    whole = (pixels.permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
    assert np.array_equal(np.concatenate(chunks), whole)


def test_decoding_a_longer_video_holds_no_more_in_memory(family: str, tiny: Path) -> None:
    """Python and NumPy allocations; what torch holds is measured by the peak of a whole process in the benchmarks."""
    decoder = FAMILIES[family].load().load_decoder(tiny, "cpu")
    channels = FAMILIES[family].geometry.channels

    def peak(frames: int) -> int:
        latents = torch.zeros(channels, frames, 8, 8)
        tracemalloc.start()
        for chunk in decoder.decode(latents):
            assert chunk.dtype == np.uint8
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(3)
    assert peak(60) < 1.5 * peak(6)


def test_missing_weights_of_the_text_encoder_are_named(family: str, tiny: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    file = broken / "text_encoder/model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("wo.weight"))
    del tensors[name]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(MissingWeights, match="text encoder"):
        FAMILIES[family].load().load_denoiser(broken, FULL, "cpu")


def test_pixels_are_rounded_to_nearest_and_clamped() -> None:
    pixels = torch.tensor([-2.0, -1.0, 0.0, 1 / 127.5 * 0.6, 1.0, 3.0]).view(1, 1, 1, -1).expand(3, 1, 1, -1)
    assert to_uint8(pixels)[0, 0, :, 0].tolist() == [0, 0, 128, 128, 255, 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_pixel_that_is_not_finite_is_an_error_and_not_black(value: float) -> None:
    with pytest.raises(BadResult, match="not finite"):
        to_uint8(torch.full((3, 1, 2, 2), value))
