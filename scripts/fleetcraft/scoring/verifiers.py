"""Types of verifiers: models that score how well a video shows its prompt, loaded from a directory of the user's.

What a type needs is said without loading anything; `scorer` names the module that loads and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetcraft.scoring.dimensions import Dimension


@dataclass(frozen=True)
class VerifierType:
    """One type.

    label : of the score, with its range; the verifier's name goes before it.
    model : the class of transformers whose checkpoints it loads.
    processor : the file beside the weights that says how frames are prepared.
    frames : how many frames of a video a model reads, by its config; None where it reads as many as it is given.
    step : what the number of frames must be a multiple of.
    """

    label: str
    model: str
    processor: str
    scorer: str
    packages: tuple[str, ...]
    version: int
    frames: Callable[[Mapping[str, Any]], int] | None = None
    step: int = 1

    def dimension(self, name: str, frames: int, weights_mb: int) -> Dimension:
        """The dimension of a verifier of this type."""
        return Dimension(
            name,
            label=f"{name}: {self.label}",
            scorer=self.scorer,
            toolchain="diffusion",
            packages=self.packages,
            any_prompt=True,
            version=self.version,
            verifier_mb=weights_mb,
            frames=frames,
        )


DEFAULT_FRAMES = 8
"""Of a video, where neither the model nor the experiment says."""

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pillow", "safetensors", "imageio-ffmpeg")

VERIFIERS = {
    "vqascore": VerifierType(
        label="VQAScore, probability that the video shows its prompt (0–1)",
        model="Qwen2_5_VLForConditionalGeneration",
        processor="preprocessor_config.json",
        scorer="vqascore",
        packages=_PACKAGES,
        version=1,
        step=2,
    ),
    "xclip": VerifierType(
        label="X-CLIP similarity of video and prompt (−1–1, higher is closer)",
        model="XCLIPModel",
        processor="preprocessor_config.json",
        scorer="xclip",
        packages=_PACKAGES,
        version=1,
        # As transformers has it where a config doesn't say.
        frames=lambda config: int(config.get("vision_config", {}).get("num_frames", 8)),
    ),
}
