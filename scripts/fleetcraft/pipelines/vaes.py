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


@dataclass(frozen=True)
class Vae:
    """A VAE, decoding as the family's decoder does.

    stride : frames, rows and columns of pixels that one latent position covers.
    channels : channels of the latents.
    held : (width, height, frames) of a video → numbers that are alive at the peak of decoding it, weights aside.
    """

    stride: tuple[int, int, int]
    channels: int
    held: Callable[[int, int, int], float]


def wan(config: Config) -> Vae:
    """One latent frame at a time; every convolution keeps the last two frames that it has seen."""
    stride = (config["scale_factor_temporal"], config["scale_factor_spatial"], config["scale_factor_spatial"])
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

    def held(width: int, height: int, frames: int) -> float:
        chunk: int = min(frames, 2 ** sum(slower))
        # Input of the last blocks, residual, activation; a copy with the two frames kept before, that one padded; and
        # the two frames that will be kept.
        alive: int = widths[-1] * (3 * chunk + 2 * (chunk + 2) + 2)
        return (kept + alive) * width * height

    return Vae(stride, latent, held)


def cogvideox(config: Config) -> Vae:
    """Two latent frames at a time, three at first; norms and convolutions keep what the next chunk needs."""
    channels: list[int] = list(reversed(config["block_out_channels"]))
    latent: int = config["latent_channels"]
    resnets: int = config["layers_per_block"] + 1
    doublings = int(log2(config["temporal_compression_ratio"]))
    stride = (2**doublings, 2 ** (len(channels) - 1), 2 ** (len(channels) - 1))

    def resnet(before: int, after: int, frames: float) -> float:
        """Kept by one block: its norms keep all latents that they interpolated, its convolutions two frames."""
        return 4 * latent * frames + 2 * (before + after)

    def kept(chunk: float) -> float:
        """Channels × frames that are kept of a chunk, of one pixel of the video."""
        frames: float = chunk / 2**doublings
        inside = 2 * latent + 2 * resnet(channels[0], channels[0], frames)
        total: float = inside / 4 ** (len(channels) - 1) + 2 * latent * chunk + 2 * channels[-1]
        for level, after in enumerate(channels):
            before = channels[max(level - 1, 0)]
            inside = resnet(before, after, frames) + (resnets - 1) * resnet(after, after, frames)
            total += inside / 4 ** (len(channels) - 1 - level)
            frames *= 2 if level < doublings else 1
        return total

    def held(width: int, height: int, frames: int) -> float:
        latents = (frames - 1) // stride[0] + 1
        # From the second chunk on, what the one before has left is alive together with what this one leaves.
        copies, chunk = (1, float(frames)) if latents < 4 else (2, 2.0 * stride[0])
        # The input of the last blocks, the residual, and six of a norm that is scaled and shifted by the latents.
        alive = (channels[-2] + 7 * channels[-1]) * chunk
        return (copies * kept(chunk) + alive) * width * height

    return Vae(stride, latent, held)


def ltx(config: Config) -> Vae:
    """The whole video at once."""
    scaling = 2 ** sum(config["spatio_temporal_scaling"])
    space: int = config["spatial_compression_ratio"] or config["patch_size"] * scaling
    time: int = config["temporal_compression_ratio"] or config["patch_size_t"] * scaling
    channels: int = config["decoder_block_out_channels"][0] // config["upsample_factor"][0]
    patch: int = config["patch_size"]

    def held(width: int, height: int, frames: int) -> float:
        # The input of the last blocks before it was scaled up; then residual, activation, its padded copy, output.
        blocks = channels * (4.25 * frames + 6) / patch**2
        # Patches become pixels by a copy of the whole video.
        return max(blocks, 6 * frames) * width * height

    return Vae((time, space, space), config["latent_channels"], held)


def hunyuan_video(config: Config) -> Vae:
    """A tile of sixteen frames, and the one before it, at a time."""
    time: int = config["temporal_compression_ratio"]
    space: int = config["spatial_compression_ratio"]
    channels: int = config["block_out_channels"][1]
    attends = bool(config["mid_block_add_attention"])

    def held(width: int, height: int, frames: int) -> float:
        tile = min(frames, _TILE + 1)
        # Scaling up to full size: all frames but the first, all, all padded, the output; and what they came from.
        scaling = channels * (4 * tile + 1 + 0.45 * (tile + 1)) * width * height
        # Attention in the middle comes with a mask of all pairs of positions, first of bytes, then of floats.
        positions = ((tile - 1) // time + 1) * (height // space) * (width // space)
        return max(scaling, attends * 1.25 * positions**2)

    return Vae((time, space, space), config["latent_channels"], held)


_TILE = 16
"""Frames of HunyuanVideo's temporal tiles, as its entry in the registry declares them."""
