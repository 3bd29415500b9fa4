"""What every family owes: the same bytes for the same seed, exact decoding, no state from sample to sample."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLLTXVideo, CogVideoXTransformer3DModel, DiffusionPipeline
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from fleetcraft.experiment.sources import check_checkpoint
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadEnvironment, BadInput, BadResult, MissingWeights
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import PLAIN, DecodeSettings, DenoiseSettings
from fleetcraft.pipelines.numerics import to_uint8

FULL = DenoiseSettings("float32", 4, 5.0, "", None, None, width=64, height=32, frames=9, fps=8)
CACHED = dataclasses.replace(FULL, cache={"type": "first_block", "threshold": 0.9})
PROMPTS = ["a red bicycle", "a blue boat on a lake"]

WHOLE = {"ltx"}
"""Families whose VAE looks ahead in time: no chunk of it gives the numbers of the whole video."""


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
    forward = [one_way.denoise([prompt], [3])[0] for prompt in PROMPTS]
    backward = [other_way.denoise([prompt], [3])[0] for prompt in reversed(PROMPTS)][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))
    assert torch.equal(alone.denoise([PROMPTS[1]], [3])[0], forward[1])


def test_a_failure_in_the_middle_of_a_sample_leaves_no_state(
    family: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = FAMILIES[family].load().load_denoiser
    expected = load(tiny, CACHED, "cpu").denoise([PROMPTS[1]], [3])
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
        denoiser.denoise([PROMPTS[0]], [3])
    monkeypatch.undo()
    latents, work = denoiser.denoise([PROMPTS[1]], [3])
    assert torch.equal(latents, expected[0])
    assert work == expected[1]


def test_prompt_and_seed_both_decide_the_latents(family: str, tiny: Path) -> None:
    denoiser = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")
    (base,), _ = denoiser.denoise([PROMPTS[0]], [0])
    assert base.shape == FAMILIES[family].geometry.latent_shape(64, 32, 9)
    assert not torch.equal(base, denoiser.denoise([PROMPTS[0]], [1])[0][0])
    assert not torch.equal(base, denoiser.denoise([PROMPTS[1]], [0])[0][0])


def test_the_rate_decides_the_latents_of_those_families_that_are_paced(family: str, tiny: Path) -> None:
    load = FAMILIES[family].load().load_denoiser
    slow, fast = (
        load(tiny, dataclasses.replace(FULL, fps=fps), "cpu").denoise([PROMPTS[0]], [0])[0] for fps in (8, 24)
    )
    assert torch.equal(slow, fast) != FAMILIES[family].paced


def test_guidance_decides_the_latents(family: str, tiny: Path) -> None:
    load = FAMILIES[family].load().load_denoiser
    weak, strong = (load(tiny, dataclasses.replace(FULL, guidance=scale), "cpu") for scale in (2.0, 5.0))
    assert not torch.equal(weak.denoise([PROMPTS[0]], [0])[0], strong.denoise([PROMPTS[0]], [0])[0])


def test_caching_skips_blocks_and_full_compute_skips_none(family: str, tiny: Path) -> None:
    load = FAMILIES[family].load().load_denoiser
    full, cached = (load(tiny, settings, "cpu").denoise([PROMPTS[0]], [0]) for settings in (FULL, CACHED))
    forwards = FULL.steps * (2 if FAMILIES[family].guidance == "two forwards" else 1)
    assert full[1].forwards == cached[1].forwards == forwards
    assert full[1].blocks_computed == full[1].blocks_possible == 4 * forwards
    assert cached[1].blocks_computed < cached[1].blocks_possible
    assert not torch.equal(full[0], cached[0])


def test_a_cache_that_finds_nothing_to_hook_is_refused(
    family: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some caches of diffusers are for some families: enabled, and without any effect."""
    monkeypatch.setattr("diffusers.hooks.apply_first_block_cache", lambda *_: None)
    with pytest.raises(BadEnvironment, match="'first_block' found nothing to hook in"):
        FAMILIES[family].load().load_denoiser(tiny, CACHED, "cpu")


# ---------------------------------------------------------------------- decoding


