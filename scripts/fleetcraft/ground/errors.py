"""The errors that a person has to act on.

Each says what happened, to which file and key, what was given, and what to do, in one paragraph. The class of an
error is also the class of a failed job: it is written to the job's log and decides what is worth a retry.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

_NOTHING = object()


class FleetcraftError(Exception):
    """A failure that is explained to the user instead of shown as a traceback.

    Parameters
    ----------
    problem : what is wrong, one sentence without a full stop.
    file, key, value : where it is and what was found there, as far as they are known.
    remedy : what to do about it, one sentence without a full stop.
    place : where `key` stands, where that isn't `file` but the document that has `file` for the key's value.
    """

    failure_class = "bug"

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        key: str | None = None,
        value: object = _NOTHING,
        remedy: str,
        place: str | None = None,
    ):
        self.problem, self.file, self.key, self.value, self.remedy = problem, file, key, value, remedy
        self.place = place
        found = "" if value is _NOTHING else f" (found {_shorten(value)})"
        heads = [_told(file, key)] if place is None else [_told(place, key), _told(file, None)]
        self.account = ": ".join([*filter(None, heads), f"{problem}{found}"])
        """Where and what, without the remedy."""
        super().__init__(f"{ended(self.account)} {ended(remedy)}")

    @property
    def has_value(self) -> bool:
        """Whether it says what was found; None may be just that."""
        return self.value is not _NOTHING

    def located(self, file: Path | str) -> Self:
        """The same error, found in `file`; for those who know the key but not the file that it was read from."""
        return self._but(file=file)

    def named_in(self, place: str) -> Self:
        """The same error, `place` having the key that names its file; for those who know where that key stands."""
        return self._but(place=place)

    def below(self, key: str) -> Self:
        """The same error, its key being one of those below `key`; for those who know what the key is part of."""
        return self._but(key=f"{key}.{self.key}")

    def about(self, key: str) -> Self:
        """The same error, said of `key`, which named its file; for those who know the file but not the key.

        A key of the file itself becomes part of the place in it.
        """
        return self._but(key=key, file=self.file if self.file is None else _told(self.file, self.key))

    def _but(self, **changes: Any) -> Self:
        return type(self)(self.problem, **{name: getattr(self, name) for name in _PARTS} | changes)


_PARTS = ("file", "key", "value", "remedy", "place")


class BadInput(FleetcraftError):
    """The experiment, or a file that it names, can't be used as it is."""

    failure_class = "bad input"


class BadEnvironment(FleetcraftError):
    """The software or the machine that runs is not the one that was declared."""

    failure_class = "wrong environment"


class MissingWeights(FleetcraftError):
    """A model directory, or a file that a pipeline needs from it, isn't there."""

    failure_class = "missing weights"


class CorruptWeights(FleetcraftError):
    """A file of a model isn't what its header or its digest says."""

    failure_class = "corrupt weights"


class PurgedScratch(FleetcraftError):
    """Something that a manifest promises has gone from scratch."""

    failure_class = "purged scratch"


class Damaged(FleetcraftError):
    """A file is truncated or its bytes don't have the digest that was recorded for them."""

    failure_class = "damaged file"


class BadResult(FleetcraftError):
    """A stage computed something that can't be a result: not finite, black, of the wrong shape or length."""

    failure_class = "bad result"


class NoSpace(FleetcraftError):
    """A filesystem took no more bytes, or no more files."""

    failure_class = "disk full"


class DeviceMemory(FleetcraftError):
    """A GPU had no memory left for what was asked of it."""

    failure_class = "device memory"


class HostMemory(FleetcraftError):
    """The node, or the limit that this process has there, had no memory left."""

    failure_class = "host memory"


def _told(file: Path | str | None, key: str | None) -> str:
    return ", ".join([*([] if file is None else [str(file)]), *([f"key {key!r}"] if key else [])])


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that `name` was probably meant to be; the whole choice where none is near."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Choose from: {', '.join(known)}" if known else "None is defined"


def ended(sentence: str) -> str:
    """With its full stop, unless it is a question."""
    return sentence if sentence.endswith("?") else f"{sentence}."


def _shorten(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
