"""Wan text-to-video (Wan 2.1 layout: one transformer, UMT5 text encoder, causal VAE of stride 4 × 8 × 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from diffusers.pipelines.wan.pipeline_wan import prompt_clean
from transformers import UMT5Config, UMT5EncoderModel

from fleetcraft.pipelines import configs
from fleetcraft.pipelines.decoding import VAEDecoder
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import PLAIN, DecodeSettings, DenoiseSettings, Latents
from fleetcraft.pipelines.loading import load_pipeline, load_text_encoder, load_tokenizers, load_transformer, load_vae
from fleetcraft.pipelines.numerics import to_uint8
from fleetcraft.pipelines.prompts import Reader
from fleetcraft.pipelines.tiling import cut, join
from fleetcraft.pipelines.tiny import letters_tokenizer, silence_biases

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRANSFORMER = WanTransformer3DModel


def build_tiny(directory: Path, seed: int) -> None:
    """Save a Wan pipeline of about 300 kB with random weights, the same bytes for the same seed."""
    torch.manual_seed(seed)
    tiny = configs.tiny("wan")
    transformer = WanTransformer3DModel(**tiny.transformer)
    vae = AutoencoderKLWan(**tiny.vae)
    silence_biases(vae)
    with torch.no_grad():
        vae.decoder.conv_out.weight.mul_(2)
    tokenizer = letters_tokenizer()
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


def load_readers(directory: Path) -> dict[str, Reader]:
    """UMT5 reads a prompt as the pipeline tidies it up."""
    (tokenizer,) = load_tokenizers(WanPipeline, directory, "tokenizer")
    return {"text_encoder": Reader(tokenizer, FAMILIES["wan"].text_tokens, prompt_clean)}


def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> WanDenoiser:
    """Everything but the VAE, with the arm's caching switched on."""
    pipeline = load_pipeline(
        WanPipeline,
        directory,
        device,
        text_encoder=load_text_encoder(UMT5EncoderModel, directory / "text_encoder", settings.dtype),
        transformer=load_transformer(TRANSFORMER, directory / "transformer", settings.dtype),
    )
    return WanDenoiser(pipeline, settings)


class WanDenoiser(PipelineDenoiser):
    """Wan's pipeline without its VAE."""

    family = "wan"

    def sample(self, prompts: list[str], generators: list[torch.Generator]) -> torch.Tensor:
        """Latents as the pipeline has them."""
        latents: torch.Tensor = self.pipeline(
            prompt=prompts, negative_prompt=self.settings.negative_prompt, generator=generators, **self.shape
        ).frames
        return latents


def transformer_inputs(
    config: Mapping[str, Any], latents: tuple[int, int, int, int], batch: int, text_tokens: int
) -> dict[str, Any]:
    """Arguments of one forward."""
    return {
        "hidden_states": torch.zeros(batch, *latents),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.zeros(batch, text_tokens, config["text_dim"]),
    }


def load_decoder(directory: Path, device: str, settings: DecodeSettings = PLAIN) -> WanDecoder:
    """The VAE alone."""
    return WanDecoder(load_vae(AutoencoderKLWan, directory / "vae", device, settings.dtype), settings)


class WanDecoder(VAEDecoder):
    """Wan's causal VAE, one latent frame at a time."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3].

        The VAE looks back through a cache of features, so feeding it one latent frame after the other gives the very
        numbers of `AutoencoderKLWan.decode`, which does the same and keeps every frame. Two at once would not: their
        sums run in another order. With tiles each has a cache of its own, where `tiled_decode` ends one tile before it
        begins the next.
        """
        vae, tiles, stride = self.vae, self.settings.tiling, self.vae.spatial_compression_ratio
        # The double reciprocal is the pipeline's own; multiplying by the deviation differs in the last bit.
        inverse_deviation = 1.0 / self._statistics(vae.config.latents_std)
        mean = self._statistics(vae.config.latents_mean)
        caches = self.memory = [
            [[None] * vae._cached_conv_counts["decoder"] for _ in row] for row in cut(latents[:, :1], tiles, stride)
        ]
        try:
            for index in range(latents.shape[1]):
                z = latents[:, index : index + 1].unsqueeze(0).to(vae.device, vae.dtype) / inverse_deviation + mean
                rows = [
                    [
                        vae.decoder(
                            vae.post_quant_conv(tile),
                            feat_cache=cache,
                            feat_idx=[0],
                            **({"first_chunk": True} if index == 0 else {}),
                        )
                        for tile, cache in zip(line, line_caches, strict=True)
                    ]
                    for line, line_caches in zip(cut(z, tiles, stride), caches, strict=True)
                ]
                yield to_uint8(join(vae, rows, tiles)[0])
        finally:
            self.memory = None

    def _statistics(self, values: list[float]) -> torch.Tensor:
        return torch.tensor(values).view(1, -1, 1, 1, 1).to(self.vae.device, self.vae.dtype)
