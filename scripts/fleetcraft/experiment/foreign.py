"""Videos that exist already: which file is of which prompt and seed, and the checks that need no decoding.

Everything here is a look at names, sizes and lists: one listing of the directory, whatever the number of videos. Their
bytes are named by a list of SHA-256 digests, and are read once, when they are taken into the store.
"""

from __future__ import annotations

import csv
import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fleetcraft.experiment.arms import VideosSource
from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.video_names import video_name
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.mirror.sums import parse_sums

_SUMS = "SHA256SUMS"
_SHOWN = 3
"""Names that a message shows of many."""

_About = tuple[str, int]
"""Prompt and seed."""


@dataclass(frozen=True)
class ForeignVideos:
    """The videos of an arm.

    files : prompt and seed → file, relative to the directory.
    digests : prompt and seed → the SHA-256 that the list has for that file.
    bytes : of all of them together.
    unused : files of the directory that are of no prompt and seed of the experiment.
    """

    directory: Path
    files: dict[_About, str]
    digests: dict[_About, str]
    bytes: int
    unused: tuple[str, ...]


def find_videos(arm: str, source: VideosSource, prompts: Sequence[Prompt], seeds: Sequence[int]) -> ForeignVideos:
    """The videos of the arm named `arm`, one of each prompt and seed.

    Raises
    ------
    BadInput : one is missing, empty, unreadable, not in the list of digests, or the same as another.
    """
    key, directory = f"arms.{arm}.source", Path(source.videos)
    if not directory.is_dir():
        raise BadInput(
            "there is no such directory of videos", file=directory, key=f"{key}.videos", remedy="Correct the path"
        )
    wanted = [(prompt.text, seed) for prompt in prompts for seed in seeds]
    if source.index is None:
        files = _by_name(directory, wanted, seeds, key)
    else:
        files = _by_index(Path(source.index), wanted, f"{key}.index")
    found = _listed(directory, files.values(), f"{key}.videos")
    unused = tuple(sorted(found.keys() - set(files.values())))
    _refuse_missing(directory, files.values(), found, unused, source, f"{key}.videos")
    size = sum(_size(directory / name, found[name], f"{key}.videos") for name in files.values())
    sums = Path(source.sha256sums) if source.sha256sums else directory / _SUMS
    digests = _digests(directory, files, sums, f"{key}.sha256sums")
    return ForeignVideos(directory, files, digests, size, unused)


def _by_name(directory: Path, wanted: Sequence[_About], seeds: Sequence[int], key: str) -> dict[_About, str]:
    files = {about: video_name(*about, seeds) for about in wanted}
    owners: dict[str, _About] = {}
    for about, name in files.items():
        if owners.setdefault(name, about) != about:
            raise BadInput(
                f"two prompts have the same file name, {name!r}: {owners[name][0]!r} and {about[0]!r}",
                file=directory,
                key=f"{key}.videos",
                remedy="Name the files otherwise and say in an `index` which is which",
            )
    return files


