"""Which arms are compared with the baseline: those whose videos were encoded alike, as far as an experiment can tell.

An encoder shifts scores by itself. The arms that a campaign generates share one; how existing videos were encoded is
unknown, unless the experiment vouches for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fleetcraft.experiment.conditions import Foreign, conditions_of


def not_compared(arms: Iterable[str], baseline: str, unknown: Collection[str]) -> dict[str, str]:
    """Arm → why it is not compared with the baseline; `unknown` are the arms whose encoder nobody vouches for."""
    if baseline in unknown:
        reason = f"how the videos of the baseline {baseline!r} were encoded is unknown"
        return {arm: reason for arm in arms if arm != baseline}
    return {arm: "how its videos were encoded is unknown" for arm in arms if arm in unknown}


def not_compared_in(plan: Mapping[str, Any]) -> dict[str, str]:
    """The same, of the plan that has this document."""
    foreign = [arm for arm, one in conditions_of(plan["conditions"]).items() if isinstance(one, Foreign)]
    unknown = [arm for arm in foreign if arm not in vouched_for(plan)]
    return not_compared(plan["conditions"], plan["baseline"], unknown)


def mixed(videos: Mapping[str, int]) -> str | None:
    """What is to be known of an arm whose existing videos differ in how they were encoded; None where they don't.

    videos : codec and pixel format → how many of the arm's videos have them.
    """
    if len(videos) < 2:
        return None
    found = ", ".join(f"{stream} ({count:,})" for stream, count in sorted(videos.items()))
    return f"its videos were not encoded alike: {found}; differences between them may be the encoder's"


def vouched_for(plan: Mapping[str, Any]) -> set[str]:
    """The arms of existing videos that, by the word of the experiment's author, were encoded as the others are."""
    arms = plan.get("experiment", {}).get("arms", {})
    return {arm for arm, settings in arms.items() if settings.get("source", {}).get("same_encoder")}
