"""Schedulers that an arm may choose: which suit a family, and how one takes the place of the checkpoint's own.

The plan asks here, so diffusers is imported only where a scheduler is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def replace(pipeline: Any, scheduler: str | None, flow_shift: float | None) -> None:
    """Give a pipeline another scheduler, another shift, or both; all else is as the checkpoint has it."""
    if scheduler is None and flow_shift is None:
        return
    import diffusers

    config = pipeline.scheduler.config
    name = scheduler or type(pipeline.scheduler).__name__
    changes: dict[str, Any] = {}
    if name in {_EULER, _UNIPC, _DPM}:
        # One number with two names.
        shift = flow_shift if flow_shift is not None else config.get("flow_shift", config.get("shift"))
        changes = (
            {"shift": shift}
            if name == _EULER
            else {"flow_shift": shift, "use_flow_sigmas": True, "prediction_type": "flow_prediction"}
        )
    pipeline.scheduler = getattr(diffusers, name).from_config(config, **changes)
