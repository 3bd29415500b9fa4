"""The files of a checkpoint, links followed, and those among them that can't be what their names say."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.mirror.reading import readable

SUMS = "SHA256SUMS"
"""The list of digests in a checkpoint's own directory."""

_UNFINISHED = (".incomplete", ".part", ".partial", ".aria2", ".crdownload", ".tmp")
_NEVER_EMPTY = (".safetensors", ".json", ".model")
_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024


@dataclass
class Listing:
    """What a checkpoint's directory holds.

    sizes : bytes of each file, by path relative to the directory. Hidden entries of the directory itself are not of
        the checkpoint: downloaders keep their own files there.
    findings : files that are surely wrong, and directories that can't be read; `wrong` has their relative paths.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    findings: list[FleetcraftError] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)


def list_files(directory: Path) -> Listing:
    """Every file below `directory`. Reads the beginnings of the smallest, and nothing of others."""
    listing = Listing()
    for relative in sorted(_walk(directory, listing)):
        file = directory / relative
        try:
            with readable(file):
                size = checked_size(file)
        except FleetcraftError as finding:
            listing.findings.append(finding)
            listing.wrong.add(relative)
        else:
            listing.sizes[relative] = size
    return listing


def _walk(directory: Path, listing: Listing) -> Iterator[str]:
    seen = set()

    def refused(error: OSError) -> None:
        listing.wrong.add(os.path.relpath(error.filename, directory))
        listing.findings.append(
            BadInput(
                f"this directory can't be read ({error.strerror})",
                file=error.filename,
                remedy="Make it readable for you, or look at the file system that it is on",
            )
        )

    for folder, folders, names in os.walk(directory, followlinks=True, onerror=refused):
        here = Path(folder)
        # A link to a directory above would be followed for ever.
        seen.add(here.resolve())
        folders[:] = [name for name in folders if (here / name).resolve() not in seen]
        if here == directory:
            folders[:] = [name for name in folders if not name.startswith(".")]
            names = [name for name in names if not name.startswith(".")]
        yield from (str((here / name).relative_to(directory)) for name in names)


def checked_size(file: Path) -> int:
    """The file's size, links followed."""
    if file.is_symlink() and not file.exists():
        raise MissingWeights(
            f"this is a link to {file.readlink()}, which isn't there",
            file=file,
            remedy="Mirror the file that it leads to, or copy the checkpoint with its links followed (cp -rL)",
        )
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInput("this is no regular file", file=file, remedy="Take it out of the checkpoint's directory")
    if file.name.endswith(_UNFINISHED):
        raise CorruptWeights(
            "this file was left by a download that didn't end",
            file=file,
            remedy="Mirror the checkpoint again, and take this file away",
        )
    if status.st_size == 0 and file.name.endswith(_NEVER_EMPTY):
        raise CorruptWeights("this file is empty", file=file, remedy="Copy it again")
    if 0 < status.st_size < _POINTER_BYTES:
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise MissingWeights(
                    "this is a pointer of Git LFS and not the file that it stands for",
                    file=file,
                    remedy="Run `git lfs pull` where it was cloned, and copy it again",
                )
    return status.st_size
