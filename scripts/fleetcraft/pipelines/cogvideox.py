"""CogVideoX text-to-video, 1.0 and 1.5 (T5 text encoder, causal VAE of stride 4 × 8 × 8 that decodes in pairs)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from diffusers import (
    AutoencoderKLCogVideoX,
    CogVideoXDPMScheduler,
    CogVideoXPipeline,
    CogVideoXTransformer3DModel,
)
from transformers import T5EncoderModel

from fleetcraft.pipelines import configs
from fleetcraft.pipelines.decoding import VAEDecoder
from fleetcraft.pipelines.denoising import PipelineDenoiser
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import PLAIN, DecodeSettings, DenoiseSettings, Latents
from fleetcraft.pipelines.loading import load_pipeline, load_text_encoder, load_tokenizers, load_transformer, load_vae
from fleetcraft.pipelines.numerics import to_uint8
from fleetcraft.pipelines.prompts import Reader
from fleetcraft.pipelines.tiling import cut, join
from fleetcraft.pipelines.tiny import letters_tokenizer, silence_biases, t5_encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRANSFORMER = CogVideoXTransformer3DModel


def build_tiny(directory: Path, seed: int) -> None:
    """Save a CogVideoX pipeline of about 800 kB with random weights, the same bytes for the same seed."""
    torch.manual_seed(seed)
    tiny = configs.tiny("cogvideox")
    transformer = CogVideoXTransformer3DModel(**tiny.transformer)
    vae = AutoencoderKLCogVideoX(**tiny.vae)
    silence_biases(vae)
    tokenizer = letters_tokenizer()
    # The scheduler of the larger models, which draws noise at every step.
    scheduler = CogVideoXDPMScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        snr_shift_scale=1.0,
        timestep_spacing="trailing",
    )
    CogVideoXPipeline(
        tokenizer=tokenizer,
        text_encoder=t5_encoder(len(tokenizer)),
        vae=vae,
        transformer=transformer,
        scheduler=scheduler,
    ).save_pretrained(directory)


def load_readers(directory: Path) -> dict[str, Reader]:
    """T5 reads as much as the transformer was made for."""
    (tokenizer,) = load_tokenizers(CogVideoXPipeline, directory, "tokenizer")
    config = CogVideoXTransformer3DModel.load_config(directory / "transformer", local_files_only=True)
    return {"text_encoder": Reader(tokenizer, FAMILIES["cogvideox"].text_tokens_of(config))}


def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> CogVideoXDenoiser:
    """Everything but the VAE, with the arm's caching switched on."""
    pipeline = load_pipeline(
        CogVideoXPipeline,
        directory,
        device,
        text_encoder=load_text_encoder(T5EncoderModel, directory / "text_encoder", settings.dtype),
        transformer=load_transformer(TRANSFORMER, directory / "transformer", settings.dtype),
    )
    return CogVideoXDenoiser(pipeline, settings)


class CogVideoXDenoiser(PipelineDenoiser):
    """CogVideoX's pipeline without its VAE."""

    family = "cogvideox"

    def sample(self, prompts: list[str], generators: list[torch.Generator]) -> torch.Tensor:
        """Latents without the frames that CogVideoX 1.5 pads in front to fill its temporal patches."""
        latents: torch.Tensor = self.pipeline(
            prompt=prompts,
            negative_prompt=self.settings.negative_prompt,
            generator=generators,
            max_sequence_length=self.pipeline.transformer.config.max_text_seq_length,
            **self.shape,
        ).frames
        wanted = (self.settings.frames - 1) // self.pipeline.vae_scale_factor_temporal + 1
        return latents[:, latents.shape[1] - wanted :].transpose(1, 2)


def transformer_inputs(
    config: Mapping[str, Any], latents: tuple[int, int, int, int], batch: int, text_tokens: int
) -> dict[str, Any]:
    """Arguments of one forward, with the latent frames that CogVideoX 1.5 pads in front."""
    channels, frames, height, width = latents
    patch, patch_t = config["patch_size"], config["patch_size_t"] or 1
    frames += -frames % patch_t
    tokens = frames // patch_t * (height // patch) * (width // patch)
    rotation = torch.zeros(tokens, config["attention_head_dim"])
    return {
        "hidden_states": torch.zeros(batch, frames, channels, height, width),
        "timestep": torch.zeros(batch),
        "encoder_hidden_states": torch.zeros(batch, text_tokens, config["text_embed_dim"]),
        "image_rotary_emb": (rotation, rotation) if config["use_rotary_positional_embeddings"] else None,
    }


def load_decoder(directory: Path, device: str, settings: DecodeSettings = PLAIN) -> CogVideoXDecoder:
    """The VAE alone."""
    return CogVideoXDecoder(load_vae(AutoencoderKLCogVideoX, directory / "vae", device, settings.dtype), settings)


class CogVideoXDecoder(VAEDecoder):
    """CogVideoX's causal VAE, two latent frames at a time."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3].

        The VAE decodes in groups of latent frames itself, the odd one in the first group, and hands each group what
        its convolutions have to know of the one before. Its norms span a group, so these groups, and no others, give
        the very numbers of `AutoencoderKLCogVideoX.decode`, which keeps every frame. With tiles each has a past of its
        own, where `tiled_decode` ends one tile before it begins the next.
        """
        vae, tiles = self.vae, self.settings.tiling
        stride = 2 ** (len(vae.config.block_out_channels) - 1)
        length, size = latents.shape[1], vae.num_latent_frames_batch_size
        ends = range(size + length % size, length + 1, size) if length >= size else [length]
        start = 0
        pasts = self.memory = [[None for _ in row] for row in cut(latents[:, :1], tiles, stride)]
        try:
            for end in ends:
                z = 1 / vae.config.scaling_factor * latents[:, start:end].unsqueeze(0).to(vae.device, vae.dtype)
                rows = cut(z, tiles, stride)
                for line, line_pasts in zip(rows, pasts, strict=True):
                    for column, tile in enumerate(line):
                        if vae.post_quant_conv is not None:
                            tile = vae.post_quant_conv(tile)
                        line[column], line_pasts[column] = vae.decoder(tile, conv_cache=line_pasts[column])
                yield to_uint8(join(vae, rows, tiles)[0])
                start = end
        finally:
            self.memory = None
