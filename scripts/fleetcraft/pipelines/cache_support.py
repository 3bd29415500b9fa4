"""Which caches inside the transformer work for which family, and when one can't save anything: what a plan must know.

A family is in a cache's list where tests found that it hooks the real modules, saves work, changes latents, and leaves
nothing to the next sample. How each is switched on is in `fleetcraft.pipelines.caches`, which imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetcraft.pipelines.families import FAMILIES

Settings = Mapping[str, Any]
Problem = tuple[str, str]
"""A key of the cache, and what is wrong with it."""

_EVERY = tuple(FAMILIES)


@dataclass(frozen=True)
class Support:
    """What is known of one type of cache.

    families : those it works for.
    reasons : family → why it doesn't work there.
    of_halves : its keys that are about the unconditional half of a batch, which not all of its families have.
    adaptive : each sample decides anew what is skipped, so that one in which nothing is skipped proves nothing.
    idle : what in its settings, the family, the steps and the guidance keeps it from ever saving anything.
    """

    families: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    of_halves: tuple[str, ...] = ()
    adaptive: bool = False
    idle: Callable[[Settings, str, int, float], Problem | None] = lambda *_: None


def caches_of(family: str) -> list[str]:
    """The types of caches that work for a family."""
    return sorted(name for name, support in SUPPORT.items() if family in support.families)


def problem(cache: Settings, changed: Collection[str], family: str, steps: int, guidance: float) -> Problem | None:
    """The first thing that makes a cache impossible or useless for an arm, as (key of the cache, explanation).

    `changed` are the keys that have another value than their default.
    """
    support = SUPPORT[cache["type"]]
    if family not in support.families:
        return "type", (
            f"{cache['type']!r} doesn't work for the family {family}: {support.reasons[family]};"
            f" {family} has {', '.join(caches_of(family))}"
        )
    if steps == 1:
        return "type", "a cache saves nothing where there is one step; give the arm more steps, or no cache"
    if FAMILIES[family].guidance == "embedded" and (vain := [key for key in support.of_halves if key in changed]):
        return vain[0], (
            f"guidance is an input of the family {family}'s transformer, so no half of a batch is unconditional;"
            " leave this key out"
        )
    return support.idle(cache, family, steps, guidance)


def _faster_idle(cache: Settings, family: str, _steps: int, guidance: float) -> Problem | None:
    if FAMILIES[family].guidance == "batch of two" and guidance <= 1:
        return "type", f"'faster' halves the batch of two that guidance makes, and guidance {guidance:g} makes none"
    if FAMILIES[family].guidance == "embedded" and cache["timesteps"][1] > 999:
        return "timesteps", "the first step, at 999 or 1000, has nothing to extrapolate from; end at 999 or below"
    return None


def _mag_idle(cache: Settings, _family: str, steps: int, _guidance: float) -> Problem | None:
    """The ratios alone decide what is skipped: the smallest error of one step after the retained ones."""
    first = max(1, int(cache["retention_ratio"] * steps + 0.5))
    scale = (len(cache["ratios"]) - 1) / (steps - 1)
    errors = [abs(1 - cache["ratios"][round(step * scale)]) for step in range(first, steps)]
    if not errors:
        return "retention_ratio", f"all {steps} steps are retained, so none can be skipped"
    if min(errors) > cache["threshold"] * 1.001:
        return "threshold", f"no step can be skipped: the ratios predict an error of {min(errors):.3g} and more"
    return None


def _sea_idle(cache: Settings, _family: str, steps: int, _guidance: float) -> Problem | None:
    if cache["retention_steps"] + cache["end_steps"] >= steps:
        return "retention_steps", f"with the last {cache['end_steps']}, all {steps} steps are always computed"
    return None


def _taylor_seer_idle(cache: Settings, _family: str, steps: int, _guidance: float) -> Problem | None:
    first, interval = cache["first_steps"], cache["interval"]
    end = min(steps, cache["last_steps_from"] or steps)
    if not any((step - first - 1) % interval for step in range(first, end)):
        return "first_steps", f"no step of {steps} is left to be predicted"
    return None


_TWO_FORWARDS = "its pipeline makes two forwards a step, for which this cache keeps one state"
_NO_CONTEXT = "its pipeline doesn't tell the cache where in the schedule it is"

SUPPORT = {
    "first_block": Support(_EVERY, adaptive=True),
    "pyramid_attention": Support(("cogvideox", "hunyuan_video", "ltx"), reasons={"wan": _TWO_FORWARDS}),
    "faster": Support(
        ("cogvideox", "hunyuan_video"),
        reasons={"wan": _TWO_FORWARDS, "ltx": "it can't tell frames apart in the packed latents of its transformer"},
        of_halves=(
            "unconditional_skip_range",
            "unconditional_timesteps",
            "low_frequency_weight",
            "low_frequency_timesteps",
            "high_frequency_weight",
            "high_frequency_timesteps",
        ),
        idle=_faster_idle,
    ),
    "mag": Support(_EVERY, idle=_mag_idle),
    "sea": Support(
        ("wan",),
        reasons={family: _NO_CONTEXT for family in _EVERY if family != "wan"},
        adaptive=True,
        idle=_sea_idle,
    ),
    "taylor_seer": Support(_EVERY, idle=_taylor_seer_idle),
}
"""Type → what is known of it; the same types as in `fleetcraft.experiment.arms`."""
