"""Settings of decoding: tiles and dtypes give what the VAEs of diffusers give, piece by piece and from a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_families import FULL, WHOLE, decoded, decoded_by_the_pipeline

from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DecodeSettings, SpatialTiles, TemporalTiles
from fleetcraft.pipelines.latents import LatentsFile
from fleetcraft.pipelines.numerics import to_uint8

VIDEO = dataclasses.replace(FULL, steps=2, width=96, height=64, frames=17)


def tiles_of(family: str) -> SpatialTiles:
    """Tiles of which several overlap in the small video, down to one latent position at its edges."""
    return SpatialTiles(64, 64, 32, 32) if family == "ltx" else SpatialTiles(64, 32, 32, 24)


def tile(family: str, vae: torch.nn.Module, tiles: SpatialTiles) -> None:
    """Ask a VAE of diffusers for these tiles, in its own words."""
    if family == "cogvideox":
        vae.enable_tiling(  # type: ignore[operator]
            tile_sample_min_height=tiles.height,
            tile_sample_min_width=tiles.width,
            tile_overlap_factor_height=1 - tiles.stride_height / tiles.height,
            tile_overlap_factor_width=1 - tiles.stride_width / tiles.width,
        )
    else:
        vae.enable_tiling(tiles.height, tiles.width, **strides(tiles))  # type: ignore[operator]


def strides(tiles: SpatialTiles) -> dict[str, int]:
    return {"tile_sample_stride_height": tiles.stride_height, "tile_sample_stride_width": tiles.stride_width}


def test_tiles_in_space_are_bit_equal_to_the_pipeline_s_own_and_slices_are_none(family: str, tiny: Path) -> None:
    tiles = tiles_of(family)
    ours = np.concatenate(decoded(family, tiny, VIDEO, decode=DecodeSettings(tiling=tiles)))
    theirs = decoded_by_the_pipeline(family, tiny, VIDEO, prepare=lambda vae: tile(family, vae, tiles))
    assert np.array_equal(ours, theirs)
    plain = np.concatenate(decoded(family, tiny, VIDEO))
    assert not np.array_equal(ours, plain), "tiles change pixels"
    sliced = decoded_by_the_pipeline(family, tiny, VIDEO, prepare=lambda vae: vae.enable_slicing())  # type: ignore[operator]
    assert np.array_equal(plain, sliced), "videos are decoded alone: there is no batch to slice"


@pytest.mark.parametrize("tiling", [None, tiles_of("ltx")], ids=["whole frames", "tiles"])
def test_tiles_of_time_are_bit_equal_to_ltx_s_own_and_streamed(tmp_path: Path, tiling: SpatialTiles | None) -> None:
    FAMILIES["ltx"].load().build_tiny(tmp_path, 0)
    settings = dataclasses.replace(VIDEO, frames=41)
    tiles = TemporalTiles(frames=16, stride=8)

    def prepare(vae: torch.nn.Module) -> None:
        vae.use_framewise_decoding = True
        vae.tile_sample_min_num_frames, vae.tile_sample_stride_num_frames = tiles.frames, tiles.stride
        if tiling is not None:
            tile("ltx", vae, tiling)

    chunks = decoded("ltx", tmp_path, settings, decode=DecodeSettings(tiling=tiling, temporal_tiles=tiles))
    assert max(len(chunk) for chunk in chunks) == 9
    theirs = decoded_by_the_pipeline("ltx", tmp_path, settings, prepare=prepare)
    assert np.array_equal(np.concatenate(chunks), theirs)


@pytest.mark.parametrize("family", ["hunyuan_video", "ltx", "wan"])
def test_another_dtype_gives_the_pipeline_s_own_pixels_of_that_dtype(family: str, tmp_path: Path) -> None:
    """To one level of 255: the pipeline rounds its pixels to that dtype once more before they become numbers."""
    FAMILIES[family].load().build_tiny(tmp_path, 0)
    ours = np.concatenate(decoded(family, tmp_path, FULL, decode=DecodeSettings(dtype="bfloat16"))).astype(int)
    theirs = decoded_by_the_pipeline(family, tmp_path, FULL, prepare=lambda vae: vae.to(torch.bfloat16))
    assert np.abs(ours - theirs).max() <= 1
    assert not np.array_equal(ours, np.concatenate(decoded(family, tmp_path, FULL)))


def test_another_dtype_gives_the_pixels_of_cogvideox_s_vae_whose_pipeline_can_t_mix_dtypes(tmp_path: Path) -> None:
    FAMILIES["cogvideox"].load().build_tiny(tmp_path, 0)
    decoder = FAMILIES["cogvideox"].load().load_decoder(tmp_path, "cpu", DecodeSettings(dtype="bfloat16"))
    latents = torch.randn(16, 5, 4, 8, generator=torch.Generator().manual_seed(0))
    ours = np.concatenate(list(decoder.decode(latents)))
    vae = decoder.vae  # type: ignore[attr-defined]
    with torch.inference_mode():
        theirs = vae.decode(1 / vae.config.scaling_factor * latents[None].bfloat16()).sample
    assert np.array_equal(ours, to_uint8(theirs[0]))


# ---------------------------------------------------------------------- memory


@pytest.fixture
def long_file(family: str, tmp_path: Path) -> Path:
    """A file with the latents of 57 frames."""
    shape = FAMILIES[family].geometry.latent_shape(32, 32, 57)
    path = tmp_path / "latents.safetensors"
    save_file({"latents": torch.randn(shape, generator=torch.Generator().manual_seed(0))}, path)
    return path


def test_latents_are_read_from_their_file_as_they_are_needed(family: str, tiny: Path, long_file: Path) -> None:
    sizes: list[int] = []

    class Watched(LatentsFile):
        def __getitem__(self, index: object) -> torch.Tensor:
            piece = super().__getitem__(index)
            sizes.append(piece.shape[1])
            return piece

    latents = Watched(long_file)
    load = FAMILIES[family].load().load_decoder
    from_memory = list(load(tiny, "cpu").decode(latents[:]))
    sizes.clear()
    from_file = list(load(tiny, "cpu").decode(latents))
    assert np.array_equal(np.concatenate(from_file), np.concatenate(from_memory))
    assert (max(sizes) == latents.shape[1]) == (family in WHOLE)
    assert max(sizes) <= 5 or family in WHOLE


def test_what_a_vae_remembers_is_told_and_does_not_grow(family: str, tiny: Path) -> None:
    decoder = FAMILIES[family].load().load_decoder(tiny, "cpu")
    latents = torch.zeros(FAMILIES[family].geometry.latent_shape(32, 32, 41))
    held = [decoder.remembered()["host_mb"] for _ in decoder.decode(latents)]
    remembers = family in {"wan", "cogvideox"}
    assert (min(held) > 0) == remembers
    assert held[-1] == held[2 if remembers else 0], "constant once the first frames are through"
    assert decoder.remembered()["host_mb"] == 0, "and gone when the video is done"
