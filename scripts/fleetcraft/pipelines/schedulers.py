"""Schedulers that an arm may choose: which suit a family, and how one takes the place of the checkpoint's own.

The plan asks here, so diffusers is imported only where a scheduler is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetcraft.ground.errors import BadInput

_EULER, _UNIPC, _DPM = "FlowMatchEulerDiscreteScheduler", "UniPCMultistepScheduler", "DPMSolverMultistepScheduler"


@dataclass(frozen=True)
class Choice:
    """What a family's arms may choose from.

    names : classes of diffusers.
    shift : the schedule has a constant shift that an arm may set; None where it has one of another kind or none.
    no_shift : why not.
    """

    names: tuple[str, ...]
    shift: bool
    no_shift: str = ""


CHOICES: Mapping[str, Choice] = {
    "wan": Choice((_EULER, _UNIPC, _DPM), shift=True),
    # DPM-Solver takes no sigmas from the pipeline, which the pipelines of these two hand over.
    "hunyuan_video": Choice((_EULER, _UNIPC), shift=True),
    "ltx": Choice((_EULER, _UNIPC), shift=False, no_shift="its schedule is shifted by the size of the video"),
    "cogvideox": Choice(
        ("CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"), shift=False, no_shift="its schedule is no flow"
    ),
}
"""Family → what its arms may choose from."""


def problem(family: str, scheduler: str | None, flow_shift: float | None) -> tuple[str, str] | None:
    """The first thing that doesn't suit a family, as (key of the arm, explanation)."""
    choice = CHOICES[family]
    if scheduler is not None and scheduler not in choice.names:
        return "scheduler", f"{scheduler!r} doesn't suit the family {family}; choose from {', '.join(choice.names)}"
    if flow_shift is not None and not choice.shift:
        return "flow_shift", f"the family {family} has none: {choice.no_shift}; leave it out"
    return None


def refuse_own(config: Mapping[str, Any], name: str | None, scheduler: str | None, flow_shift: float | None) -> None:
    """Refuse to name what a checkpoint has anyway: the same latents would have two keys, and be made twice.

    Parameters
    ----------
    config, name : of the checkpoint's own scheduler; None where its file doesn't say what it is.

    Raises
    ------
    BadInput : an arm's choice makes no difference to it.
    """
    if scheduler not in {None, name} or flow_shift not in {None, _shift(config)}:
        return
    key = "scheduler" if scheduler is not None else "flow_shift"
    raise BadInput(
        "this is what the checkpoint has itself",
        key=key,
        value=scheduler if scheduler is not None else flow_shift,
        remedy="Leave it out; the same samples would be made once more under another name",
    )


def _shift(config: Mapping[str, Any]) -> float | None:
    # One number with two names.
    shift: float | None = config.get("flow_shift", config.get("shift"))
    return shift


def replace(pipeline: Any, scheduler: str | None, flow_shift: float | None) -> None:
    """Give a pipeline another scheduler, another shift, or both; all else is as the checkpoint has it.

    Raises
    ------
    BadInput : it isn't another.
    """
    if scheduler is None and flow_shift is None:
        return
    import diffusers

    config = pipeline.scheduler.config
    own = type(pipeline.scheduler).__name__
    refuse_own(config, own, scheduler, flow_shift)
    name = scheduler or own
    changes: dict[str, Any] = {}
    if name in {_EULER, _UNIPC, _DPM}:
        shift = flow_shift if flow_shift is not None else _shift(config)
        changes = (
            {"shift": shift}
            if name == _EULER
            else {"flow_shift": shift, "use_flow_sigmas": True, "prediction_type": "flow_prediction"}
        )
    pipeline.scheduler = getattr(diffusers, name).from_config(config, **changes)
