"""Checks a spool's directories from outside: no code of the library is used, only the format of its README."""

from __future__ import annotations

import os
import re
from pathlib import Path

STATES = ("pending", "running", "done", "failed", "quarantine")
DIRECTORY_LIMIT = 1000
_TASK = re.compile(r"\d{3}-(.+)-a(\d+)")


def state_files(root: Path) -> dict[str, list[tuple[str, Path]]]:
    """Where each task id lies, by file name: (state, path) of every file in a state directory."""
    places: dict[str, list[tuple[str, Path]]] = {}
    for state in STATES:
        for directory, _, files in os.walk(root / state):
            for file in files:
                match = _TASK.fullmatch(file)
                places.setdefault(match[1] if match else f"stray {file}", []).append((state, Path(directory) / file))
    return places


def audit(root: Path, *, at_rest: bool = False, strays_allowed: bool = False) -> list[str]:
    """What is wrong with a spool.

    Parameters
    ----------
    at_rest : nobody works on it and a reaper has been through: nothing may be left of gone writers either.
    strays_allowed : the test itself put unreadable files there.
    """
    problems = []
    places = state_files(root)
    index = {path.name: path for path in (root / "tasks").glob("*/*")}
    for task, found in places.items():
        if len(found) != 1:
            problems.append(f"{task} is in {len(found)} states: {found}")
        if task not in index:
            if not strays_allowed:
                problems.append(f"{task} is in {found[0][0]} but not in the index")
        elif not index[task].samefile(found[0][1]):
            problems.append(f"{task} in {found[0][0]} is another file than in the index")
    if at_rest:
        problems += [f"{task} is indexed and in no state" for task in index if task not in places]
        for name in ("running", "leases", "staging", "control/cancel", "control/gang"):
            problems += [f"left behind: {path}" for path in (root / name).rglob("*")]
    for directory, subdirectories, files in os.walk(root):
        if len(subdirectories) + len(files) > DIRECTORY_LIMIT:
            problems.append(f"{directory} has {len(subdirectories) + len(files)} entries")
    return problems
