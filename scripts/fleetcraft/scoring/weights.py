"""The weights of dimensions: which files each needs, where they come from, and whether they are there.

A directory of weights has a list of its files' digests, as a checkpoint has. One whose files are not upstream's says so
in a file named PROXY, and then serves the dimensions whose names begin with `proxy-`, and no others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.ground.repository import RESOURCES
from fleetcraft.mirror.listing import SUMS, checked_size
from fleetcraft.mirror.reading import readable
from fleetcraft.mirror.sums import read_sums
from fleetcraft.scoring.dimensions import DIMENSIONS, PROXY

FILE = RESOURCES / "weights.yaml"

MARK = "PROXY"
"""The file in a directory of weights that says what they are instead of upstream's; its first line is a title."""


@dataclass(frozen=True)
class WeightFile:
    """A file of weights.

    path : below the directory. source : its address. sha256 : or its first digits, as far as they are published.
    """

    path: str
    source: str
    sha256: str | None = None


def needed(dimension: str) -> tuple[WeightFile, ...]:
    """The files that a dimension needs; none for one without weights."""
    name = DIMENSIONS[dimension].weights
    return () if name is None else _known()[name]


def find(directory: Path, dimensions: Iterable[str]) -> dict[str, dict[str, str]]:
    """Dimension → the SHA-256 of each file that it needs, by path below `directory`, as the list there has it.

    No weights are read.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : what the first of `problems` is.
    """
    found = {}
    for dimension in dimensions:
        if wrong := problems(directory, dimension):
            raise wrong[0]
        sums = read_sums(directory)
        found[dimension] = {file.path: sums[file.path] for file in needed(dimension)}
    return found


def problems(directory: Path, dimension: str) -> list[FleetcraftError]:
    """Why `directory` can't serve a dimension; the files that are missing make one of them, with their sources."""
    files = needed(dimension)
    wrong: list[FleetcraftError] = []
    if not directory.is_dir():
        return [
            MissingWeights(
                "there is no such directory of weights",
                file=directory,
                remedy="Mirror the weights there, or correct the path",
            )
        ]
    if mixed := _mixed(directory, dimension):
        return [mixed]
    lacking = []
    for file in files:
        path = directory / file.path
        try:
            with readable(path):
                if checked_size(path) == 0:
                    raise CorruptWeights("this file is empty", file=path, remedy=f"Copy it again from {file.source}")
        except FleetcraftError as error:
            # A dead link, or a pointer of Git LFS, is missing weights too: what is there has an error of its own.
            if isinstance(error, MissingWeights) and not os.path.lexists(path):
                lacking.append(file)
            else:
                wrong.append(error)
    if lacking:
        first, *others = lacking
        more = "".join(f"; and {directory / file.path} from {file.source}" for file in others)
        wrong.insert(
            0,
            MissingWeights(
                f"{dimension} needs this file, and it isn't there",
                file=directory / first.path,
                remedy=f"Mirror it from {first.source}{more}",
            ),
        )
    return wrong or _unlisted(directory, dimension)


def _unlisted(directory: Path, dimension: str) -> list[FleetcraftError]:
    """What is wrong with the list of digests, as far as a dimension needs it."""
    try:
        sums = read_sums(directory)
    except FleetcraftError as error:
        return [error]
    wrong: list[FleetcraftError] = []
    for file in needed(dimension):
        listed = sums.get(file.path)
        if listed is None:
            wrong.append(
                BadInput(
                    f"{file.path} is not in this list of digests", file=directory / SUMS, remedy="Make the list again"
                )
            )
        elif not listed.startswith(file.sha256 or "") and not DIMENSIONS[dimension].proxy:
            wrong.append(
                CorruptWeights(
                    f"by its SHA-256 this isn't the file that upstream publishes: {listed}, published {file.sha256}",
                    file=directory / file.path,
                    remedy=f"Mirror it from {file.source} and make the list again",
                )
            )
    return wrong


def _mixed(directory: Path, dimension: str) -> FleetcraftError | None:
    """What keeps upstream's names and other weights apart."""
    mark, proxy = directory / MARK, DIMENSIONS[dimension].proxy
    if mark.is_file() and not proxy:
        with readable(mark):
            title = mark.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        return BadInput(
            f"these weights are not upstream's ({title}), so what they give is no {dimension}",
            file=mark,
            remedy=f"Ask for {PROXY}{dimension}, which enters no total, or name a directory of upstream's weights",
        )
    if proxy and not mark.is_file():
        return BadInput(
            f"{dimension} is for weights that are not upstream's, and this directory doesn't say what they are",
            file=mark,
            remedy=f"Say it in this file, or ask for {dimension.removeprefix(PROXY)}",
        )
    return None


@cache
def _known() -> dict[str, tuple[WeightFile, ...]]:
    document: dict[str, Any] = yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    files = [WeightFile(path, **entry) for path, entry in document["files"].items()]

    def of(entries: list[str]) -> tuple[WeightFile, ...]:
        return tuple(file for file in files if any(f"{file.path}/".startswith(f"{entry}/") for entry in entries))

    return {dimension: of(entries) for dimension, entries in document["dimensions"].items()}