def decoded(
    family: str, model: Path, settings: DenoiseSettings, seed: int = 7, decode: DecodeSettings = PLAIN
) -> list[NDArray[np.uint8]]:
    """The chunks of one video, denoised and decoded by parts that know nothing of each other."""
    module = FAMILIES[family].load()
    (latents,), _ = module.load_denoiser(model, settings, "cpu").denoise([PROMPTS[0]], [seed])
    return list(module.load_decoder(model, "cpu", decode).decode(latents))


def decoded_by_the_pipeline(
    family: str,
    model: Path,
    settings: DenoiseSettings,
    seed: int = 7,
    prepare: Callable[[torch.nn.Module], object] = lambda vae: None,
) -> NDArray[np.uint8]:
    """The frames of the same video, as diffusers makes them in one go, with its VAE prepared."""
    pipeline = DiffusionPipeline.from_pretrained(model)
    prepare(pipeline.vae)
    pipeline.set_progress_bar_config(disable=True)
    arguments: dict[str, Any] = {} if FAMILIES[family].guidance == "embedded" else {"negative_prompt": ""}
    if FAMILIES[family].paced:
        arguments["frame_rate"] = settings.fps
    torch.manual_seed(0)  # what a VAE draws by itself
    with torch.inference_mode():
        pixels = pipeline(
            prompt=PROMPTS[0],
            width=settings.width,
            height=settings.height,
            num_frames=settings.frames,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance,
            generator=[torch.Generator("cpu").manual_seed(seed)],
            output_type="pt",
            **arguments,
        ).frames[0]
    frames: NDArray[np.uint8] = (pixels.permute(0, 2, 3, 1).float().numpy() * 255).round().astype(np.uint8)
    return frames


@pytest.mark.parametrize("frames", [9, 17, 41])
def test_decoding_apart_and_in_chunks_is_bit_equal_to_the_pipeline_s_own(family: str, tiny: Path, frames: int) -> None:
    settings = dataclasses.replace(FULL, frames=frames)
    chunks = decoded(family, tiny, settings)
    assert len(chunks) > 1 or frames == 9, "streamed"
    whole = decoded_by_the_pipeline(family, tiny, settings)
    assert whole.shape == (frames, 32, 64, 3)
    assert np.array_equal(np.concatenate(chunks), whole)


def test_decoding_a_longer_video_holds_no_more_at_once(family: str, tiny: Path) -> None:
    decoder = FAMILIES[family].load().load_decoder(tiny, "cpu")
    geometry, most = FAMILIES[family].geometry, 0

    def look(_: object, arguments: tuple[torch.Tensor, ...]) -> None:
        nonlocal most
        most = max(most, arguments[0].shape[2])

    decoder.vae.decoder.register_forward_pre_hook(look)  # type: ignore[attr-defined]

    def peak(frames: int) -> tuple[int, int]:
        """Most latent frames that the VAE is given at once, and most frames that it gives at once."""
        nonlocal most
        most = 0
        latents = torch.zeros(geometry.latent_shape(32, 32, frames))
        chunks = [len(chunk) for chunk in decoder.decode(latents)]
        assert sum(chunks) == frames
        return most, max(chunks)

    if family in WHOLE:
        assert peak(161)[0] == 161 // geometry.vae_stride[0] + 1, "or it could be streamed by now"
    else:
        assert peak(161) == peak(33)


def test_decoding_leaves_torch_s_own_generator_alone(family: str, tiny: Path) -> None:
    decoder = FAMILIES[family].load().load_decoder(tiny, "cpu")
    latents = torch.zeros(FAMILIES[family].geometry.latent_shape(32, 32, 9))
    torch.manual_seed(5)
    first = list(decoder.decode(latents))
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after)
    assert np.array_equal(np.concatenate(list(decoder.decode(latents))), np.concatenate(first))


def test_tiling_and_slicing_in_space_are_off(family: str, tiny: Path) -> None:
    vae = FAMILIES[family].load().load_decoder(tiny, "cpu").vae  # type: ignore[attr-defined]
    assert not vae.use_tiling
    assert not vae.use_slicing
    assert getattr(vae, "use_framewise_decoding", False) == ("temporal_tiles" in FAMILIES[family].decode)


def test_the_temporal_tiles_of_hunyuan_video_are_those_of_the_key(tmp_path: Path) -> None:
    family = FAMILIES["hunyuan_video"]
    family.load().build_tiny(tmp_path / "tiny", 0)
    vae = family.load().load_decoder(tmp_path / "tiny", "cpu").vae  # type: ignore[attr-defined]
    tiles = {"frames": vae.tile_sample_min_num_frames, "stride": vae.tile_sample_stride_num_frames}
    assert family.decode == {"temporal_tiles": tiles}


