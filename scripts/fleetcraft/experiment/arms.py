"""What an experiment file may say of an arm: the conditions under comparison."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetcraft.ground.documents import Model


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
