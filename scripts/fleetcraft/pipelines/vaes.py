"""What a VAE is by its config alone: its strides, and an estimate of what decoding holds at once, without torch.

The estimate follows each decoder to its widest moment, counting what is alive there: the numbers of a layer's input,
of its padded copy and of its output, of whatever the callers still refer to, and of what is kept for the next chunk.
Workspaces of convolutions are not in it, nor what an allocator keeps. Tests hold it to the tensors that are really
alive in the VAEs of diffusers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from fleetcraft.pipelines.configs import Config
from fleetcraft.pipelines.interface import SpatialTiles


@dataclass(frozen=True)
class Vae:
    """A VAE, decoding as the family's decoder does.

    stride : frames, rows and columns of pixels that one latent position covers.
    channels : channels of the latents.
    chunk : frames of a video → frames that are decoded at once.
    kept : frames of a video → numbers that one chunk leaves to the next, for each pixel of a frame.
    alive : (width, height, frames) → numbers that are alive at the peak of decoding a chunk beside those kept.
    """

    stride: tuple[int, int, int]
    channels: int
    chunk: Callable[[int], int]
    kept: Callable[[int], float]
    alive: Callable[[int, int, int], float]

    def held(self, width: int, height: int, frames: int, tiles: SpatialTiles | None = None) -> float:
        """Numbers that are alive at the peak of decoding a video, weights aside; with tiles, where a frame has several.

        Each tile keeps what its next chunk needs. Pixels of all tiles wait for being blended into frames.
        """
        if tiles is None or not tiles.cut(width, height):
            return self.kept(frames) * width * height + self.alive(width, height, frames)
        columns = sum(min(tiles.width, width - left) for left in range(0, width, tiles.stride_width))
        rows = sum(min(tiles.height, height - top) for top in range(0, height, tiles.stride_height))
        pixels = 3 * self.chunk(frames) * (columns * rows + width * height)
        one = self.alive(min(tiles.width, width), min(tiles.height, height), frames)
        return self.kept(frames) * columns * rows + one + pixels


def wan(config: Config) -> Vae:
    """One latent frame at a time; every convolution keeps the last two frames that it has seen."""
    space: int = config["scale_factor_spatial"]
    stride: tuple[int, int, int] = (config["scale_factor_temporal"], space, space)
    latent: int = config["z_dim"]
    base: int = config["decoder_base_dim"] or config["base_dim"]
    widths: list[int] = [base * factor for factor in (config["dim_mult"][-1], *reversed(config["dim_mult"]))]
    slower = [*reversed(config["temperal_downsample"]), False]
    blocks: int = config["num_res_blocks"]
    # Channels × frames that are kept, of one pixel of the video: a level has a quarter of the next one's pixels.
    kept: float = 2 * (latent + 4 * widths[0]) / 4 ** (len(widths) - 2) + 2 * widths[-1]
    for level, (before, after) in enumerate(pairwise(widths)):
        entering = before if level == 0 else before // 2
        convolved = entering + (2 * blocks + 1 + slower[level]) * after
        kept += 2 * convolved / 4 ** (len(widths) - 2 - level)

    def chunk(frames: int) -> int:
        return min(frames, stride[0])

    def alive(width: int, height: int, frames: int) -> float:
        # Input of the last blocks, residual, activation; a copy with the two frames kept before, that one padded; and
        # the two frames that will be kept.
        return widths[-1] * (3 * chunk(frames) + 2 * (chunk(frames) + 2) + 2) * width * height

    return Vae(stride, latent, chunk, lambda _: kept, alive)


def cogvideox(config: Config) -> Vae:
    """Two latent frames at a time, three at first; norms and convolutions keep what the next chunk needs."""
    channels: list[int] = list(reversed(config["block_out_channels"]))
    latent: int = config["latent_channels"]
    resnets: int = config["layers_per_block"] + 1
    time = int(config["temporal_compression_ratio"])
    doublings = int(log2(time))
    stride = (time, 2 ** (len(channels) - 1), 2 ** (len(channels) - 1))

    def resnet(before: int, after: int, frames: float) -> float:
        """Kept by one block: its norms keep all latents that they interpolated, its convolutions two frames."""
        return 4 * latent * frames + 2 * (before + after)

    def single(frames: int) -> bool:
        return frames <= 3 * time

    def chunk(frames: int) -> int:
        return frames if single(frames) else 2 * time

    def kept(frames: int) -> float:
        inside: float = chunk(frames) / 2**doublings
        middle = 2 * latent + 2 * resnet(channels[0], channels[0], inside)
        total: float = middle / 4 ** (len(channels) - 1) + 2 * latent * chunk(frames) + 2 * channels[-1]
        for level, after in enumerate(channels):
            before = channels[max(level - 1, 0)]
            blocks = resnet(before, after, inside) + (resnets - 1) * resnet(after, after, inside)
            total += blocks / 4 ** (len(channels) - 1 - level)
            inside *= 2 if level < doublings else 1
        return total

    def alive(width: int, height: int, frames: int) -> float:
        # The input of the last blocks, the residual, and six of a norm that is scaled and shifted by the latents. From
        # the second chunk on, what this one will leave is alive together with what the one before has left.
        inside = (channels[-2] + 7 * channels[-1]) * chunk(frames)
        return (inside + (0 if single(frames) else kept(frames))) * width * height

    return Vae(stride, latent, chunk, kept, alive)


def ltx(config: Config) -> Vae:
    """The whole video at once."""
    scaling = 2 ** sum(config["spatio_temporal_scaling"])
    space: int = config["spatial_compression_ratio"] or config["patch_size"] * scaling
    time: int = config["temporal_compression_ratio"] or config["patch_size_t"] * scaling
    channels: int = config["decoder_block_out_channels"][0] // config["upsample_factor"][0]
    patch: int = config["patch_size"]

    def alive(width: int, height: int, frames: int) -> float:
        # The input of the last blocks before it was scaled up; then residual, activation, its padded copy, output.
        blocks = channels * (4.25 * frames + 6) / patch**2
        # Patches become pixels by a copy of the whole video.
        return max(blocks, 6 * frames) * width * height

    return Vae((time, space, space), config["latent_channels"], lambda frames: frames, lambda _: 0, alive)


def hunyuan_video(config: Config) -> Vae:
    """A tile of sixteen frames, and the one before it, at a time."""
    time: int = config["temporal_compression_ratio"]
    space: int = config["spatial_compression_ratio"]
    channels: int = config["block_out_channels"][1]
    attends = bool(config["mid_block_add_attention"])

    def chunk(frames: int) -> int:
        return min(frames, _TILE + 1)

    def alive(width: int, height: int, frames: int) -> float:
        tile = chunk(frames)
        # Scaling up to full size: all frames but the first, all, all padded, the output; and what they came from.
        scaling = channels * (4 * tile + 1 + 0.45 * (tile + 1)) * width * height
        # Attention in the middle comes with a mask of all pairs of positions, first of bytes, then of floats.
        positions = ((tile - 1) // time + 1) * (height // space) * (width // space)
        return max(scaling, attends * 1.25 * positions**2)

    return Vae((time, space, space), config["latent_channels"], chunk, lambda _: 0, alive)


_TILE = 16
"""Frames of HunyuanVideo's temporal tiles, as its entry in the registry declares them."""
