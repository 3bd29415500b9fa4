"""What the denoisers of all families share: a generator a sample, work that is counted, caches that leave no state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.ledger import Held, Ledger, Phase
from fleetcraft.pipelines import caches, schedulers
from fleetcraft.pipelines.attention import Attention
from fleetcraft.pipelines.cache_support import SUPPORT
from fleetcraft.pipelines.flops import ForwardFlops, forward_flops
from fleetcraft.pipelines.interface import DenoiseSettings, Work
from fleetcraft.pipelines.memory import held_by, remembered, weights
from fleetcraft.pipelines.metering import Meter


class PipelineDenoiser(ABC):
    """A pipeline without its VAE.

    Parameters
    ----------
    pipeline : of diffusers, on its device.
    settings : of the arm.
    """

    family: ClassVar[str]
    """The family's name in the registry."""

    def __init__(self, pipeline: Any, settings: DenoiseSettings):
        self.pipeline, self.settings = pipeline, settings
        schedulers.replace(pipeline, settings.scheduler, settings.flow_shift)
        self._meter = Meter(pipeline.transformer)
        self._ledger: Ledger | None = None
        for name in self._encoders:
            getattr(pipeline, name).register_forward_pre_hook(lambda *_: self._account("text_encoder"))
        # What the cache holds is told at each forward too: some caches empty themselves after the last step.
        pipeline.transformer.register_forward_pre_hook(lambda *_: self._account("denoise"))
        self._attention = Attention(pipeline.transformer, settings.attention)
        if settings.cache is not None:
            caches.enable(pipeline, settings.cache, self.family, settings.steps)
        # Counted now and remembered, so that no sample's time has the counting in it.
        self._one_forward(None)

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
        self._meter.start()
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
        work = self._work(len(prompts))
        return latents.float().cpu().contiguous(), work

    def _one_forward(self, text_tokens: int | None) -> ForwardFlops:
        """FLOPs of a forward of one sequence, in which nothing is skipped."""
        settings, config = self.settings, self.pipeline.transformer.config
        shape = settings.width, settings.height, settings.frames
        return forward_flops(self.family, config, *shape, text_tokens=text_tokens)

    def _work(self, samples: int) -> Work:
        """What the transformer did for samples that were denoised together.

        Raises
        ------
        BadResult : the cache saved nothing, and would save nothing in any sample, for its settings alone decide.
        """
        meter, settings, transformer = self._meter, self.settings, self.pipeline.transformer
        computed, possible = meter.flops(self._one_forward(meter.text_tokens))
        cache = settings.cache
        if cache is not None and computed == possible and not SUPPORT[cache["type"]].adaptive:
            raise BadResult(
                f"the cache skipped nothing in {settings.steps} steps, and will in no other sample: its settings alone"
                " decide what is skipped",
                key="cache",
                value=cache,
                remedy="Let it skip more, or leave the arm out: it is one without a cache",
            )
        return Work(
            meter.forwards,
            *meter.blocks,
            *meter.attentions,
            computed // samples,
            possible // samples,
            caches.hooked_modules(transformer),
            self._attention.kernels,
        )

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

    def _account(self, phase: Phase) -> None:
        if self._ledger is not None:
            self._ledger.switch(phase)
            if self.settings.cache is not None and phase == "denoise":
                self._ledger.holds("feature_cache", held_by(remembered(self.pipeline.transformer)))
