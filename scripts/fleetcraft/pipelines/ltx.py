"""LTX-Video text-to-video (T5 text encoder, packed latents, VAE of stride 8 × 32 × 32 that looks ahead in time)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKLLTXVideo,
    FlowMatchEulerDiscreteScheduler,
    LTXPipeline,
    LTXVideoTransformer3DModel,
)
from transformers import T5EncoderModel

from fleetcraft.pipelines import configs
from fleetcraft.pipelines.decoding import VAEDecoder
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import PLAIN, DecodeSettings, DenoiseSettings, Latents
from fleetcraft.pipelines.loading import load_pipeline, load_text_encoder, load_tokenizers, load_transformer, load_vae
from fleetcraft.pipelines.numerics import OwnRandomness, to_uint8
from fleetcraft.pipelines.prompts import Reader
from fleetcraft.pipelines.tiling import enable, in_time
from fleetcraft.pipelines.tiny import letters_tokenizer, silence_biases, t5_encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRANSFORMER = LTXVideoTransformer3DModel

CHUNK = 8
"""Frames that are made uint8 at once."""


def build_tiny(directory: Path, seed: int) -> None:
    """Save an LTX pipeline of about 1.3 MB with random weights, the same bytes for the same seed."""
    torch.manual_seed(seed)
    tiny = configs.tiny("ltx")
    transformer = LTXVideoTransformer3DModel(**tiny.transformer)
    vae = AutoencoderKLLTXVideo(**tiny.vae)
    silence_biases(vae)
    with torch.no_grad():
        for name, weights in vae.named_parameters():
            if "per_channel_scale" in name:
                weights.normal_()
        vae.latents_mean.normal_()
        vae.latents_std.uniform_(0.5, 2)
    tokenizer = letters_tokenizer()
    scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, base_image_seq_len=1024, shift_terminal=0.1
    )
    LTXPipeline(
        tokenizer=tokenizer,
        text_encoder=t5_encoder(len(tokenizer)),
        vae=vae,
        transformer=transformer,
        scheduler=scheduler,
    ).save_pretrained(directory)


def load_readers(directory: Path) -> dict[str, Reader]:
    """T5 alone."""
    (tokenizer,) = load_tokenizers(LTXPipeline, directory, "tokenizer")
    return {"text_encoder": Reader(tokenizer, FAMILIES["ltx"].text_tokens)}


def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> LTXDenoiser:
    """Everything but the VAE, with the arm's caching switched on."""
    pipeline = load_pipeline(
        LTXPipeline,
        directory,
        device,
        text_encoder=load_text_encoder(T5EncoderModel, directory / "text_encoder", settings.dtype),
        transformer=load_transformer(TRANSFORMER, directory / "transformer", settings.dtype),
    )
    return LTXDenoiser(pipeline, settings)


class LTXDenoiser(PipelineDenoiser):
    """LTX's pipeline without its VAE."""

    family = "ltx"

    def sample(self, prompts: list[str], generators: list[torch.Generator]) -> torch.Tensor:
        """Latents unpacked from the transformer's sequence of tokens."""
        pipeline, settings = self.pipeline, self.settings
        packed = pipeline(
            prompt=prompts,
            negative_prompt=settings.negative_prompt,
            frame_rate=settings.fps,
            generator=generators,
            **self.shape,
        ).frames
        latents: torch.Tensor = pipeline._unpack_latents(
            packed,
            (settings.frames - 1) // pipeline.vae_temporal_compression_ratio + 1,
            settings.height // pipeline.vae_spatial_compression_ratio,
            settings.width // pipeline.vae_spatial_compression_ratio,
            pipeline.transformer_spatial_patch_size,
            pipeline.transformer_temporal_patch_size,
        )
        return latents


def transformer_inputs(
    config: Mapping[str, Any], latents: tuple[int, int, int, int], batch: int, text_tokens: int
) -> dict[str, Any]:
    """Arguments of one forward: the latents are packed, a row a token."""
    channels, frames, height, width = latents
    patch, patch_t = config["patch_size"], config["patch_size_t"]
    tokens = (frames // patch_t) * (height // patch) * (width // patch)
    return {
        "hidden_states": torch.zeros(batch, tokens, channels * patch_t * patch**2),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.zeros(batch, text_tokens, config["caption_channels"]),
        "encoder_attention_mask": torch.ones(batch, text_tokens),
        "num_frames": frames,
        "height": height,
        "width": width,
    }


def load_decoder(directory: Path, device: str, settings: DecodeSettings = PLAIN) -> LTXDecoder:
    """The VAE alone, in one piece in time too unless the settings have tiles for it."""
    vae = load_vae(AutoencoderKLLTXVideo, directory / "vae", device, settings.dtype)
    vae.use_framewise_decoding = False
    enable(vae, settings.tiling)
    return LTXDecoder(vae, settings)


class LTXDecoder(VAEDecoder):
    """LTX's VAE, the whole video at once or in tiles of time."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3].

        Every layer of the decoder looks ahead in time, so there is no chunk that gives the numbers of the whole:
        memory grows with the number of frames, tiles in space or not. With `temporal_tiles` it doesn't: they have the
        numbers of `AutoencoderKLLTXVideo.decode` with `use_framewise_decoding`, which are others.

        A VAE that is conditioned on a timestep gets the pipeline's default, 0, at which the pipeline adds no noise to
        the latents. A VAE that injects noise between its layers draws it from torch's global generator; here from
        seed 0, the same for every video.
        """
        vae, tiles, length = self.vae, self.settings.temporal_tiles, latents.shape[1]
        randomness = OwnRandomness(0, vae.device)

        def decode(start: int, end: int) -> torch.Tensor:
            with randomness.drawing():
                return self._pixels(latents[:, start:end])

        if tiles is None or length <= tiles.frames // vae.temporal_compression_ratio:
            for chunk in decode(0, length).split(CHUNK, dim=2):
                yield to_uint8(chunk[0])
        else:
            for chunk in in_time(decode, vae, length, tiles, later=slice(None, -1)):
                yield to_uint8(chunk[0])

    def _pixels(self, latents: torch.Tensor) -> torch.Tensor:
        vae = self.vae
        z = latents.unsqueeze(0).to(vae.device, torch.float32)
        mean, deviation = (buffer.view(1, -1, 1, 1, 1).to(z.dtype) for buffer in (vae.latents_mean, vae.latents_std))
        z = (z * deviation / vae.config.scaling_factor + mean).to(vae.dtype)
        timestep = torch.zeros(1, device=z.device, dtype=z.dtype) if vae.config.timestep_conditioning else None
        pixels: torch.Tensor = vae.decode(z, timestep, return_dict=False)[0]
        return pixels
