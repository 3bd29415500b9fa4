"""What a transformer is made of, by its config alone: its parameters, and the FLOPs of a forward, without torch.

Only matrix products count, as in torch's own counter: a linear layer of m × n costs 2·m·n for each row that passes
through it, attention of q queries to k keys costs 4·q·k·width. Norms, activations and rotations are left out; at real
sizes they are far below a percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from fleetcraft.pipelines.configs import Config

Rows: TypeAlias = Literal["video", "text", "joint", "sample"]
"""What passes through a layer: tokens of video, of text or of both, or one vector a sample."""


@dataclass(frozen=True)
class Linear:
    """`count` equal linear layers; a convolution whose stride is its kernel is one too."""

    rows: Rows
    inputs: int
    outputs: int
    count: int = 1
    bias: bool = True


@dataclass(frozen=True)
class Attention:
    """`count` equal attentions, all heads together `width` wide."""

    queries: Rows
    keys: Rows
    width: int
    count: int = 1


@dataclass(frozen=True)
class Transformer:
    """A denoising transformer.

    patch : latent frames, rows and columns that one token covers.
    vectors : parameters that no matrix holds: those of norms and modulation tables.
    """

    patch: tuple[int, int, int]
    linears: tuple[Linear, ...]
    attentions: tuple[Attention, ...]
    vectors: int

    @property
    def parameters(self) -> int:
        """Trained numbers of the whole transformer."""
        return self.vectors + sum((layer.inputs + layer.bias) * layer.outputs * layer.count for layer in self.linears)

    def flops(self, video_tokens: int, text_tokens: int, batch: int = 1) -> int:
        """FLOPs of one forward of `batch` samples; a multiplication and an addition are two."""
        rows = {"video": video_tokens, "text": text_tokens, "joint": video_tokens + text_tokens, "sample": 1}
        linear = sum(2 * rows[layer.rows] * layer.inputs * layer.outputs * layer.count for layer in self.linears)
        attention = sum(4 * rows[a.queries] * rows[a.keys] * a.width * a.count for a in self.attentions)
        return batch * (linear + attention)


def wan(config: Config) -> Transformer:
    """Self-attention over the video, then cross-attention to the text, in every block."""
    width, layers = _width(config), config["num_layers"]
    patch = tuple(config["patch_size"])
    norms = 4 * width * (config["qk_norm"] is not None) + 2 * width * config["cross_attn_norm"]
    return Transformer(
        patch=patch,
        linears=(
            Linear("video", config["in_channels"] * prod(patch), width),
            *_embedding("sample", config["freq_dim"], width),
            Linear("sample", width, 6 * width),
            *_embedding("text", config["text_dim"], width),
            Linear("video", width, width, count=6 * layers),
            Linear("text", width, width, count=2 * layers),
            *_feed_forward("video", width, config["ffn_dim"], layers),
            Linear("video", width, config["out_channels"] * prod(patch)),
        ),
        attentions=(Attention("video", "video", width, layers), Attention("video", "text", width, layers)),
        vectors=layers * (norms + 6 * width) + 2 * width,
    )


def cogvideox(config: Config) -> Transformer:
    """Text and video are one sequence in every block, with modulation of their own."""
    width, layers, head = _width(config), config["num_layers"], config["attention_head_dim"]
    time, patch_t = config["time_embed_dim"], config["patch_size_t"]
    patch = (patch_t or 1, config["patch_size"], config["patch_size"])
    speed = config["ofs_embed_dim"] or 0
    affine = 2 * width * config["norm_elementwise_affine"]
    return Transformer(
        patch=patch,
        linears=(
            # Where patches span time they go through a linear layer, which always has a bias.
            Linear(
                "video",
                config["in_channels"] * prod(patch),
                width,
                bias=patch_t is not None or config["patch_bias"],
            ),
            Linear("text", config["text_embed_dim"], width),
            *_embedding("sample", width, time),
            *(_embedding("sample", speed, speed) if speed else ()),
            Linear("sample", time, 6 * width, count=2 * layers),
            Linear("joint", width, width, count=3 * layers, bias=config["attention_bias"]),
            Linear("joint", width, width, count=layers),
            *_feed_forward("joint", width, 4 * width, layers),
            Linear("sample", time, 2 * width),
            Linear("video", width, config["out_channels"] * prod(patch)),
        ),
        attentions=(Attention("joint", "joint", width, layers),),
        vectors=layers * (2 * affine + 4 * head) + 2 * affine,
    )


def ltx(config: Config) -> Transformer:
    """Self-attention over the video, then cross-attention to the text, in every block."""
    width, layers, cross = _width(config), config["num_layers"], config["cross_attention_dim"]
    norms = 4 * width + 2 * width * config["norm_elementwise_affine"]
    bias, out_bias = config["attention_bias"], config["attention_out_bias"]
    return Transformer(
        patch=(config["patch_size_t"], config["patch_size"], config["patch_size"]),
        linears=(
            Linear("video", config["in_channels"], width),
            *_embedding("sample", _TIMESTEP, width),
            Linear("sample", width, 6 * width),
            *_embedding("text", config["caption_channels"], width),
            Linear("video", width, width, count=4 * layers, bias=bias),
            Linear("video", width, width, count=2 * layers, bias=out_bias),
            Linear("text", cross, width, count=2 * layers, bias=bias),
            *_feed_forward("video", width, 4 * width, layers),
            Linear("video", width, config["out_channels"]),
        ),
        attentions=(Attention("video", "video", width, layers), Attention("video", "text", width, layers)),
        vectors=layers * (norms + 6 * width) + 2 * width,
    )


def hunyuan_video(config: Config) -> Transformer:
    """Blocks with weights for video and for text, then blocks with the same for both; a refiner for the text."""
    width, head = _width(config), config["attention_head_dim"]
    double, single, refiner = (config[f"num_{kind}layers"] for kind in ("", "single_", "refiner_"))
    hidden = int(width * config["mlp_ratio"])
    patch = (config["patch_size_t"], config["patch_size"], config["patch_size"])
    text, pooled = config["text_embed_dim"], config["pooled_projection_dim"]
    return Transformer(
        patch=patch,
        linears=(
            Linear("video", config["in_channels"] * prod(patch), width),
            # The refiner has embeddings of the timestep and of the mean token of its own.
            *_embedding("sample", _TIMESTEP, width),
            *_embedding("sample", text, width),
            Linear("text", text, width),
            Linear("text", width, width, count=4 * refiner),
            *_feed_forward("text", width, 4 * width, refiner),
            Linear("sample", width, 2 * width, count=refiner),
            *_embedding("sample", _TIMESTEP, width),
            *_embedding("sample", pooled, width),
            *(_embedding("sample", _TIMESTEP, width) if config["guidance_embeds"] else ()),
            Linear("sample", width, 6 * width, count=2 * double),
            Linear("video", width, width, count=4 * double),
            Linear("text", width, width, count=4 * double),
            *_feed_forward("video", width, hidden, double),
            *_feed_forward("text", width, hidden, double),
            Linear("sample", width, 3 * width, count=single),
            Linear("joint", width, width, count=3 * single),
            Linear("joint", width, hidden, count=single),
            Linear("joint", width + hidden, width, count=single),
            Linear("sample", width, 2 * width),
            Linear("video", width, config["out_channels"] * prod(patch)),
        ),
        attentions=(
            Attention("text", "text", width, refiner),
            Attention("joint", "joint", width, double + single),
        ),
        vectors=refiner * 4 * width + head * (4 * double + 2 * single) * (config["qk_norm"] is not None),
    )


_TIMESTEP = 256
"""Width of the sinusoidal embedding of a timestep, where a config can't change it."""


def _width(config: Config) -> int:
    return int(config["num_attention_heads"] * config["attention_head_dim"])


def _embedding(rows: Rows, inputs: int, width: int) -> tuple[Linear, Linear]:
    """Two layers that bring timesteps, guidance or text to the width of the transformer."""
    return Linear(rows, inputs, width), Linear(rows, width, width)


def _feed_forward(rows: Rows, width: int, hidden: int, count: int) -> tuple[Linear, Linear]:
    return Linear(rows, width, hidden, count), Linear(rows, hidden, width, count)
