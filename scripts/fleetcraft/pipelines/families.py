"""The registry of model families.

A family is a module with the functions of `fleetcraft.pipelines.interface` and a line here. The line holds what the
plan needs, so that a login node never imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from fleetcraft.pipelines import architectures, vaes
from fleetcraft.pipelines.architectures import Transformer
from fleetcraft.pipelines.configs import Config, with_defaults
from fleetcraft.pipelines.geometry import Geometry
from fleetcraft.pipelines.vaes import Vae

if TYPE_CHECKING:
    from fleetcraft.pipelines.interface import FamilyModule


@dataclass(frozen=True)
class Family:
    """What is known of a family without loading it.

    pipeline : the class that a checkpoint's model_index.json must name.
    geometry : of its published checkpoints; `geometry_of` has that of one checkpoint.
    transformer, vae : what those of the family are, by their configs with all keys; `transformer_of` and `vae_of` have
        them by the config of a checkpoint.
    recipe : version of the tiny builder; raised whenever it would build other bytes from the same seed.
    guidance : how a step is guided: by two forwards of the transformer, by one forward of a batch of two, or by a
        number that the transformer was trained to take, which leaves no place for a negative prompt.
    text_tokens : what the pipeline pads a prompt to, where the transformer's config doesn't say.
    models : the components with weights that are loaded and run; others would be left out in silence.
    masked : its transformer's attention is given masks, which leaves out kernels that take none.
    fewest_steps : where the pipeline can't do with one: with it, its schedule is not a number.
    paced : the transformer is told how many frames a second has, so the rate decides pixels.
    decode : how its latents become frames where that is more than an experiment says of all.
    temporal_tiling : its VAE sees the whole video, unless an experiment asks for tiles of time.
    """

    module: str
    pipeline: str
    geometry: Geometry
    transformer: Callable[[Config], Transformer]
    vae: Callable[[Config], Vae]
    recipe: int
    guidance: Literal["two forwards", "batch of two", "embedded"]
    text_tokens: int
    models: tuple[str, ...] = ("text_encoder", "transformer", "vae")
    masked: bool = False
    fewest_steps: int = 1
    paced: bool = False
    decode: Mapping[str, Any] = field(default_factory=dict)
    temporal_tiling: bool = False

    def transformer_of(self, config: Config) -> Transformer:
        """The transformer with this config, which may lack keys that diffusers has defaults for."""
        return self.transformer(with_defaults(self.module, "transformer", config))

    def vae_of(self, config: Config) -> Vae:
        """The VAE with this config, which may lack keys that diffusers has defaults for."""
        return self.vae(with_defaults(self.module, "vae", config))

    def geometry_of(self, transformer: Config, vae: Config) -> Geometry:
        """The geometry of a checkpoint, by the configs of its transformer and VAE."""
        its = self.vae_of(vae)
        patch = self.transformer_of(transformer).patch
        return replace(self.geometry, vae_stride=its.stride, patch=patch, channels=its.channels)

    def text_tokens_of(self, config: Config) -> int:
        """Tokens of text in one forward of the transformer with this config, padding included."""
        return int(config.get("max_text_seq_length", self.text_tokens))

    def load(self) -> FamilyModule:
        """Import the family's module, and with it torch and diffusers."""
        return cast("FamilyModule", import_module(f"fleetcraft.pipelines.{self.module}"))


FAMILIES = {
    "wan": Family(
        "wan",
        "WanPipeline",
        Geometry(vae_stride=(4, 8, 8), patch=(1, 2, 2), channels=16),
        transformer=architectures.wan,
        vae=vaes.wan,
        recipe=1,
        guidance="two forwards",
        text_tokens=512,
    ),
    "cogvideox": Family(
        "cogvideox",
        "CogVideoXPipeline",
        # Its VAE decodes latent frames in pairs, and an even number of them to three frames too many.
        Geometry(vae_stride=(4, 8, 8), patch=(1, 2, 2), channels=16, frame_step=8),
        transformer=architectures.cogvideox,
        vae=vaes.cogvideox,
        recipe=1,
        guidance="batch of two",
        text_tokens=226,
    ),
    "ltx": Family(
        "ltx",
        "LTXPipeline",
        Geometry(vae_stride=(8, 32, 32), patch=(1, 1, 1), channels=128),
        transformer=architectures.ltx,
        vae=vaes.ltx,
        recipe=1,
        guidance="batch of two",
        text_tokens=128,
        masked=True,
        fewest_steps=2,
        paced=True,
        temporal_tiling=True,
    ),
    "hunyuan_video": Family(
        "hunyuan_video",
        "HunyuanVideoPipeline",
        Geometry(vae_stride=(4, 8, 8), patch=(1, 2, 2), channels=16),
        transformer=architectures.hunyuan_video,
        vae=vaes.hunyuan_video,
        recipe=1,
        guidance="embedded",
        text_tokens=256,
        models=("text_encoder", "text_encoder_2", "transformer", "vae"),
        masked=True,
        decode={"temporal_tiles": {"frames": 16, "stride": 12}},
    ),
}
