"""What the denoisers of all families share: a generator a sample, work that is counted, caches that leave no state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from diffusers import FirstBlockCacheConfig
from diffusers.hooks import HookRegistry

from fleetcraft.ground.errors import BadEnvironment
from fleetcraft.ground.ledger import Held, Ledger, Phase
from fleetcraft.pipelines.attention import Attention
from fleetcraft.pipelines.interface import DenoiseSettings, Work
from fleetcraft.pipelines.memory import held_by, remembered, weights


class PipelineDenoiser(ABC):
    """A pipeline without its VAE.

    Parameters
    ----------
    pipeline : of diffusers, on its device.
    settings : of the arm.
    attentions : one module of each transformer block that runs if, and only if, the block is computed.
    """

    def __init__(self, pipeline: Any, settings: DenoiseSettings, attentions: Sequence[torch.nn.Module]):
        self.pipeline, self.settings = pipeline, settings
        self._layers = len(attentions)
        self._forwards = self._blocks = 0
        self._ledger: Ledger | None = None
        for name in self._encoders:
            getattr(pipeline, name).register_forward_pre_hook(lambda *_: self._account("text_encoder"))
        # A cached block returns without calling its attention, so calls of the attention are blocks that really ran.
        # Counted before caching is enabled, which wraps the blocks and not what is in them.
        pipeline.transformer.register_forward_pre_hook(self._count_forward)
        self._attention = Attention(pipeline.transformer, settings.attention)
        for attention in attentions:
            attention.register_forward_pre_hook(self._count_block)
        if settings.cache is not None:
            enable_cache(pipeline.transformer, settings.cache)

    @abstractmethod
    def sample(self, prompts: list[str], generators: list[torch.Generator]) -> torch.Tensor:
        """Run the pipeline once: latents [samples, channels, frames, height, width], on its device, in its dtype."""

    @property
    def _encoders(self) -> list[str]:
        return [name for name in ("text_encoder", "text_encoder_2") if getattr(self.pipeline, name, None) is not None]

    def weights(self) -> dict[str, Held]:
        """What the weights of each part hold. All stay where they are from sample to sample, encoders too."""
        return {name: held_by(weights(getattr(self.pipeline, name))) for name in (*self._encoders, "transformer")}

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def denoise(
        self, prompts: Sequence[str], seeds: Sequence[int], ledger: Ledger | None = None
    ) -> tuple[torch.Tensor, Work]:
        """Latents [samples, channels, frames, height, width] of samples that are denoised together; float32, CPU.

        A ledger is told when the text encoders and when the transformer run, and what the cache holds.
        """
        self._ledger = ledger
        self._forwards = self._blocks = 0
        try:
            # On the CPU whatever the device: a CUDA generator draws another stream.
            latents = self.sample(list(prompts), [torch.Generator("cpu").manual_seed(seed) for seed in seeds])
        except RuntimeError as error:
            if self._attention.refused(error):
                raise self._attention.refusal("this kernel doesn't take its dtype, shape or mask here") from error
            raise
        finally:
            if self.settings.cache is not None:
                self._account("denoise")
                # What the last sample left in the cache must not reach the next one, above all after a failure.
                self.pipeline.transformer._reset_stateful_cache()
        work = Work(self._forwards, self._blocks, self._forwards * self._layers, self._attention.kernels)
        return latents.float().cpu().contiguous(), work

    @property
    def shape(self) -> dict[str, Any]:
        """The arguments that pipelines of all families have in common."""
        settings = self.settings
        return {
            "width": settings.width,
            "height": settings.height,
            "num_frames": settings.frames,
            "num_inference_steps": settings.steps,
            "guidance_scale": settings.guidance,
            "output_type": "latent",
        }

    def _count_forward(self, *_: Any) -> None:
        # What the cache holds is told at each forward too: some caches empty themselves after the last step.
        self._account("denoise")
        self._forwards += 1

    def _account(self, phase: Phase) -> None:
        if self._ledger is not None:
            self._ledger.switch(phase)
            if self.settings.cache is not None and phase == "denoise":
                self._ledger.holds("feature_cache", held_by(remembered(self.pipeline.transformer)))

    def _count_block(self, *_: Any) -> None:
        self._blocks += 1


def enable_cache(transformer: Any, cache: dict[str, Any]) -> None:
    """Switch an arm's caching on, and see that it took hold.

    Raises
    ------
    BadEnvironment : not a module was hooked; diffusers would report the cache as enabled all the same.
    """
    transformer.enable_cache(FirstBlockCacheConfig(threshold=cache["threshold"]))
    if not hooked_modules(transformer):
        raise BadEnvironment(
            f"the cache {cache['type']!r} found nothing to hook in {type(transformer).__name__}",
            key="cache",
            value=cache,
            remedy="Choose another cache for this model, or null",
        )


def hooked_modules(transformer: torch.nn.Module) -> int:
    """How many modules carry a hook of diffusers."""
    registries = (getattr(module, "_diffusers_hook", None) for module in transformer.modules())
    return sum(isinstance(registry, HookRegistry) and bool(registry.hooks) for registry in registries)