def replaced(family: str, directory: Path, part: str, module: torch.nn.Module) -> Path:
    """The family's tiny model with another part in it."""
    FAMILIES[family].load().build_tiny(directory, 0)
    shutil.rmtree(directory / part)
    module.save_pretrained(directory / part)  # type: ignore[operator]
    return directory


def test_cogvideox_1_5_drops_the_frames_that_it_pads_in_front(tmp_path: Path) -> None:
    torch.manual_seed(0)
    transformer = CogVideoXTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        time_embed_dim=16,
        text_embed_dim=32,
        num_layers=2,
        sample_width=8,
        sample_height=8,
        patch_size=2,
        patch_size_t=2,
        patch_bias=False,
        use_rotary_positional_embeddings=True,
    )
    model = replaced("cogvideox", tmp_path / "model", "transformer", transformer)
    (latents,), _ = FAMILIES["cogvideox"].load().load_denoiser(model, FULL, "cpu").denoise([PROMPTS[0]], [7])
    assert latents.shape == (16, 3, 4, 8), "three of four latent frames"
    assert np.array_equal(
        np.concatenate(decoded("cogvideox", model, FULL)), decoded_by_the_pipeline("cogvideox", model, FULL)
    )


def test_the_first_vae_of_ltx_takes_no_timestep_and_no_noise(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes, layers = (8, 8, 8, 8), (1, 1, 1, 1, 1)
    vae = AutoencoderKLLTXVideo(
        block_out_channels=sizes,
        decoder_block_out_channels=sizes,
        layers_per_block=layers,
        decoder_layers_per_block=layers,
    )
    model = replaced("ltx", tmp_path / "model", "vae", vae)
    assert np.array_equal(np.concatenate(decoded("ltx", model, FULL)), decoded_by_the_pipeline("ltx", model, FULL))


# ---------------------------------------------------------------------- missing weights


@pytest.mark.parametrize(
    ("part", "tensor", "said"),
    [("text_encoder", "layer", "text encoder"), ("transformer", "block", "transformer"), ("vae", "decoder", "VAE")],
)
def test_a_missing_tensor_is_named(family: str, tiny: Path, tmp_path: Path, part: str, tensor: str, said: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (file,) = (broken / part).glob("*.safetensors")
    tensors = load_file(file)
    name = next(name for name in tensors if tensor in name)
    del tensors[name]
    save_file(tensors, file, metadata={"format": "pt"})
    module = FAMILIES[family].load()
    with pytest.raises(MissingWeights, match=f"{said} are missing, the first is {name}".replace(".", r"\.")):
        module.load_decoder(broken, "cpu") if part == "vae" else module.load_denoiser(broken, FULL, "cpu")


def test_what_diffusers_saves_is_a_checkpoint_of_its_family_and_of_no_other(family: str, tiny: Path) -> None:
    check_checkpoint("model", family, tiny)
    for other in set(FAMILIES) - {family}:
        with pytest.raises(
            BadInput, match=rf"checkpoint is of {FAMILIES[family].pipeline}.*{FAMILIES[other].pipeline}"
        ):
            check_checkpoint("model", other, tiny)


def test_a_tokenizer_without_its_vocabulary_is_refused(family: str, tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    file = broken / "tokenizer/tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = tokenizer["model"]["vocab"][:3]
    file.write_text(json.dumps(tokenizer))
    reader = FAMILIES[family].load().load_readers(broken)["text_encoder"]
    with pytest.raises(MissingWeights, match="nothing but unknown tokens"):
        reader.read(PROMPTS[0])


def test_pixels_are_rounded_to_nearest_and_clamped() -> None:
    pixels = torch.tensor([-2.0, -1.0, 0.0, 1 / 127.5 * 0.6, 1.0, 3.0]).view(1, 1, 1, -1).expand(3, 1, 1, -1)
    assert to_uint8(pixels)[0, 0, :, 0].tolist() == [0, 0, 128, 128, 255, 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_pixel_that_is_not_finite_is_an_error_and_not_black(value: float) -> None:
    with pytest.raises(BadResult, match="not finite"):
        to_uint8(torch.full((3, 1, 2, 2), value))
