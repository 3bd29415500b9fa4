"""HunyuanVideo text-to-video (Llama and CLIP text encoders, guidance distilled into the model, VAE of 4 × 8 × 8)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKLHunyuanVideo,
    FlowMatchEulerDiscreteScheduler,
    HunyuanVideoPipeline,
    HunyuanVideoTransformer3DModel,
)
from diffusers.pipelines.hunyuan_video.pipeline_hunyuan_video import DEFAULT_PROMPT_TEMPLATE
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, LlamaConfig, LlamaModel
from transformers.convert_slow_tokenizer import bytes_to_unicode

from fleetcraft.pipelines import configs
from fleetcraft.pipelines.decoding import VAEDecoder
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import PLAIN, DecodeSettings, DenoiseSettings, Latents, TemporalTiles
from fleetcraft.pipelines.loading import load_pipeline, load_text_encoder, load_tokenizers, load_transformer, load_vae
from fleetcraft.pipelines.numerics import to_uint8
from fleetcraft.pipelines.prompts import Reader
from fleetcraft.pipelines.tiling import enable, in_time
from fleetcraft.pipelines.tiny import letters_tokenizer, silence_biases

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRANSFORMER = HunyuanVideoTransformer3DModel

CLIP_TOKENS = 77
"""Tokens that the pipeline hands to CLIP."""


def build_tiny(directory: Path, seed: int) -> None:
    """Save a HunyuanVideo pipeline of about 1 MB with random weights, the same bytes for the same seed."""
    torch.manual_seed(seed)
    tiny = configs.tiny("hunyuan_video")
    transformer = HunyuanVideoTransformer3DModel(**tiny.transformer)
    vae = AutoencoderKLHunyuanVideo(**tiny.vae)
    silence_biases(vae)
    # The pipeline cuts the first 95 tokens off, which are its template's: with words it has more, with letters alone
    # so many that none would be left of the prompt.
    words = re.findall(r"[a-z]{2,}", DEFAULT_PROMPT_TEMPLATE["template"])
    tokenizer = letters_tokenizer(sorted({f"▁{word}" for word in words}))
    tokenizer.padding_side = "right"
    text_encoder = LlamaModel(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=512,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    tokenizer_2 = bytes_tokenizer()
    text_encoder_2 = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer_2),
            hidden_size=16,
            intermediate_size=32,
            projection_dim=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=77,
            bos_token_id=tokenizer_2.bos_token_id,
            eos_token_id=tokenizer_2.eos_token_id,
            pad_token_id=tokenizer_2.pad_token_id,
        )
    )
    HunyuanVideoPipeline(
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        text_encoder_2=text_encoder_2,
        tokenizer_2=tokenizer_2,
        vae=vae,
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
    ).save_pretrained(directory)


def bytes_tokenizer() -> CLIPTokenizer:
    """CLIP's tokenizer with a vocabulary of bytes, inside of words and at their ends."""
    characters = sorted(bytes_to_unicode().values())
    names = [*characters, *(f"{character}</w>" for character in characters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {name: number for number, name in enumerate(names)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def load_readers(directory: Path) -> dict[str, Reader]:
    """Llama reads the prompt within a template. CLIP, which reads 77 tokens, only adds a summary."""
    llama, clip = load_tokenizers(HunyuanVideoPipeline, directory, "tokenizer", "tokenizer_2")
    template, lead = DEFAULT_PROMPT_TEMPLATE["template"], DEFAULT_PROMPT_TEMPLATE["crop_start"]
    tail = template.partition("{}")[2]
    return {
        "text_encoder": Reader(llama, FAMILIES["hunyuan_video"].text_tokens, template.format, lead, tail),
        "text_encoder_2": Reader(clip, CLIP_TOKENS, whole=False),
    }


def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> HunyuanVideoDenoiser:
    """Everything but the VAE, with the arm's caching switched on."""
    pipeline = load_pipeline(
        HunyuanVideoPipeline,
        directory,
        device,
        text_encoder=load_text_encoder(LlamaModel, directory / "text_encoder", settings.dtype),
        text_encoder_2=load_text_encoder(CLIPTextModel, directory / "text_encoder_2", settings.dtype),
        transformer=load_transformer(TRANSFORMER, directory / "transformer", settings.dtype),
    )
    return HunyuanVideoDenoiser(pipeline, settings)


class HunyuanVideoDenoiser(PipelineDenoiser):
    """HunyuanVideo's pipeline without its VAE."""

    family = "hunyuan_video"

    def sample(self, prompts: list[str], generators: list[torch.Generator]) -> torch.Tensor:
        """Latents as the pipeline has them. Guidance is an input of the transformer: one forward a step."""
        latents: torch.Tensor = self.pipeline(prompt=prompts, generator=generators, **self.shape).frames
        return latents


def transformer_inputs(
    config: Mapping[str, Any], latents: tuple[int, int, int, int], batch: int, text_tokens: int
) -> dict[str, Any]:
    """Arguments of one forward. Tokens of text that are masked are computed all the same."""
    return {
        "hidden_states": torch.zeros(batch, *latents),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.zeros(batch, text_tokens, config["text_embed_dim"]),
        "encoder_attention_mask": torch.ones(batch, text_tokens),
        "pooled_projections": torch.zeros(batch, config["pooled_projection_dim"]),
        "guidance": torch.zeros(batch) if config["guidance_embeds"] else None,
    }


def load_decoder(directory: Path, device: str, settings: DecodeSettings = PLAIN) -> HunyuanVideoDecoder:
    """The VAE alone, tiled in time as it was made to be."""
    vae = load_vae(AutoencoderKLHunyuanVideo, directory / "vae", device, settings.dtype)
    vae.use_framewise_decoding = True
    enable(vae, settings.tiling)
    return HunyuanVideoDecoder(vae, settings)


class HunyuanVideoDecoder(VAEDecoder):
    """HunyuanVideo's VAE, one tile of latent frames after the other."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3].

        The VAE attends to all latent positions that it is given, so a whole video at once is out of reach and not
        what the pipeline does either: by default it decodes tiles of a few latent frames that overlap, and blends
        them. Each tile depends on nothing but its latents and, in the blend, on the tile before, so one after the
        other gives the very numbers of `AutoencoderKLHunyuanVideo.decode`, which keeps every frame. Tiles in space
        are cut out of each of those.
        """
        vae, length = self.vae, latents.shape[1]
        tiles = TemporalTiles(vae.tile_sample_min_num_frames, vae.tile_sample_stride_num_frames)
        if length <= tiles.frames // vae.temporal_compression_ratio:
            yield to_uint8(self._pixels(latents, 0, length)[0])
            return
        # The first frame of a tile is decoded without a past; the tile before has it better.
        chunks = in_time(partial(self._pixels, latents), vae, length, tiles, later=slice(1, None))
        for chunk in chunks:
            yield to_uint8(chunk[0])

    def _pixels(self, latents: Latents, start: int, end: int) -> torch.Tensor:
        vae, tiles = self.vae, self.settings.tiling
        z = latents[:, start:end].unsqueeze(0).to(vae.device, vae.dtype) / vae.config.scaling_factor
        height, width = (size * vae.spatial_compression_ratio for size in z.shape[-2:])
        if tiles is not None and tiles.cut(width, height):
            pixels: torch.Tensor = vae.tiled_decode(z, return_dict=False)[0]
        else:
            pixels = vae.decoder(vae.post_quant_conv(z))
        return pixels
