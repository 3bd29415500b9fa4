"""How each cache inside the transformer is switched on; `fleetcraft.pipelines.cache_support` says where it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import (
    FasterCacheConfig,
    FirstBlockCacheConfig,
    MagCacheConfig,
    PyramidAttentionBroadcastConfig,
    TaylorSeerCacheConfig,
)
from diffusers.hooks import SeaCacheConfig

from fleetcraft.ground.errors import BadEnvironment
from fleetcraft.pipelines.families import FAMILIES

Settings = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What some caches have to know of the run.

    steps : denoising steps of a sample.
    timestep : tells the timestep at which the pipeline is.
    distilled : guidance is an input of the transformer, so no forward is unconditional.
    """

    steps: int
    timestep: Callable[[], float]
    distilled: bool


def enable(pipeline: Any, cache: Settings, family: str, steps: int) -> None:
    """Switch an arm's cache on, and see that it took hold.

    Raises
    ------
    BadEnvironment : not a module was hooked; diffusers would report the cache as enabled all the same.
    """
    run = Run(steps, lambda: pipeline.current_timestep, FAMILIES[family].guidance == "embedded")
    pipeline.transformer.enable_cache(_CONFIGS[cache["type"]](cache, run))
    if not hooked_modules(pipeline.transformer):
        raise BadEnvironment(
            f"the cache {cache['type']!r} found nothing to hook in {type(pipeline.transformer).__name__}",
            key="cache",
            value=cache,
            remedy="Choose another cache for this model, or null",
        )


def hooked_modules(transformer: torch.nn.Module) -> int:
    """How many modules inside the transformer carry a hook of diffusers."""
    registries = [getattr(module, "_diffusers_hook", None) for module in transformer.modules()][1:]
    return sum(registry is not None and bool(registry.hooks) for registry in registries)


def _first_block(cache: Settings, _run: Run) -> FirstBlockCacheConfig:
    return FirstBlockCacheConfig(threshold=cache["threshold"])


def _pyramid_attention(cache: Settings, run: Run) -> PyramidAttentionBroadcastConfig:
    """For self-attention alone, by its exact names.

    By its own, diffusers takes HunyuanVideo's text refiner for a block, and LTX's attention to text for self-attention.
    """
    return PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=cache["skip_range"],
        spatial_attention_timestep_skip_range=tuple(cache["timesteps"]),
        spatial_attention_block_identifiers=(r"^(single_)?(transformer_)?blocks\.\d+\.(attn|attn1)$",),
        current_timestep_callback=run.timestep,
    )


def _faster(cache: Settings, run: Run) -> FasterCacheConfig:
    weight = cache["attention_weight"]
    return FasterCacheConfig(
        spatial_attention_block_skip_range=cache["skip_range"],
        spatial_attention_timestep_skip_range=tuple(cache["timesteps"]),
        attention_weight_callback=lambda _: weight,
        unconditional_batch_skip_range=cache["unconditional_skip_range"],
        unconditional_batch_timestep_skip_range=tuple(cache["unconditional_timesteps"]),
        alpha_low_frequency=cache["low_frequency_weight"],
        low_frequency_weight_update_timestep_range=tuple(cache["low_frequency_timesteps"]),
        alpha_high_frequency=cache["high_frequency_weight"],
        high_frequency_weight_update_timestep_range=tuple(cache["high_frequency_timesteps"]),
        # CogVideoX's layout; the other family that has this cache never gets to the halves that it is for.
        tensor_format="BFCHW",
        is_guidance_distilled=run.distilled,
        current_timestep_callback=run.timestep,
    )


def _mag(cache: Settings, run: Run) -> MagCacheConfig:
    return MagCacheConfig(
        threshold=cache["threshold"],
        max_skip_steps=cache["max_skip_steps"],
        retention_ratio=cache["retention_ratio"],
        num_inference_steps=run.steps,
        mag_ratios=list(cache["ratios"]),
    )


def _sea(cache: Settings, _run: Run) -> SeaCacheConfig:
    return SeaCacheConfig(
        threshold=cache["threshold"],
        residual_order=cache["residual_order"],
        retention_steps=cache["retention_steps"],
        cache_end_steps=cache["end_steps"],
        max_consecutive_cached=cache["max_skip_steps"],
        power_exp=cache["power"],
    )


def _taylor_seer(cache: Settings, _run: Run) -> TaylorSeerCacheConfig:
    """By names that all families have; diffusers' own match nothing in most of them.

    The single blocks of HunyuanVideo join attention and feed-forward in one last projection: that one is predicted, and
    what would feed it is skipped.
    """
    names: dict[str, Any] = {
        "cache_identifiers": [
            r"(transformer_)?blocks\.\d+\.(attn|attn1|attn2|ff|ffn|ff_context)",
            r"single_transformer_blocks\.\d+\.proj_out",
        ],
        "skip_predict_identifiers": [r"single_transformer_blocks\.\d+\.(attn|proj_mlp)"],
    }
    return TaylorSeerCacheConfig(
        cache_interval=cache["interval"],
        disable_cache_before_step=cache["first_steps"],
        disable_cache_after_step=cache["last_steps_from"],
        max_order=cache["order"],
        taylor_factors_dtype=getattr(torch, cache["dtype"]),
        **({"use_lite_mode": True} if cache["lite"] else names),
    )


_CONFIGS: dict[str, Callable[[Settings, Run], Any]] = {
    "first_block": _first_block,
    "pyramid_attention": _pyramid_attention,
    "faster": _faster,
    "mag": _mag,
    "sea": _sea,
    "taylor_seer": _taylor_seer,
}
"""Type → what makes the config of diffusers from an arm's settings."""
