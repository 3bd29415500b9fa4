"""VBench's names of videos, `{prompt}-{index}.mp4`: views are made with them, and existing videos found by them."""

from __future__ import annotations

from collections.abc import Sequence

from fleetcraft.ground.digests import key_of

_LONGEST_NAME = 255
"""Bytes that a file name may have on the filesystems in use."""


def video_name(prompt: str, seed: int, seeds: Sequence[int]) -> str:
    """VBench's name of a video; the index is the place of `seed` in `seeds`, all those of the prompt.

    A slash, which no file name can hold, becomes a division slash. A prompt that is longer than a file name may be is
    cut, with a digest to tell it from others with the same beginning.
    """
    name = prompt.replace("/", "\u2215")
    ending = f"-{list(seeds).index(seed)}.mp4"
    if len(name.encode()) + len(ending) > _LONGEST_NAME:
        ending = f"…{key_of(prompt)[:8]}{ending}"
        name = name.encode()[: _LONGEST_NAME - len(ending.encode())].decode(errors="ignore")
    return f"{name}{ending}"
