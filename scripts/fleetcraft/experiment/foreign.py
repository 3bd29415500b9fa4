"""Videos that exist already: which file is of which prompt and seed, and the checks that need no decoding.

Everything here is a look at names, sizes and lists: one listing of the directory, whatever the number of videos. Their
bytes are named by a list of SHA-256 digests, and are read once, when they are taken into the store.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import stat
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fleetcraft.experiment.arms import VideosSource
from fleetcraft.experiment.models import Prompts
from fleetcraft.experiment.prompts import Prompt, load_prompts
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.video_names import video_name
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.mirror.sums import parse_sums

_SUMS = "SHA256SUMS"
_SHOWN = 3
"""Names that a message shows of many."""

_SEED_DIGITS = len(str(2**63 - 1))
"""Of the largest seed that an experiment may have."""

_About = tuple[str, int]
"""Prompt and seed."""

_ENDINGS = re.compile(r"(\.(mp4|m4v|mov|mkv|webm|avi|gif|part|partial|tmp|crdownload|download|aria2|bak))+$")
"""What may stand in the place of `.mp4`, or be left after it by a program that wasn't done."""


@dataclass(frozen=True)
class ForeignVideos:
    """The videos of an arm.

    files : prompt and seed → file, relative to the directory.
    digests : prompt and seed → the SHA-256 that the list has for that file.
    bytes : of all of them together.
    unused : videos in the directory that are of no prompt and seed of the experiment.
    strays : what else lies there and is neither a video nor a list that the experiment names; folders end in a slash.
    """

    directory: Path
    files: dict[_About, str]
    digests: dict[_About, str]
    bytes: int
    unused: tuple[str, ...]
    strays: tuple[str, ...]

    @property
    def remarks(self) -> list[str]:
        """What is left alone, in sentences without a full stop."""
        found = []
        if self.unused:
            found.append(f"{len(self.unused):,} others there are not of this experiment: {_some(self.unused)}")
        if self.strays:
            found.append(f"{len(self.strays):,} strays there are no .mp4 files: {_some(self.strays)}")
        return found


def find_videos(arm: str, source: VideosSource, prompts: Sequence[Prompt], seeds: Seeds) -> ForeignVideos:
    """The videos of the arm named `arm`, one of each prompt and seed.

    Raises
    ------
    BadInput : something is wrong with the set of them (`look`).
    """
    videos, faults = look(arm, source, prompts, seeds)
    if not faults:
        return videos
    first, *others = faults
    if not others:
        raise first
    more = f"{len(others)} other things are" if len(others) > 1 else "another thing is"
    raise type(first)(
        f"{first.problem} ({more} wrong with these videos: `fleetcraft videos check EXPERIMENT` shows all)",
        file=first.file,
        key=first.key,
        value=first.value,
        remedy=first.remedy,
    )


def look(
    arm: str, source: VideosSource, prompts: Sequence[Prompt], seeds: Seeds
) -> tuple[ForeignVideos, list[FleetcraftError]]:
    """The videos of an arm as far as they can be used, and everything that is wrong with the set of them.

    That is: one is missing, has a name that another one has but for case or Unicode form, is empty, unreadable, not in
    the list of digests, or the same as another.

    Raises
    ------
    BadInput : nobody can tell which files are wanted, or the directory can't be listed.
    """
    key, directory = f"arms.{arm}.source", Path(source.videos)
    if not directory.is_dir():
        raise BadInput(
            "there is no such directory of videos", file=directory, key=f"{key}.videos", remedy="Correct the path"
        )
    seeds_of = {prompt.text: seeds.of(prompt.dimensions) for prompt in prompts}
    wanted = [(text, seed) for text, own in seeds_of.items() for seed in own]
    if source.index is None:
        files = _by_name(directory, {about: video_name(*about, seeds_of[about[0]]) for about in wanted}, key)
    else:
        files = _by_index(Path(source.index), wanted, f"{key}.index")
    entries = _listed(directory, files.values(), f"{key}.videos")
    found = {name: entry for name, entry in entries.items() if name.lower().endswith(".mp4")}
    unused = tuple(sorted(found.keys() - set(files.values())))
    sums = Path(source.sha256sums) if source.sha256sums else directory / _SUMS
    lists = {sums, *([Path(source.index)] if source.index else [])}
    strays, tangled = _strays(directory, entries, lists, f"{key}.videos")
    suite = any(prompt.dimensions for prompt in prompts)
    faults: list[FleetcraftError] = [
        *_missing(directory, list(files.values()), found, (*unused, *strays), source, f"{key}.videos"),
        *([] if source.index else _twins(directory, files.values(), unused, f"{key}.videos", suite=suite)),
        *tangled,
    ]
    there = {about: name for about, name in files.items() if name in found}
    sizes, useless = _sizes(directory, {name: found[name] for name in there.values()}, f"{key}.videos")
    digests, doubtful = _digests(directory, there, sums, f"{key}.sha256sums")
    usable = {about: name for about, name in there.items() if name in sizes}
    videos = ForeignVideos(directory, usable, digests, sum(sizes.values()), unused, strays)
    return videos, [*faults, *useless, *doubtful]


