"""What keeps an experiment from being run although each of its keys is right: what they mean together, looked at before
anything is asked of a cluster. Each raises `BadInput`, or says nothing.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from fleetcraft.ground.errors import BadInput
from fleetcraft.scoring.actions import known_actions, wanted_action

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan

_SHOWN = 3
"""Prompts that a message shows of many."""


def refuse_idle_seeds(plan: Plan) -> None:
    """Further seeds that no prompt gets, or that a prompt gets twice."""
    owners: dict[str, str] = {}
    for dimension in plan.seeds.further:
        texts = [prompt.text for prompt in plan.prompts if dimension in prompt.dimensions]
        if not texts:
            raise BadInput(
                "none of the prompts is one that the suite has for this dimension",
                key=f"further_seeds.{dimension}",
                remedy="Choose prompts that match, or leave these seeds out",
            )
        for text in texts:
            if owners.setdefault(text, dimension) != dimension:
                raise BadInput(
                    f"the suite has the same prompt for {owners[text]}, which has further seeds too",
                    key=f"further_seeds.{dimension}",
                    value=text,
                    remedy="Give further seeds to one of the two",
                )


def refuse_impossible_shapes(plan: Plan) -> None:
    """What the configs of a checkpoint make impossible although its family could express it."""
    video = plan.experiment.video
    for name in plan.used_models:
        problem = plan.geometry[name].problem(video.width, video.height, video.frames)
        if problem is not None:
            key, text = problem
            raise BadInput(
                f"{text} (model {name!r}, by the configs of its checkpoint)",
                key=f"video.{key}",
                remedy="Change the shape of the videos, or take another model",
            )


def refuse_idle_dimensions(plan: Plan) -> None:
    """Dimensions in which nothing would be scored."""
    alike = [arm for arm in plan.arms if arm != plan.baseline and arm not in plan.not_compared]
    for dimension in plan.dimensions:
        if plan.known[dimension].pairwise and not alike:
            raise BadInput(
                "it compares with the baseline, and there is no other arm"
                if len(plan.arms) == 1
                else "it compares with the baseline, and no other arm is known to be encoded alike",
                key="scoring.dimensions",
                value=dimension,
                remedy="Add an arm, or leave this dimension out"
                if len(plan.arms) == 1
                else "Leave this dimension out or, if you know that existing videos were encoded as the others are,"
                " say `same_encoder: true` in their `source`",
            )
        # By the prompts alone: every job makes a plan, and none of them needs all shards.
        if not any(plan.is_scored(prompt, dimension) for prompt in plan.prompts):
            raise BadInput(
                f"none of the prompts is one that the suite {plan.experiment.prompts.suite!r} has for it",
                key="scoring.dimensions",
                value=dimension,
                remedy="Choose prompts or dimensions that match",
            )


def refuse_unsuited_dimensions(plan: Plan) -> None:
    """What a dimension's own code couldn't score, or would score as nonsense."""
    video = plan.experiment.video
    for dimension in map(plan.known.__getitem__, plan.dimensions):
        if dimension.suite_only and plan.experiment.prompts.suite is None:
            raise BadInput(
                "this dimension asks for what VBench's suite says of its prompts, and these are your own",
                key="scoring.dimensions",
                value=dimension.name,
                remedy="Take the prompts of `suite: vbench`, or leave this dimension out",
            )
        least = {
            "frames": dimension.fewest_frames(video.fps),
            "width": dimension.side,
            "height": dimension.side,
        }
        for key, value in least.items():
            if getattr(video, key) < value:
                raise BadInput(
                    f"{dimension.name} needs {value} at least, or its scores mean nothing",
                    key=f"video.{key}",
                    value=getattr(video, key),
                    remedy="Make larger or longer videos, or leave this dimension out",
                )
        machine = plan.experiment.stack.machine
        rescales = dimension.scaled and dimension.reader_on(machine) is not None
        if rescales and plan.experiment.generated and plan.encoder.pixel_format == "rgb24":
            raise BadInput(
                f"{dimension.name} scales frames as they are read, and on {machine}, without decord, those that are"
                " stored as RGB can't be scaled as it does",
                key="encoder.preset",
                value=plan.experiment.encoder.preset,
                remedy="Take another preset, or leave this dimension out",
            )
        unprovided = dimension.unprovided()
        if unprovided is not None and not plan.without_weights:
            raise unprovided.about("scoring.dimensions")


def refuse_unknown_actions(plan: Plan) -> None:
    """Prompts of one's own in which human_action could recognise nothing: all their scores would be 0."""
    asked = [name for name in plan.dimensions if plan.known[name].suited == "human_action"]
    if not asked or plan.experiment.prompts.file is None:
        return
    unknown = [prompt.text for prompt in plan.prompts if wanted_action(prompt.text) not in known_actions()]
    if not unknown:
        return
    shown = unknown[:_SHOWN]
    near = [
        f"{wanted!r} is not {close[0]!r}"
        for wanted in map(wanted_action, shown)
        if (close := get_close_matches(wanted, known_actions(), n=1, cutoff=0.8))
    ]
    hint = f"; names count to the letter: {', '.join(near)}" if near else ""
    raise BadInput(
        f"{asked[0]} could only say 0 of {len(unknown):,} of these {len(plan.prompts):,} prompts, in which no action of"
        f" Kinetics-400 follows 'person is'; the first are {', '.join(map(repr, shown))}{hint}",
        file=plan.experiment.prompts.file,
        key="prompts.file",
        remedy="Write them as 'A person is riding a bike', with an action of resources/kinetics-400.txt and nothing"
        " after it, or leave this dimension out",
    )


def refuse_blind_searches(plan: Plan) -> None:
    """Searches some of whose candidates would have no score."""
    for name, search in plan.experiment.searches.items():
        if plan.seeds.further.keys() - {plan.known[search.verifier].suited}:
            raise BadInput(
                "videos of further seeds are scored in their dimension alone, so their candidates would have no"
                " score to choose by",
                key=f"arms.{name}.search.verifier",
                value=search.verifier,
                remedy="Leave `further_seeds` out of an experiment with a search",
            )
        if not all(plan.is_scored(prompt, search.verifier) for prompt in plan.prompts):
            raise BadInput(
                "the suite has some of the prompts for other dimensions, so their candidates would have no score to"
                " choose by",
                key=f"arms.{name}.search.verifier",
                value=search.verifier,
                remedy="Name its prompts alone under `prompts.dimensions`, or choose by a dimension for any prompt",
            )
