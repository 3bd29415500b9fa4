"""Lists of SHA-256 digests as sha256sum prints them, and the digest of a model that follows from one."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from fleetcraft.ground.digests import canonical_json, key_of, sha256_text
from fleetcraft.ground.errors import BadInput, FleetcraftError, MissingWeights
from fleetcraft.mirror.inspection import named
from fleetcraft.mirror.listing import SUMS
from fleetcraft.mirror.reading import readable

_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64}) [ *](.+)")
_AGAIN = "Make the list again"


def model_digest(files: dict[str, str]) -> str:
    """The digest of a model whose files have these digests; where they lie doesn't matter."""
    return key_of({"files": sha256_text(canonical_json(files))})


def read_sums(directory: Path, sums: Path | None = None) -> dict[str, str]:
    """SHA-256 of each file of the checkpoint, by path relative to it, sorted.

    sums : the list; by default the one in the checkpoint's directory.

    Raises
    ------
    MissingWeights, BadInput : there is no list, or it is none.
    """
    sums = sums or directory / SUMS
    if not sums.exists():
        target = sums.name if sums.parent == directory else str(sums.absolute())
        raise MissingWeights(
            "the list of this checkpoint's SHA-256 digests is missing: no number could be traced to the weights",
            file=sums,
            # Links are followed, as in the caches of hubs; hidden entries of the directory are not of the checkpoint.
            remedy=f"Make it once: (cd {shlex.quote(str(directory))} && find -L . -type f ! -path './.*'"
            f" ! -name {shlex.quote(sums.name)} | sort | xargs -d '\\n' sha256sum > {shlex.quote(target)})",
        )
    return parse_sums(sums)


def parse_sums(sums: Path) -> dict[str, str]:
    """The list `sums`, as `read_sums` gives it; each line is about a file below one directory.

    Raises
    ------
    BadInput : it can't be read, or a line is none of such a list.
    """
    with readable(sums):
        data = sums.read_bytes()
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise BadInput("this list of digests is no UTF-8 text", file=sums, remedy=_AGAIN) from None
    files: dict[str, str] = {}
    for number, line in enumerate((line.removesuffix("\r") for line in lines), 1):
        if line.strip():
            path, digest = _entry(line, f"{sums}:{number}")
            if files.setdefault(path, digest) != digest:
                raise BadInput(
                    f"{path} is listed twice, with different digests", file=f"{sums}:{number}", remedy=_AGAIN
                )
    return dict(sorted(files.items()))


def _entry(line: str, place: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise BadInput("this line is not `SHA256  FILE`", file=place, value=line, remedy=_AGAIN)
    escaped, digest, name = found.groups()
    if escaped:
        # As sha256sum does with names that have a backslash or the end of a line in them.
        name = re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), name)
    path = os.path.normpath(name.strip())
    if PurePosixPath(path).is_absolute() or path.split("/")[0] in {"..", "."}:
        raise BadInput(
            "this line is not about a file in the directory that the list is of",
            file=place,
            value=line,
            remedy=f"{_AGAIN}, in that directory",
        )
    return path, digest.lower()


def compare(
    directory: Path, sums: Path | None, files: dict[str, str], present: Collection[str]
) -> list[FleetcraftError]:
    """Files that the list lacks, and files of the list that are missing; `present` are those that are there."""
    sums = sums or directory / SUMS
    itself = os.path.relpath(sums, directory)
    findings: list[FleetcraftError] = []
    unlisted = [name for name in present if name not in files and name not in {SUMS, itself}]
    if unlisted:
        several = f"{len(unlisted):,} files are" if len(unlisted) > 1 else f"{unlisted[0]} is"
        names = f": {named(unlisted)}" if len(unlisted) > 1 else ""
        findings.append(
            BadInput(
                f"{several} not in the list of digests{names}",
                file=sums,
                remedy=f"{_AGAIN}, or take away what isn't of the checkpoint",
            )
        )
    for name in files:
        if name not in present and not os.path.lexists(directory / name):
            findings.append(not_there(directory / name))
    return findings


def not_there(file: Path) -> MissingWeights:
    """What is said of a file that only the list has."""
    return MissingWeights(
        "this file is in the list of digests and not in the checkpoint", file=file, remedy="Mirror it again"
    )
