"""What a family's module offers; every family looks the same from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from fleetcraft.ground.ledger import Held, Ledger
    from fleetcraft.pipelines.prompts import Reader


@dataclass(frozen=True)
class DenoiseSettings:
    """How one arm denoises: the arm's settings and the shape of its videos, as the plan has them."""

    dtype: str
    steps: int
    guidance: float
    negative_prompt: str
    cache: dict[str, Any] | None
    attention: str | None
    width: int
    height: int
    frames: int
    fps: int
    scheduler: str | None = None
    flow_shift: float | None = None


@dataclass(frozen=True)
class SpatialTiles:
    """Tiles of frames, in pixels: how large they are, and how far apart. What overlaps is blended."""

    width: int
    height: int
    stride_width: int
    stride_height: int

    def cut(self, width: int, height: int) -> bool:
        """Whether a frame of this size is more than one tile."""
        return width > self.width or height > self.height


@dataclass(frozen=True)
class TemporalTiles:
    """Tiles of time, in frames: how long they are, and how far apart. What overlaps is blended."""

    frames: int
    stride: int


@dataclass(frozen=True)
class DecodeSettings:
    """How latents become frames, as the plan has it.

    dtype : of the VAE.
    tiling : tiles of frames, or None for whole frames.
    temporal_tiles : tiles of time for a VAE that sees the whole video otherwise, or None for what the family does.
    """

    dtype: str = "float32"
    tiling: SpatialTiles | None = None
    temporal_tiles: TemporalTiles | None = None

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> DecodeSettings:
        """The settings in the description of a job."""
        tiling, temporal = document["tiling"], document["temporal_tiles"]
        return cls(
            document["dtype"],
            SpatialTiles(**tiling) if tiling else None,
            TemporalTiles(**temporal) if temporal else None,
        )


PLAIN = DecodeSettings()
"""As the pipelines decode when nobody asks for anything else, in float32."""


@dataclass(frozen=True)
class Work:
    """What the transformer really did for the samples that were denoised together.

    forwards : calls of the transformer (two a step under classifier-free guidance in most families).
    blocks_computed, blocks_possible : transformer blocks that ran, and those that would have without caching.
    attentions_computed, attentions_possible : the same of the attention layers inside the blocks.
    flops_computed, flops_possible : the same in FLOPs of one sample; counted on `meta`, for the modules that ran.
    hooked_modules : modules of the transformer that a cache has put itself around.
    attention : the kernels that compute its attention, by their names in an arm.
    """

    forwards: int
    blocks_computed: int
    blocks_possible: int
    attentions_computed: int
    attentions_possible: int
    flops_computed: int
    flops_possible: int
    hooked_modules: int
    attention: tuple[str, ...]


class Denoiser(Protocol):
    """A loaded pipeline without its decoder.

    pipeline : of diffusers.
    """

    pipeline: Any

    def denoise(
        self, prompts: Sequence[str], seeds: Sequence[int], ledger: Ledger | None = None
    ) -> tuple[torch.Tensor, Work]:
        """Latents [samples, channels, frames, height, width] on the CPU, each sample's from a generator of its own.

        They depend on how many samples are denoised together and on their order, by some last bits, and not on who
        the others are. The ledger is told of the phases and of what the cache holds.
        """
        ...

    def weights(self) -> dict[str, Held]:
        """Part → what its weights hold from sample to sample."""
        ...


class Latents(Protocol):
    """One sample's latents [channels, frames, height, width]: a tensor, or what is read from a file as it is sliced."""

    @property
    def shape(self) -> torch.Size: ...

    def __getitem__(self, index: Any, /) -> torch.Tensor: ...


class Decoder(Protocol):
    """A loaded VAE."""

    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """The frames of one sample's latents, in chunks of uint8 [frames, height, width, 3].

        They are bit-equal to those that the family's pipeline decodes itself. Memory doesn't grow with the number of
        frames where the VAE allows that exactly; where it doesn't, the family's decoder says so.
        """
        ...

    def weights(self) -> dict[str, Held]:
        """Part → what its weights hold from sample to sample."""
        ...

    def remembered(self) -> Held:
        """What the VAE holds from one chunk to the next, right now."""
        ...


class FamilyModule(Protocol):
    """The module of a family."""

    TRANSFORMER: Any
    """The class of diffusers that denoises."""

    @staticmethod
    def build_tiny(directory: Path, seed: int) -> None:
        """Save a tiny pipeline with random weights, the same bytes for the same seed."""
        ...

    @staticmethod
    def load_readers(directory: Path) -> dict[str, Reader]:
        """How each text encoder, by its name in the checkpoint, gets to read a prompt. Loads tokenizers alone."""
        ...

    @staticmethod
    def load_denoiser(directory: Path, settings: DenoiseSettings, device: str) -> Denoiser: ...

    @staticmethod
    def transformer_inputs(
        config: Mapping[str, Any], latents: tuple[int, int, int, int], batch: int, text_tokens: int
    ) -> dict[str, Any]:
        """Arguments of one forward of the transformer as the pipeline gives them, of any values.

        Parameters
        ----------
        config : of the transformer.
        latents : shape of one sample's latents, [channels, frames, height, width].
        batch : samples in the forward, those of guidance included.
        text_tokens : tokens of text, padding included.
        """
        ...

    @staticmethod
    def load_decoder(directory: Path, device: str, settings: DecodeSettings = PLAIN) -> Decoder: ...
