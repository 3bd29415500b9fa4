"""FLOPs of one forward of a family's transformer, counted by torch on the `meta` device: no weights, no arithmetic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fleetcraft.pipelines.families import FAMILIES


@dataclass(frozen=True)
class ForwardFlops:
    """What one forward costs when nothing is skipped.

    total : FLOPs of the whole forward; a multiplication and an addition are two.
    modules : qualified name of each module (`blocks.0.attn1`) → FLOPs of it and of all modules in it. A module that
        multiplies no matrices isn't there.
    """

    total: int
    modules: Mapping[str, int]


def forward_flops(
    family: str,
    config: Mapping[str, Any],
    width: int,
    height: int,
    frames: int,
    batch: int = 1,
    text_tokens: int | None = None,
) -> ForwardFlops:
    """Count one forward for videos of `width` × `height` pixels and `frames` frames.

    The transformer is built for the count, so caches and hooks of one that is loaded have no part in it. What was
    counted once is remembered.

    Parameters
    ----------
    config : of the transformer, as in its config.json; keys that it lacks have the defaults of diffusers.
    batch : samples in the forward, those of guidance included.
    text_tokens : tokens of text, padding included; by default what the family's pipeline pads to.
    """
    own = {key: value for key, value in config.items() if not key.startswith("_")}
    if text_tokens is None:
        text_tokens = FAMILIES[family].text_tokens_of(own)
    return _counted(family, json.dumps(own, sort_keys=True), (width, height, frames), batch, text_tokens)


@lru_cache(maxsize=64)
def _counted(family: str, config: str, shape: tuple[int, int, int], batch: int, text_tokens: int) -> ForwardFlops:
    known = FAMILIES[family]
    module = known.load()
    latents = known.geometry.latent_shape(*shape)
    # The backend for everyone: the counter would miss what a fused kernel of another backend computes.
    with torch.inference_mode(), torch.device("meta"), sdpa_kernel(SDPBackend.MATH):
        transformer = module.TRANSFORMER.from_config(json.loads(config)).eval()
        inputs = module.transformer_inputs(transformer.config, latents, batch, text_tokens)
        with FlopCounterMode(display=False) as counter:
            transformer(**inputs)
    root = type(transformer).__name__
    modules = {
        name.removeprefix(f"{root}."): sum(flops.values())
        for name, flops in counter.get_flop_counts().items()
        if name.startswith(f"{root}.")
    }
    return ForwardFlops(counter.get_total_flops(), MappingProxyType(modules))
