"""How the videos of arms were encoded, and which arms are therefore not compared with the baseline."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fleetcraft.experiment.alike import mixed, not_compared_in, vouched_for
from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.records import Record

if TYPE_CHECKING:
    from fleetcraft.analysis.tables import Results


class Encoding(NamedTuple):
    """How one video was encoded.

    encoder : codec and pixel format as the encoder was told them, or of an existing video as they were found.
    stream : codec and pixel format as a player finds them.
    settings : all of the encoder's, as text; empty where they are unknown.
    crf : the encoder's constant rate factor; None where it is unknown.
    """

    encoder: str
    stream: str
    settings: str
    crf: int | None
    fps: int | None


def encoding_of(record: Record) -> Encoding:
    """The encoding that a video's record tells of."""
    foreign = record["encoder"] == "foreign"
    # Videos that an earlier version encoded have no probe in their records.
    found = record.get("probe") or {}
    stream = f"{found['codec']} {found['pixel_format']}" if found else ""
    if foreign:
        return _one(stream, stream, "", None, record.get("fps"))
    told = record["encoder"]
    encoder = f"{told['codec']} {told['pixel_format']}"
    return _one(encoder, stream, canonical_json(told), told["crf"], record.get("fps"))


@lru_cache(maxsize=1024)
def _one(encoder: str, stream: str, settings: str, crf: int | None, fps: int | None) -> Encoding:
    """A campaign has a few encodings and too many videos to hold one for each."""
    return Encoding(encoder, stream, settings, crf, fps)


def not_compared(results: Results) -> dict[str, str]:
    """Arm → why it is not compared with the baseline; `results` may lack the videos, and then the plan decides.

    Raises
    ------
    BadInput : somebody vouches for an arm whose videos were found to be encoded otherwise, or not alike.
    """
    reasons, vouched = not_compared_in(results.plan), vouched_for(results.plan)
    baseline = results.plan["baseline"]
    encodings: dict[str, set[Encoding]] = defaultdict(set)
    for (arm, _, _), record in results.videos.items():
        encodings[arm].add(record["encoding"])
    for arm in results.arms:
        if arm in vouched:
            _refuse_mixture(arm, encodings[arm])
    for arm in results.arms:
        if arm == baseline or arm in reasons or not encodings[arm] or not encodings[baseline]:
            continue
        ours, theirs = encodings[arm], encodings[baseline]
        if arm in vouched or baseline in vouched:
            _refuse_contradiction(results, arm, ours, theirs)
        elif {(one.settings, one.fps) for one in ours} != {(one.settings, one.fps) for one in theirs}:
            reasons[arm] = f"its videos were encoded otherwise than those of the baseline {baseline!r}"
    return {arm: reasons[arm] for arm in results.arms if arm in reasons}


def _refuse_contradiction(results: Results, arm: str, ours: set[Encoding], theirs: set[Encoding]) -> None:
    """What a player finds must be the same in all videos, or they were not encoded alike whatever anybody says."""
    baseline = results.plan["baseline"]
    found, expected = _played(ours), _played(theirs)
    if len(found | expected) > 1:
        claimed = arm if arm in vouched_for(results.plan) else baseline
        raise _not_alike(
            f"the videos of {arm!r} are {_listed(found)}, those of {baseline!r} are {_listed(expected)}", claimed
        )


def _refuse_mixture(arm: str, encodings: set[Encoding]) -> None:
    """Videos that differ among themselves can't all be encoded as those of another arm are."""
    found = _played(encodings)
    if len(found) > 1:
        raise _not_alike(f"the videos of {arm!r} are {_listed(found)}", arm)


def _played(encodings: set[Encoding]) -> set[str]:
    """What a player finds."""
    return {f"{one.stream} at {one.fps} frames a second" for one in encodings if one.stream}


def _listed(found: set[str]) -> str:
    return " or ".join(sorted(found))


def _not_alike(problem: str, claimed: str) -> BadInput:
    """The error of a claim that the videos contradict."""
    return BadInput(
        f"{problem}: they were not encoded alike",
        key=f"arms.{claimed}.source.same_encoder",
        value=True,
        remedy="Leave this key out: the arm is scored all the same, and not compared",
    )


def mixed_arms(results: Results) -> dict[str, str]:
    """Arm → what is to be known of its existing videos, where these weren't encoded alike."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (arm, _, _), record in results.videos.items():
        if not record["encoding"].settings:
            counts[arm][record["encoding"].encoder] += 1
    return {arm: remark for arm in results.arms if (remark := mixed(counts[arm]))}


def encoders_rows(results: Results) -> list[list[object]]:
    """What encoded the videos of each arm, and whether the arm is therefore compared with the baseline.

    Of an existing video only what it became is known, not the settings that decided it.
    """
    sizes: dict[tuple[str, Encoding], list[int]] = defaultdict(list)
    for (arm, _, _), record in results.videos.items():
        sizes[arm, record["encoding"]].append(record["bytes"])
    apart, vouched = not_compared(results), vouched_for(results.plan)
    rows: list[list[object]] = []
    for arm in results.arms:
        compared = "baseline" if arm == results.plan["baseline"] else f"no: {apart[arm]}" if arm in apart else "yes"
        for (owner, one), found in sorted(sizes.items(), key=lambda item: str(item[0])):
            if owner == arm:
                settings = f"crf {one.crf}" if one.settings else "vouched for" if arm in vouched else "unknown"
                fps = "" if one.fps is None else one.fps
                rows.append([arm, one.encoder, settings, fps, len(found), round(sum(found) / len(found)), compared])
    return rows


ENCODERS = ("arm", "encoder", "settings", "fps", "videos", "mean_bytes", "compared")
"""The columns of `encoders_rows`."""
