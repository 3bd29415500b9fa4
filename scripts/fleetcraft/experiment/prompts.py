"""The prompts of an experiment: from a suite that ships with the repository, or from a text file."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.experiment.models import Prompts
from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.ground.repository import RESOURCES


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the dimensions of its suite that it was written for (none for a prompt from a file)."""

    text: str
    dimensions: frozenset[str] = frozenset()


def load_prompts(chosen: Prompts) -> tuple[Prompt, ...]:
    """The prompts in their order, each text once."""
    prompts = _from_suite(chosen) if chosen.suite else _from_file(Path(chosen.file or ""))
    return prompts[: chosen.limit]


def _from_suite(chosen: Prompts) -> tuple[Prompt, ...]:
    """A suite may name a text twice, for different dimensions: such entries are one prompt."""
    entries = json.loads((RESOURCES / "prompts" / f"{chosen.suite}.json").read_text(encoding="utf-8"))["prompts"]
    known = {dimension for entry in entries for dimension in entry["dimensions"]}
    for dimension in chosen.dimensions or ():
        if dimension not in known:
            raise BadInput(
                f"the suite {chosen.suite!r} has no prompts for this dimension",
                key="prompts.dimensions",
                value=dimension,
                remedy=nearest(dimension, known),
            )
    wanted = set(chosen.dimensions or known)
    merged: dict[str, set[str]] = {}
    for entry in entries:
        if wanted & set(entry["dimensions"]):
            merged.setdefault(entry["prompt"], set()).update(entry["dimensions"])
    return tuple(Prompt(text, frozenset(dimensions)) for text, dimensions in merged.items())


def _from_file(file: Path) -> tuple[Prompt, ...]:
    try:
        # Some editors begin a file with a byte-order mark, which is no part of its first prompt.
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BadInput(
            "there is no such file of prompts", file=file, key="prompts.file", remedy="Correct the path"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput("this file of prompts is not UTF-8", file=file, remedy="Save it as UTF-8") from error
    except OSError as error:
        raise BadInput(
            f"this file of prompts can't be read: {error.strerror}",
            file=file,
            key="prompts.file",
            remedy="Make it readable for you",
        ) from error
    seen: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        # Some filesystems keep names apart by neither case nor Unicode form.
        folded = unicodedata.normalize("NFC", text).lower()
        if folded in seen:
            earlier, spelling = seen[folded]
            alike = "is the same as" if spelling == text else "differs only in case or Unicode form from"
            raise BadInput(
                f"this prompt {alike} the one in line {earlier}: videos are named by prompt, the two would be mixed up",
                file=f"{file}:{number}",
                value=text,
                remedy="Remove or reword one of the two",
            )
        seen[folded] = (number, text)
    if not seen:
        raise BadInput(
            "this file has no prompts", file=file, key="prompts.file", remedy="Write one prompt a line into it"
        )
    return tuple(Prompt(text) for _, text in seen.values())
