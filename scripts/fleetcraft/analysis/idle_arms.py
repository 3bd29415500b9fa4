"""Arms that don't do what they say: a cache that saved nothing, a setting that changed nothing. No table has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleetcraft.ground.errors import BadResult

if TYPE_CHECKING:
    from fleetcraft.analysis.tables import Results

UNITS = ("blocks", "attentions", "flops")
"""What a transformer's work is counted in. Records of an earlier version may lack some."""

_CHANGING = ("cache", "scheduler", "flow_shift")
"""Settings of an arm without which it would be another, and which change latents if they do anything."""


def refuse_idle_arms(results: Results) -> None:
    """Look at every arm that has records.

    Raises
    ------
    BadResult : a cache saved nothing in any video of its arm, or all latents of an arm are those of another that is the
        same but for one setting, which it is without.
    """
    # Arms of existing videos have no settings.
    conditions = {arm: found for arm, found in results.plan["conditions"].items() if "arm" in found}
    for arm in conditions:
        settings = conditions[arm]["arm"]
        works = [record["work"] for (owner, _, _), record in results.latents.items() if owner == arm]
        if works and settings["cache"] is not None and not any(_saved(work) for work in works):
            raise BadResult(
                f"the cache saved nothing: everything was computed in all {len(works):,} videos",
                key=f"arms.{arm}.cache",
                value=settings["cache"],
                remedy="Let it skip more, or leave the arm out: it is one without a cache",
            )
        for setting, twin in _twins(conditions, arm):
            if _same_latents(results, arm, twin):
                raise BadResult(
                    f"this setting changed nothing: all latents are those of the arm {twin!r}, which is without it",
                    key=f"arms.{arm}.{setting}",
                    value=settings[setting],
                    remedy="Choose a setting that has an effect, or leave the arm out",
                )


def _saved(work: dict[str, Any]) -> bool:
    return any(work.get(f"{unit}_computed") != work.get(f"{unit}_possible") for unit in UNITS)


def _twins(conditions: dict[str, Any], arm: str) -> Iterator[tuple[str, str]]:
    """(setting, other arm) for each other arm that is the same but for that setting, which it doesn't have."""

    def without(name: str, setting: str | None) -> dict[str, Any]:
        condition: dict[str, Any] = conditions[name]
        settings = {key: value for key, value in condition["arm"].items() if value is not None and key != setting}
        return condition | {"arm": settings}

    for setting in _CHANGING:
        if conditions[arm]["arm"].get(setting) is not None:
            for other in conditions:
                if other != arm and without(other, None) == without(arm, setting):
                    yield setting, other


def _same_latents(results: Results, arm: str, other: str) -> bool:
    pairs = [
        (record.get("values_sha256"), results.latents[other, prompt, seed].get("values_sha256"))
        for (owner, prompt, seed), record in results.latents.items()
        if owner == arm and (other, prompt, seed) in results.latents
    ]
    return bool(pairs) and all(ours is not None and ours == theirs for ours, theirs in pairs)
