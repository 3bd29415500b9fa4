"""What was verified before, so that it need not be read again: one small file each below the user's cache home.

Never in a checkpoint's own directory, which may be shared and read-only. Any number of processes may read and write:
each entry is a file of its own that is replaced in one step, and one that is damaged is as good as none.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetcraft.ground.digests import canonical_json, key_of
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.files import write_text


def cache_home() -> Path | None:
    """$XDG_CACHE_HOME/fleetcraft, by default ~/.cache/fleetcraft; None for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    return root / "fleetcraft" if root.is_absolute() else None


class Memory:
    """Facts that were found to hold, by the subject that they are about; the last facts of a subject count.

    trouble : why something could not be kept, if so; nothing depends on it but the time of the next verification.
    """

    def __init__(self, root: Path | None, *, again: bool = False):
        """`root` is a directory, or None for a memory that keeps nothing; with `again`, nothing is recalled."""
        self.root, self.again = root, again
        self.trouble: str | None = None if root else "there is no cache home: set XDG_CACHE_HOME"

    def recall(self, subject: str, facts: dict[str, object]) -> bool:
        """Whether exactly these facts were remembered of `subject`."""
        if self.root is None or self.again:
            return False
        try:
            return self._file(self.root, subject).read_text(encoding="utf-8") == _entry(subject, facts)
        except (OSError, ValueError):
            return False

    def remember(self, subject: str, facts: dict[str, object]) -> None:
        """Keep these facts of `subject`, in the place of what was kept of it before."""
        if self.root is None:
            return
        try:
            write_text(self._file(self.root, subject), _entry(subject, facts))
        except (FleetcraftError, OSError) as error:
            self.trouble = str(error)

    @staticmethod
    def _file(root: Path, subject: str) -> Path:
        key = key_of(subject)
        return root / "verified" / key[:2] / f"{key}.json"


def _entry(subject: str, facts: dict[str, object]) -> str:
    return canonical_json({"subject": subject, **facts}) + "\n"
