"""Wan text-to-video (Wan 2.1 layout: one transformer, UMT5 text encoder, causal VAE of stride 4 × 8 × 8)."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKLWan,
    FirstBlockCacheConfig,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from diffusers.utils import logging as diffusers_logging
from transformers import T5Tokenizer, UMT5Config, UMT5EncoderModel

from fleetcraft.ground.errors import MissingWeights
from fleetcraft.pipelines.interface import DenoiseSettings, Work
from fleetcraft.pipelines.numerics import refuse_meta_tensors, to_uint8

if TYPE_CHECKING:
    from numpy.typing import NDArray

diffusers_logging.disable_progress_bar()


def build_tiny(directory: Path, seed: int) -> None:
    """Save a Wan pipeline of about 300 kB with random weights, the same bytes for the same seed."""
    torch.manual_seed(seed)
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=32,
        freq_dim=256,
        ffn_dim=32,
        num_layers=4,
        rope_max_seq_len=64,
    )
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    with torch.no_grad():
        # Random biases drown what comes from the latents: without them two videos look as different as their latents.
        for name, weights in vae.named_parameters():
            if name.endswith("bias"):
                weights.zero_()
        vae.decoder.conv_out.weight.mul_(2)
    letters = [(character, -3.0) for character in string.printable if not character.isspace()]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    tokenizer = T5Tokenizer(vocab=[*special, *letters], extra_ids=0)
    text_encoder = UMT5EncoderModel(
        UMT5Config(
            vocab_size=len(tokenizer),
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=32,
            is_encoder_decoder=False,
        )
    )
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    WanPipeline(
        tokenizer=tokenizer, text_encoder=text_encoder, vae=vae, transformer=transformer, scheduler=scheduler
    ).save_pretrained(directory)


def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> WanDenoiser:
    """Everything but the VAE, with the arm's caching switched on."""
    dtype = getattr(torch, settings.dtype)
    text_encoder, report = UMT5EncoderModel.from_pretrained(
        directory / "text_encoder", dtype=dtype, output_loading_info=True, local_files_only=True
    )
    if report["missing_keys"]:
        raise MissingWeights(
            f"weights of the text encoder are missing: {', '.join(sorted(report['missing_keys'])[:3])}",
            file=directory / "text_encoder",
            remedy="Mirror the checkpoint again",
        )
    transformer = WanTransformer3DModel.from_pretrained(
        directory / "transformer", torch_dtype=dtype, local_files_only=True
    )
    refuse_meta_tensors(transformer, "transformer")
    pipeline = WanPipeline.from_pretrained(
        directory, text_encoder=text_encoder, transformer=transformer, vae=None, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    pipeline.to(device)
    return WanDenoiser(pipeline, settings)


class WanDenoiser:
    """A Wan pipeline without its VAE. One sample at a time: a batch would share one caching decision."""

    def __init__(self, pipeline: WanPipeline, settings: DenoiseSettings):
        self.pipeline, self.settings = pipeline, settings
        self.layers = len(pipeline.transformer.blocks)
        self._forwards = self._blocks = 0
        # A cached block returns without calling its attention, so calls of the attention are blocks that really ran.
        # Counted before caching is enabled, which wraps the blocks and not what is in them.
        pipeline.transformer.register_forward_pre_hook(self._count_forward)
        for block in pipeline.transformer.blocks:
            block.attn1.register_forward_pre_hook(self._count_block)
        if settings.cache is not None:
            pipeline.transformer.enable_cache(FirstBlockCacheConfig(threshold=settings.cache["threshold"]))

    def _count_forward(self, *_: Any) -> None:
        self._forwards += 1

    def _count_block(self, *_: Any) -> None:
        self._blocks += 1

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def denoise(self, prompt: str, seed: int) -> tuple[torch.Tensor, Work]:
        """Latents [channels, frames, height, width] of one sample, float32, on the CPU."""
        self._refuse_unknown_tokens(prompt)
        self._forwards = self._blocks = 0
        settings = self.settings
        try:
            latents = self.pipeline(
                prompt=prompt,
                negative_prompt=settings.negative_prompt,
                width=settings.width,
                height=settings.height,
                num_frames=settings.frames,
                num_inference_steps=settings.steps,
                guidance_scale=settings.guidance,
                # On the CPU whatever the device: a CUDA generator draws another stream.
                generator=[torch.Generator("cpu").manual_seed(seed)],
                output_type="latent",
            ).frames
        finally:
            if settings.cache is not None:
                # What the last sample left in the cache must not reach the next one, above all after a failure.
                self.pipeline.transformer._reset_stateful_cache()
        work = Work(self._forwards, self._blocks, self._forwards * self.layers)
        return latents[0].float().cpu(), work

    def _refuse_unknown_tokens(self, prompt: str) -> None:
        """A tokenizer whose vocabulary is missing or foreign makes unknown tokens of everything, without a word."""
        tokenizer = self.pipeline.tokenizer
        ids = set(tokenizer(prompt, add_special_tokens=False).input_ids)
        if ids == {tokenizer.unk_token_id}:
            raise MissingWeights(
                "the tokenizer makes nothing but unknown tokens of this prompt",
                file=tokenizer.name_or_path,
                value=prompt,
                remedy="Mirror the tokenizer's files again",
            )


def load_decoder(directory: Path, device: str) -> WanDecoder:
    """The VAE alone, in float32 as its authors run it."""
    vae = AutoencoderKLWan.from_pretrained(directory / "vae", torch_dtype=torch.float32, local_files_only=True)
    refuse_meta_tensors(vae, "VAE")
    return WanDecoder(vae.to(device).eval())


class WanDecoder:
    """Wan's causal VAE, one latent frame at a time."""

    def __init__(self, vae: AutoencoderKLWan):
        self.vae = vae

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, latents: torch.Tensor) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3].

        The VAE looks back through a cache of features, so feeding it one latent frame after the other gives the very
        numbers of `AutoencoderKLWan.decode`, which does the same and keeps every frame.
        """
        vae = self.vae
        z = latents.unsqueeze(0).to(vae.device, vae.dtype)
        mean = torch.tensor(vae.config.latents_mean).view(1, -1, 1, 1, 1).to(z.device, z.dtype)
        # The double reciprocal is the pipeline's own; multiplying by the deviation differs in the last bit.
        inverse_deviation = 1.0 / torch.tensor(vae.config.latents_std).view(1, -1, 1, 1, 1).to(z.device, z.dtype)
        hidden = vae.post_quant_conv(z / inverse_deviation + mean)
        vae.clear_cache()
        try:
            for index in range(hidden.shape[2]):
                vae._conv_idx = [0]
                pixels = vae.decoder(
                    hidden[:, :, index : index + 1],
                    feat_cache=vae._feat_map,
                    feat_idx=vae._conv_idx,
                    **({"first_chunk": True} if index == 0 else {}),
                )
                yield to_uint8(pixels[0])
        finally:
            vae.clear_cache()
