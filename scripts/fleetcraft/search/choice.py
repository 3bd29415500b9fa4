"""The choice among candidates, and how it is recorded.

A record of a choice has all candidates of one prompt and seed with what the verifier gave them, and the kept ones, best
first. It carries the digest of what was to be chosen from, so that a choice of other candidates isn't taken for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadResult, PurgedScratch
from fleetcraft.ground.records import Record, read_records

VERSION = 1
"""Raised when the same values would be chosen from differently."""


def best(values: Sequence[float | None], keep: int, prefer: str) -> list[int]:
    """The places of the `keep` best values, best first; of equal ones the earlier is better.

    None is a video that the verifier had no value for. It is never chosen: the list is shorter where too few have one.
    """
    sign = -1.0 if prefer == "highest" else 1.0
    ranked = sorted((sign * value, place) for place, value in enumerate(values) if value is not None)
    return [place for _, place in ranked[:keep]]


def choose(candidates: Sequence[Mapping[str, Any]], keep: int, prefer: str) -> list[int]:
    """The seeds of the candidates to keep, best first; of each candidate its `seed` and `value` are looked at.

    Raises
    ------
    BadResult : fewer than `keep` of them have a value.
    """
    places = best([candidate["value"] for candidate in candidates], keep, prefer)
    if len(places) < keep:
        raise BadResult(
            f"{keep} of {len(candidates)} candidates are to be kept, and the verifier has values for {len(places)}",
            remedy="Choose a verifier that has a value for every video",
        )
    return [candidates[place]["seed"] for place in places]


def read_choices(file: Path, digest: str) -> list[Record]:
    """The records of a manifest of choices.

    Raises
    ------
    PurgedScratch : there is none for `digest`.
    Damaged : it is truncated or edited.
    """
    remedy = "Start again: what was scored is in the store, and is chosen from anew"
    records: list[Record] = read_records(file, remedy)
    if any(record["digest"] != digest for record in records):
        raise PurgedScratch("this choice was made among other candidates than those of now", file=file, remedy=remedy)
    return records
