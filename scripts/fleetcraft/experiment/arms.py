"""What an experiment file may say of an arm: the conditions under comparison."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from fleetcraft.ground.documents import Model
from fleetcraft.pipelines.families import FAMILIES


class FirstBlockCache(Model):
    """Skip the other transformer blocks where the first block's residual hardly changed since the last step."""

    type: Literal["first_block"]
    threshold: float = Field(gt=0, description="Relative change of the residual below which the blocks are skipped")


class Arm(Model):
    """One condition under comparison."""

    model: str = Field(description="A name under `models`")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "bfloat16", description="Type of the transformer's weights"
    )
    steps: int = Field(ge=1, le=1000, description="Denoising steps")
    guidance: float = Field(
        5.0, ge=0, description="Scale of guidance; where it is classifier-free, 1 and below turn it off"
    )
    negative_prompt: str = Field("", description="What guidance steers away from")
    cache: FirstBlockCache | None = Field(None, description="Caching of transformer blocks; null computes all of them")
    attention: Literal["math", "flash", "efficient", "cudnn"] | None = Field(
        None, description="The kernel that computes the transformer's attention; null leaves the choice to torch"
    )
    batch: int = Field(1, ge=1, le=1024, description="Samples that are denoised together")

    def condition(self) -> dict[str, Any]:
        """What of the arm decides a sample's latents, in its key.

        A setting that came later adds nothing where it is left out: such arms keep the samples that they have.
        """
        settings = self.model_dump(mode="json", exclude={"model", "batch"})
        if self.attention is None:
            del settings["attention"]
        return settings

    @model_validator(mode="after")
    def _cached_alone(self) -> Arm:
        if self.batch > 1 and self.cache is not None:
            raise ValueError(
                "@batch: a cache takes one decision for all samples of a batch, so they would depend on each other;"
                " give an arm with a cache a batch of 1"
            )
        return self


def attention_problem(arm: Arm, family: str, device: str) -> str | None:
    """Why the kernel that the arm wants can't compute the attention of `family` on `device`; None where it may.

    The rules are those of torch's `scaled_dot_product_attention`. What they leave open shows where the arm runs.
    """
    kernel = arm.attention
    if kernel is None or kernel == "math":
        return None
    if device == "cpu":
        return None if kernel == "flash" else f"a CPU has no {kernel!r}, only 'flash' and 'math'"
    if kernel in {"flash", "cudnn"} and arm.dtype == "float32":
        return f"{kernel!r} computes in bfloat16 and float16 on a GPU, and the arm's dtype is float32"
    if kernel == "flash" and FAMILIES[family].masked:
        return f"the transformer of {family} masks its attention, and 'flash' takes no mask on a GPU"
    return None
