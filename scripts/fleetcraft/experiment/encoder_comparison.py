"""The same frames through two encoders: two small campaigns that differ in the encoder alone.

`declared` has the experiment's encoder, `compared` the other one. Both are plans of the experiment with one arm and the
first prompts, so their keys are those of any campaign: whatever either has made serves the other, and later ones.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fleetcraft.experiment.models import Encoder, EncoderComparison, Experiment
from fleetcraft.experiment.plan import Plan, Sample
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.paths import Paths

SIDES = ("declared", "compared")

FIDELITY = {"version": 1}
"""Raised when what `media/fidelity.py` measures changes."""


def comparison_paths(paths: Paths, side: str) -> Paths:
    """The directories of one side, below those of the campaign; `side` may be a wildcard of Snakemake."""
    return Paths(paths.scratch_root, paths.work_root, f"{paths.name}/encoder_comparison/{side}")


class Comparison:
    """What `encoder_comparison` of an experiment asks for.

    Raises
    ------
    BadInput : the experiment has no such key.
    """

    def __init__(self, plan: Plan):
        if plan.experiment.encoder_comparison is None:
            raise BadInput(
                "the experiment names no encoder to compare its own with",
                key="encoder_comparison",
                remedy="Add the key, such as `encoder_comparison: {preset: imageio-quality, quality: 5, limit: 20}`",
            )
        self.wanted: EncoderComparison = plan.experiment.encoder_comparison
        self._plan = plan

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Side → its plan."""
        experiment, wanted = self._plan.experiment, self.wanted
        other = Encoder(preset=wanted.preset, crf=wanted.crf, quality=wanted.quality)
        encoders = {"declared": experiment.encoder, "compared": other}
        return {side: Plan(self._part(side, encoder)) for side, encoder in encoders.items()}

    def _part(self, side: str, encoder: Encoder) -> Experiment:
        """The experiment with one encoder, and no more arms and prompts than the comparison needs."""
        plan, experiment = self._plan, self._plan.experiment
        arm = self.wanted.arm or experiment.baseline
        limits = [limit for limit in (self.wanted.limit, experiment.prompts.limit) if limit is not None]
        prompts = plan.prompts[: min(limits)] if limits else plan.prompts
        # The baseline comes along for dimensions that compare with it, encoded alike; existing videos can't be.
        paired = arm != experiment.baseline and experiment.baseline in experiment.generated
        dimensions = [
            name
            for name in plan.dimensions
            if (paired if plan.known[name].pairwise else any(plan.is_scored(prompt, name) for prompt in prompts))
        ]
        together = paired and any(plan.known[name].pairwise for name in dimensions)
        arms = {name: experiment.arms[name] for name in ([experiment.baseline, arm] if together else [arm])}
        return experiment.model_copy(
            update={
                "name": comparison_paths(plan.paths, side).name,
                "arms": arms,
                "baseline": experiment.baseline if together else arm,
                "prompts": experiment.prompts.model_copy(update={"limit": len(prompts)}),
                "further_seeds": {},
                "encoder": encoder,
                "encoder_comparison": None,
                "timing": None,
                "scoring": experiment.scoring.model_copy(update={"dimensions": dimensions}),
            }
        )

    @property
    def declared(self) -> Plan:
        return self.plans["declared"]

    @property
    def compared(self) -> Plan:
        return self.plans["compared"]

    def fidelity_key(self, sample: Sample) -> str:
        """The key of what was measured of a sample's two videos and its frames."""
        videos = [plan.video_key(sample) for plan in self.plans.values()]
        return key_of({"videos": videos, "fidelity": FIDELITY, "ffmpeg": self.declared.encoder.ffmpeg_sha256})

    def frames_digest(self, arm: str, shard: str) -> str:
        """What the frames of a shard, and what is made of them, depend on."""
        return key_of([FIDELITY, *(plan.videos_digest(arm, shard) for plan in self.plans.values())])

    @property
    def digest(self) -> str:
        return key_of([FIDELITY, *(plan.digest for plan in self.plans.values())])

    def document(self) -> dict[str, Any]:
        """What was compared, as it lies beside the tables."""
        return {"format": 1, "digest": self.digest, **{side: plan.document() for side, plan in self.plans.items()}}
