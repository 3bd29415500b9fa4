"""Tiles: decoding a video in overlapping pieces of space or time that are blended, piece by piece.

Every VAE of diffusers can do that itself, and keeps all frames of all tiles meanwhile. Blending mixes a frame with
nothing but what lies beside it or, in time, with the tile before, so that frames can leave as soon as they are blended,
and have the very numbers of `tiled_decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fleetcraft.pipelines.interface import SpatialTiles, TemporalTiles

Rows = list[list[torch.Tensor]]


def cut(z: torch.Tensor, tiles: SpatialTiles | None, stride: int) -> Rows:
    """The tiles of latents [batch, channels, frames, height, width] in rows; one where there is nothing to tile.

    `stride` is how many pixels one latent position is wide and high.
    """
    height, width = z.shape[-2:]
    if tiles is None or not tiles.cut(width * stride, height * stride):
        return [[z]]
    rows, columns = tiles.height // stride, tiles.width // stride
    return [
        [z[..., top : top + rows, left : left + columns] for left in range(0, width, tiles.stride_width // stride)]
        for top in range(0, height, tiles.stride_height // stride)
    ]


def join(vae: Any, rows: Rows, tiles: SpatialTiles | None) -> torch.Tensor:
    """The pixels of tiles [batch, channels, frames, height, width] that were cut by `cut`, blended by the VAE."""
    if tiles is None or (len(rows) == 1 and len(rows[0]) == 1):
        return rows[0][0]
    joined = []
    for row, line in enumerate(rows):
        kept = []
        for column, tile in enumerate(line):
            if row > 0:
                tile = vae.blend_v(rows[row - 1][column], tile, tiles.height - tiles.stride_height)
            if column > 0:
                tile = vae.blend_h(line[column - 1], tile, tiles.width - tiles.stride_width)
            kept.append(tile[..., : tiles.stride_height, : tiles.stride_width])
        joined.append(torch.cat(kept, dim=-1))
    return torch.cat(joined, dim=-2)


def enable(vae: Any, tiles: SpatialTiles | None) -> None:
    """Let a VAE tile in space by itself, as its pipeline would; only those that are told a stride in pixels."""
    if tiles is not None:
        vae.enable_tiling(
            tile_sample_min_height=tiles.height,
            tile_sample_min_width=tiles.width,
            tile_sample_stride_height=tiles.stride_height,
            tile_sample_stride_width=tiles.stride_width,
        )


def in_time(
    decode: Callable[[int, int], torch.Tensor], vae: Any, latent_frames: int, tiles: TemporalTiles, later: slice
) -> Iterator[torch.Tensor]:
    """The pixels of a video [batch, channels, frames, height, width] in chunks, from tiles of time that are blended.

    Parameters
    ----------
    decode : pixels of the latent frames from the first number up to the second.
    later : which frames of a tile are used, the first tile excepted. One too many is decoded: VAEs make one frame of a
        tile's first latent frame and several of each other.
    """
    stride = vae.temporal_compression_ratio
    left = (latent_frames - 1) * stride + 1
    before = None
    for start in range(0, latent_frames, tiles.stride // stride):
        tile = decode(start, min(latent_frames, start + tiles.frames // stride + 1))
        if before is None:
            kept = tile[:, :, : tiles.stride + 1]
        else:
            tile = vae.blend_t(before, tile[:, :, later], tiles.frames - tiles.stride)
            kept = tile[:, :, : tiles.stride]
        before = tile
        if count := min(left, kept.shape[2]):
            yield kept[:, :, :count]
            left -= count