def _by_name(directory: Path, files: dict[_About, str], key: str) -> dict[_About, str]:
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
    except OSError as error:
        problem = f"this index of videos can't be read: {error.strerror}"
        raise BadInput(problem, file=index, key=key, remedy="Make it readable for you") from None
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
    if not seed.isascii() or not seed.isdigit() or len(seed) > _SEED_DIGITS:
        problem = f"a seed is a whole number of at most {_SEED_DIGITS} digits"
        raise BadInput(problem, file=place, key=key, value=seed, remedy="Correct this row")
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
    """Path below `directory` → entry, of everything in the folders that have a wanted video."""
    found: dict[str, os.DirEntry[str]] = {}
    for folder in sorted({os.path.dirname(name) for name in wanted}):  # noqa: PTH120
        try:
            with os.scandir(directory / folder) as entries:
                found.update({os.path.join(folder, entry.name): entry for entry in entries})  # noqa: PTH118
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BadInput(
                f"this directory of videos can't be listed: {error.strerror}",
                file=directory / folder,
                key=key,
                remedy="Make it readable for you",
            ) from None
    return found


def _strays(
    directory: Path, entries: dict[str, os.DirEntry[str]], lists: set[Path], key: str
) -> tuple[tuple[str, ...], list[BadInput]]:
    """What is neither a video, nor one of the `lists`, nor a folder that was looked into; and links that lead nowhere.

    A link whose target has gone is a stray like others; one to itself, or to where nobody may look, is a mistake.
    """
    folders = {os.path.dirname(name) for name in entries}  # noqa: PTH120
    strays, faults = [], []
    for name, entry in sorted(entries.items()):
        if name.lower().endswith(".mp4") or name in folders or directory / name in lists:
            continue
        try:
            strays.append(f"{name}/" if entry.is_dir() else name)
        except OSError as error:
            problem = f"this link among the videos can't be followed: {error.strerror}"
            faults.append(BadInput(problem, file=directory / name, key=key, remedy="Remove or correct the link"))
    return tuple(strays), faults


def _missing(
    directory: Path,
    names: Sequence[str],
    found: Collection[str],
    others: Sequence[str],
    source: VideosSource,
    key: str,
) -> Iterator[BadInput]:
    missing = [name for name in names if name not in found]
    if not missing:
        return
    said = f"; {len(others):,} others are there, of no prompt and seed: {_some(others)}" if others else ""
    cores = {_core(name): name for name in others}
    near = [f"{cores[_core(name)]!r} is not {name!r}" for name in missing if _core(name) in cores]
    if near:
        said += f"; names count to the letter: {', '.join(near[:_SHOWN])}{', …' if len(near) > _SHOWN else ''}"
    yield BadInput(
        f"{len(missing):,} of {len(names):,} videos are missing: {_some(missing)}{said}",
        file=directory,
        key=key,
        remedy="Name each `{prompt}-{index}.mp4`, where the index is the place of its seed in `seeds`, and after "
        "these in `further_seeds`, from 0, or say in an `index` which file is which"
        if source.index is None
        else "Correct the index, or put the files there",
    )


