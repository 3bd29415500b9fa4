"""The actions that VBench's human_action recognises, and how upstream learns from a prompt which one to look for.

It reads that out of the name of the video's file, and says 0 of every video whose name has none that it knows.
"""

from __future__ import annotations

from functools import cache

from fleetcraft.ground.repository import RESOURCES

ACTIONS_FILE = RESOURCES / "kinetics-400.txt"

_LONGEST = 200
"""Bytes of a prompt in the name of a file, which has 255 at most."""


def named_for(prompt: str) -> str:
    """How the name of a prompt's video begins; a hyphen comes after it."""
    return prompt.replace("/", " ").encode()[:_LONGEST].decode(errors="ignore")


def wanted_action(prompt: str) -> str:
    """What upstream looks for in a prompt's video, by that name: its code, word for word."""
    return f"{named_for(prompt)}-".lower().split("-")[0].split("person is ")[-1].split("_")[0]


@cache
def known_actions() -> frozenset[str]:
    """All that it can recognise."""
    lines = ACTIONS_FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
