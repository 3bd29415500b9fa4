"""The failure of a stage as those see it who started it: its class, what happened, what to do.

Whoever starts a program can name a file in `FLEETCRAFT_FAILURE_FILE`. A program that fails and knows why writes there
`{"class": …, "problem": …, "remedy": …}`. It is what a worker learns of an attempt beside its exit code.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.ground.errors import (
    BadEnvironment,
    CorruptWeights,
    DeviceMemory,
    FleetcraftError,
    HostMemory,
    MissingWeights,
    NoSpace,
    ended,
)
from fleetcraft.ground.files import is_full
from fleetcraft.ground.repository import SCRIPTS

FAILURE_FILE = "FLEETCRAFT_FAILURE_FILE"
"""The variable that names the file."""

BUG = FleetcraftError.failure_class
"""The class of everything that nobody has thought of."""

REMEDIES = {
    DeviceMemory.failure_class: "Let one step need less (a smaller batch; decoding in chunks or tiles; fewer frames or "
    "pixels), or give the job a device with more memory (`gpu_mem_mb`)",
    HostMemory.failure_class: "Give the job more memory, which leaves room for fewer beside it (`--set-resources "
    "RULE:mem_mb=…`), or let it need less (a smaller batch; decoding in chunks; smaller shards)",
    NoSpace.failure_class: "Free space there or point `paths` elsewhere, then start again: finished work is kept",
    MissingWeights.failure_class: "Mirror the model again and verify its digests",
    CorruptWeights.failure_class: "Mirror the model again and verify its digests",
    BadEnvironment.failure_class: "Run `make envs` to build the tool chain as declared, and look at the node that it "
    "ran on",
    BUG: "The traceback is in the log; `fleetcraft stage` runs the job again by hand, from the description beside that",
}
"""What is to be done, where nothing closer to the failure knows better."""

_WORDS = (
    (NoSpace.failure_class, r"No space left on device|Disk quota exceeded"),
    (
        DeviceMemory.failure_class,
        r"(?:CUDA|HIP)(?: error:)? out of memory|CU[A-Z]+_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"
        r"|\bOutOfMemoryError\b",
    ),
    (
        HostMemory.failure_class,
        r"Cannot allocate memory|can't allocate memory|std::bad_alloc|\bMemoryError\b"
        r"|slurmstepd: error: Detected \d+ oom[-_ ]kill event",
    ),
    (CorruptWeights.failure_class, r"PytorchStreamReader failed|Error while deserializing header"),
    (MissingWeights.failure_class, r"does not appear to have (?:a file named|files? named)|Error no file named"),
    (
        BadEnvironment.failure_class,
        r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|CUDA driver version is insufficient"
        r"|no kernel image is available for execution",
    ),
)
"""How libraries put it. CUDA's own errors, and all that a log tells, are known by their words alone."""

_PATTERNS = tuple((name, re.compile(words)) for name, words in _WORDS)
_LONGEST = 2000
_LONGEST_QUOTE = 400


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed.

    Parameters
    ----------
    failure_class : what kind of failure it is.
    problem : what happened and where; without a full stop, as `remedy` is.
    """

    failure_class: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{ended(self.problem)} {ended(self.remedy)}"

    def as_json(self) -> dict[str, str]:
        """As it stands in files and results."""
        return {"class": self.failure_class, "problem": self.problem, "remedy": self.remedy}

    def leave(self) -> None:
        """Write it where whoever started this process looks for it, if they do."""
        path = os.environ.get(FAILURE_FILE)
        if path:
            try:
                Path(path).write_text(json.dumps(self.as_json()), encoding="utf-8")
            except OSError as error:
                print(f"this could not be told to who started the job: {error}", file=sys.stderr)

    @staticmethod
    def read(path: Path) -> Failure | None:
        """What was left there; None where there is nothing, or nothing that can be understood."""
        try:
            value = json.loads(path.read_bytes())
            parts = [value[key] for key in ("class", "problem", "remedy")]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        if not all(isinstance(part, str) for part in parts):
            return None
        return Failure(*(part[:_LONGEST] for part in parts))


def failure_of(error: BaseException) -> Failure:
    """What an exception says, if need be by what it came from, or came upon."""
    for link in _chain(error):
        if isinstance(link, FleetcraftError):
            return Failure(link.failure_class, link.account[:_LONGEST], link.remedy[:_LONGEST])
        failure_class = _class_of(link)
        if failure_class is not None:
            return Failure(failure_class, _quote(link), REMEDIES[failure_class])
    return Failure(BUG, _quote(error), REMEDIES[BUG])


def class_of_words(text: str) -> str | None:
    """The class that the words of an error belong to, by the last of them; None where they say nothing."""
    found = [(match.start(), name) for name, pattern in _PATTERNS for match in pattern.finditer(text)]
    return max(found)[1] if found else None


def _class_of(error: BaseException) -> str | None:
    # What was never imported can't have raised anything, and torch takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return DeviceMemory.failure_class
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return HostMemory.failure_class
    if is_full(error):
        return NoSpace.failure_class
    if isinstance(error, ImportError) and not (error.name or "").startswith("fleetcraft"):
        return BadEnvironment.failure_class
    if type(error).__name__ == "SafetensorError" or isinstance(error, pickle.UnpicklingError):
        return CorruptWeights.failure_class
    return class_of_words(str(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _quote(error: BaseException) -> str:
    """The last line of a traceback, and the place in this library that is nearest to it."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    text = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(SCRIPTS):
            return f"{text} ({Path(frame.filename).relative_to(SCRIPTS)}, line {frame.lineno})"
    return text