def _twins(
    directory: Path, wanted: Iterable[str], unused: Iterable[str], key: str, *, suite: bool
) -> Iterator[BadInput]:
    """Videos with the names of wanted ones but for case or Unicode form: either may be the one that is meant."""
    folded = {_folded(name): name for name in wanted}
    twins = {name: folded[_folded(name)] for name in unused if _folded(name) in folded}
    if twins and suite:
        # The suite itself has two prompts that differ in case alone.
        known = {prompt.text for prompt in load_prompts(Prompts(suite="vbench"))}
        twins = {name: other for name, other in twins.items() if name.rpartition("-")[0] not in known}
    if twins:
        pairs = [f"{name!r} and {other!r}" for name, other in twins.items()]
        yield BadInput(
            f"{len(pairs):,} names are there twice but for case or Unicode form:"
            f" {', '.join(pairs[:_SHOWN])}{', …' if len(pairs) > _SHOWN else ''}",
            file=directory,
            key=key,
            remedy="Remove those that aren't meant, or say in an `index` which file is which",
        )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _core(name: str) -> str:
    """A name without what people and programs get wrong in it: case, Unicode form, spaces, endings."""
    return _ENDINGS.sub("", " ".join(_folded(name).split()))


def _sizes(directory: Path, found: dict[str, os.DirEntry[str]], key: str) -> tuple[dict[str, int], list[BadInput]]:
    """Bytes of each usable video, and what is wrong with the others that can be told without reading them."""
    sizes: dict[str, int] = {}
    problems = []
    for name, entry in found.items():
        try:
            status = entry.stat()
        except OSError as error:
            problem = f"this can't be looked at ({error.strerror}): it may be a link whose target has gone"
        else:
            problem = _problem(directory / name, status)
            sizes[name] = status.st_size
        if problem:
            problems.append((name, problem))
            sizes.pop(name, None)
    if not problems:
        return sizes, []
    (first, problem), *others = problems
    more = f"; {len(others):,} others can't be used either: {_some([name for name, _ in others])}" if others else ""
    return sizes, [
        BadInput(f"{problem}{more}", file=directory / first, key=key, remedy="Put a whole, readable video there")
    ]


def _problem(file: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "this is no file"
    if status.st_size == 0:
        return "this video is empty: it has no bytes"
    # Asked only where the mode leaves a doubt: on a network filesystem each question costs.
    if not status.st_mode & stat.S_IROTH and not os.access(file, os.R_OK, effective_ids=True):
        return "this video may not be read by you"
    return ""


def _digests(
    directory: Path, files: dict[_About, str], sums: Path, key: str
) -> tuple[dict[_About, str], list[FleetcraftError]]:
    """What the list of digests has of the files, and what is wrong with it."""
    where = shlex.quote(_SUMS if sums == directory / _SUMS else str(sums.absolute()))
    command = f"(cd {shlex.quote(str(directory))} && find . -iname '*.mp4' | sort | xargs -d '\\n' sha256sum > {where})"
    if not sums.is_file():
        problem = "the list of these videos' SHA-256 digests is missing: no number could be traced to them"
        return {}, [BadInput(problem, file=sums, key=key, remedy=f"Make it once: {command}")]
    try:
        listed = parse_sums(sums)
    except FleetcraftError as error:
        return {}, [error.about(key)]
    faults: list[FleetcraftError] = []
    unlisted = [name for name in files.values() if name not in listed]
    if unlisted:
        faults.append(
            BadInput(
                f"{len(unlisted):,} videos are not in the list of digests: {_some(unlisted)}",
                file=sums,
                key=key,
                remedy=f"Make it again: {command}",
            )
        )
    digests = {about: listed[name] for about, name in files.items() if name in listed}
    owners: dict[str, str] = {}
    copies = [
        f"{owner!r} and {files[about]!r}"
        for about, digest in digests.items()
        if (owner := owners.setdefault(digest, files[about])) != files[about]
    ]
    if copies:
        some = ", ".join(copies[:_SHOWN]) + (", …" if len(copies) > _SHOWN else "")
        faults.append(
            BadInput(
                f"two videos have the same bytes: {some}",
                file=sums,
                key=key,
                remedy="Put the right video in the place of each copy, and make the list again",
            )
        )
    return digests, faults


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