def _by_index(index: Path, wanted: Sequence[_About], key: str) -> dict[_About, str]:
    remedy = "Make it a CSV file with the columns prompt, seed and file"
    try:
        with index.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, strict=True)
            lacking = {"prompt", "seed", "file"} - set(reader.fieldnames or ())
            if lacking:
                raise BadInput(f"it has no column {sorted(lacking)[0]!r}", file=index, key=key, remedy=remedy)
            rows = [(f"{index}:{reader.line_num}", row) for row in reader]
    except (FileNotFoundError, IsADirectoryError):
        raise BadInput("there is no such index of videos", file=index, key=key, remedy="Correct the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"this is no CSV file in UTF-8: {error}", file=index, key=key, remedy=remedy) from None
    of_experiment = set(wanted)
    files: dict[_About, str] = {}
    owners: dict[str, _About] = {}
    for place, row in rows:
        about, name = _row(place, row, key)
        if about not in of_experiment:
            continue
        if about in files or owners.setdefault(name, about) != about:
            what = f"prompt {about[0]!r} with seed {about[1]}" if about in files else f"the file {name!r}"
            raise BadInput(
                f"{what} is in an earlier row too: each video is of one prompt and seed",
                file=place,
                key=key,
                remedy="Remove one of the two rows",
            )
        files[about] = name
    lacking_rows = [about for about in wanted if about not in files]
    if lacking_rows:
        raise BadInput(
            f"{len(lacking_rows):,} of the experiment's {len(wanted):,} prompts and seeds have no row, the first are "
            + ", ".join(f"{prompt!r} with seed {seed}" for prompt, seed in lacking_rows[:_SHOWN]),
            file=index,
            key=key,
            remedy="Add them, or leave those prompts and seeds out of the experiment",
        )
    return {about: files[about] for about in wanted}


def _row(place: str, row: dict[str, str | None], key: str) -> tuple[_About, str]:
    prompt, seed, file = (row[column] or "" for column in ("prompt", "seed", "file"))
    if not seed.isascii() or not seed.isdigit():
        raise BadInput("a seed is a whole number", file=place, key=key, value=seed, remedy="Correct this row")
    path = PurePosixPath(os.path.normpath(file))
    if not file or path.is_absolute() or path.parts[:1] == ("..",) or path.suffix.lower() != ".mp4":
        raise BadInput(
            "`file` must name an .mp4 file by its path below the directory of the videos",
            file=place,
            key=key,
            value=file,
            remedy="Correct this row; `ffmpeg -i FILE -c copy FILE.mp4` changes the container and no pixel",
        )
    return (prompt, int(seed)), str(path)


def _listed(directory: Path, wanted: Iterable[str], key: str) -> dict[str, os.DirEntry[str]]:
    """Path below `directory` → entry, of every video in the folders that have a wanted one."""
    found: dict[str, os.DirEntry[str]] = {}
    for folder in sorted({os.path.dirname(name) for name in wanted}):  # noqa: PTH120
        try:
            with os.scandir(directory / folder) as entries:
                videos = [entry for entry in entries if entry.name.lower().endswith(".mp4")]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadInput(
                f"this directory of videos can't be listed: {error.strerror}",
                file=directory / folder,
                key=key,
                remedy="Make it readable for you",
            ) from None
        found.update({os.path.join(folder, entry.name): entry for entry in videos})  # noqa: PTH118
    return found


def _refuse_missing(
    directory: Path,
    wanted: Iterable[str],
    found: dict[str, os.DirEntry[str]],
    unused: Sequence[str],
    source: VideosSource,
    key: str,
) -> None:
    names = list(wanted)
    missing = [name for name in names if name not in found]
    if not missing:
        return
    strays = f"; {len(unused):,} others are there, of no prompt and seed: {_some(unused)}" if unused else ""
    raise BadInput(
        f"{len(missing):,} of {len(names):,} videos are missing: {_some(missing)}{strays}",
        file=directory,
        key=key,
        remedy="Name each `{prompt}-{index}.mp4`, where the index is the place of its seed in `seeds`, from 0, "
        "or say in an `index` which file is which"
        if source.index is None
        else "Correct the index, or put the files there",
    )


def _size(file: Path, entry: os.DirEntry[str], key: str) -> int:
    """Bytes of a video, after a look at what can be told without reading it."""
    try:
        status = entry.stat()
    except OSError as error:
        problem = f"this can't be looked at ({error.strerror}): it may be a link whose target has gone"
    else:
        problem = _problem(file, status)
    if problem:
        raise BadInput(problem, file=file, key=key, remedy="Put a whole, readable video there")
    return status.st_size


def _problem(file: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "this is no file"
    if status.st_size == 0:
        return "this video is empty: it has no bytes"
    # Asked only where the mode leaves a doubt: on a network filesystem each question costs.
    if not status.st_mode & stat.S_IROTH and not os.access(file, os.R_OK, effective_ids=True):
        return "this video may not be read by you"
    return ""


def _digests(directory: Path, files: dict[_About, str], sums: Path, key: str) -> dict[_About, str]:
    where = shlex.quote(_SUMS if sums == directory / _SUMS else str(sums.absolute()))
    command = f"(cd {shlex.quote(str(directory))} && find . -iname '*.mp4' | sort | xargs -d '\\n' sha256sum > {where})"
    if not sums.is_file():
        raise BadInput(
            "the list of these videos' SHA-256 digests is missing: no number could be traced to them",
            file=sums,
            key=key,
            remedy=f"Make it once: {command}",
        )
    try:
        listed = parse_sums(sums)
    except FleetcraftError as error:
        raise error.about(key) from None
    unlisted = [name for name in files.values() if name not in listed]
    if unlisted:
        raise BadInput(
            f"{len(unlisted):,} videos are not in the list of digests: {_some(unlisted)}",
            file=sums,
            key=key,
            remedy=f"Make it again: {command}",
        )
    owners: dict[str, str] = {}
    for name in files.values():
        if (other := owners.setdefault(listed[name], name)) != name:
            raise BadInput(
                f"two videos have the same bytes: {other!r} and {name!r}",
                file=sums,
                key=key,
                remedy="Put the right video in the place of the one that is a copy, and make the list again",
            )
    return {about: listed[name] for about, name in files.items()}


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
