"""What the decoders of all families share: a VAE, how it is to decode, and what it remembers between chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetcraft.ground.ledger import Held
from fleetcraft.pipelines.interface import DecodeSettings, Latents
from fleetcraft.pipelines.memory import held_by, tensors_in, weights

if TYPE_CHECKING:
    from numpy.typing import NDArray


class VAEDecoder(ABC):
    """A VAE that decodes one video at a time.

    Attributes
    ----------
    memory : tensors that are kept from one chunk to the next, in whatever containers.
    """

    def __init__(self, vae: Any, settings: DecodeSettings):
        self.vae, self.settings = vae, settings
        self.memory: Any = None

    @abstractmethod
    def decode(self, latents: Latents) -> Iterator[NDArray[np.uint8]]:
        """Frames of `latents` [channels, frames, height, width] in chunks of uint8 [frames, height, width, 3]."""

    def weights(self) -> dict[str, Held]:
        """What the weights of the VAE hold, its encoder's included."""
        return {"vae": held_by(weights(self.vae))}

    def remembered(self) -> Held:
        """What `memory` holds right now."""
        return held_by(tensors_in(self.memory))
