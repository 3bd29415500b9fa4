"""What the models and arms of a plan cost: tokens, FLOPs, weights and memory, from configs alone.

FLOPs and weights are exact, for a forward of which nothing is skipped. What decoding holds is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetcraft.experiment.arms import Arm
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.units import BYTES
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import SpatialTiles


@dataclass(frozen=True)
class ModelCost:
    """One model at the experiment's video shape.

    latents : shape of one sample's latents, [channels, frames, height, width].
    tokens, text_tokens : of one sample in one forward; of text, with padding.
    parameters : numbers in the weights of `transformer`, `text_encoder` (of all, where there are two) and `vae`.
    decode_bytes : estimate of the most that decoding holds at once on its device, weights of the VAE included.
    """

    latents: tuple[int, int, int, int]
    tokens: int
    text_tokens: int
    parameters: Mapping[str, int]
    decode_bytes: float


@dataclass(frozen=True)
class ArmCost:
    """One arm, computing everything that its model has.

    forwards : of the transformer, for one sample (for all samples of a batch, where the arm has one).
    rows : samples in one forward, those of guidance included.
    forward_flops : of one forward.
    sample_flops : of all forwards of one sample.
    weights : bytes of `transformer` and `text_encoder` in the arm's dtype, and of `vae` in the one it decodes in.
    """

    forwards: int
    rows: int
    forward_flops: int
    sample_flops: int
    weights: Mapping[str, int]


def searched_flops(plan: Plan, costs: Mapping[str, ArmCost]) -> dict[str, int]:
    """Searched arm → FLOPs of one of its videos, with all candidates; `costs` are those of the generated arms."""
    found = {}
    for name, search in plan.experiment.searches.items():
        made = [(one.arm, count) for one, (count, _) in zip(search.rounds, search.counts, strict=True)]
        if not search.winner_is_a_candidate:
            made.append((search.recommit, 1))
        found[name] = sum(costs[arm].sample_flops * count for arm, count in made)
    return found


def model_cost(plan: Plan, name: str) -> ModelCost:
    """The cost of one of the plan's models."""
    source, video, decode = plan.models[name], plan.experiment.video, plan.experiment.decode
    family = FAMILIES[source.family]
    # A tile of time is decoded with one frame more, which the tile before has better.
    at_once = video.frames if decode.temporal_tiles is None else min(video.frames, decode.temporal_tiles.frames + 1)
    tiles = None if decode.tiling is None else SpatialTiles(**decode.tiling.model_dump())
    held = family.vae_of(source.vae).held(video.width, video.height, at_once, tiles)
    return ModelCost(
        latents=plan.latent_shape[name],
        tokens=plan.geometry[name].tokens(video.width, video.height, video.frames),
        text_tokens=family.text_tokens_of(source.transformer),
        parameters=source.parameters,
        decode_bytes=BYTES[decode.dtype] * (source.parameters["vae"] + held),
    )


def arm_cost(plan: Plan, arm: Arm, model: ModelCost) -> ArmCost:
    """The cost of an arm whose model costs `model`."""
    source = plan.models[arm.model]
    family = FAMILIES[source.family]
    guided = arm.guidance > 1
    forwards = arm.steps * (2 if guided and family.guidance == "two forwards" else 1)
    rows = arm.batch * (2 if guided and family.guidance == "batch of two" else 1)
    flops = family.transformer_of(source.transformer).flops(model.tokens, model.text_tokens, rows)
    weights = {
        part: count * BYTES[plan.experiment.decode.dtype if part == "vae" else arm.dtype]
        for part, count in model.parameters.items()
    }
    return ArmCost(forwards, rows, flops, forwards * flops // arm.batch, weights)
