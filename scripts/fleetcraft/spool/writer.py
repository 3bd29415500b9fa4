"""Whoever changes a spool is a writer: a name that is never used again, a journal, and one way to move a task."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetcraft.ground.machine import boot_id, host_name
from fleetcraft.spool.journal import Journal
from fleetcraft.spool.layout import BUCKET_SIZE, WriterName
from fleetcraft.spool.names import BucketName, Request, TaskName
from fleetcraft.spool.parallel import each
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.task import State

_RETURN_BUCKETS = 16
_ROUNDS = 8
_JOURNAL_SYNC_S = 1.0


class Writer:
    """A writer of a spool.

    Use it as a context manager, or `close` it. Moves become durable with `sync`, which pays for each directory once.

    Parameters
    ----------
    title : host or role, for people who read names.
    host, boot : the machine; only tests give another one.
    """

    def __init__(self, spool: Spool, title: str, *, host: str | None = None, boot: str | None = None):
        self.spool = spool
        self.host = host or host_name()
        self.boot = boot or boot_id()
        title = re.sub(r"[^A-Za-z0-9_.]", "_", title)[:80] or "writer"
        self.identity = WriterName(self._crew(), title, uuid.uuid4().hex[:12])
        self.name = str(self.identity)
        self.journal = Journal(spool.layout, self.identity, self.host, self.boot, spool.filesystem, spool.clock)
        self._unsynced: set[Path] = set()
        self._journal_synced_s = spool.clock.monotonic()
        self._finished: dict[State, int] = {}

    def move(self, source: Path, destination: Path) -> bool:
        """The one rename of a transition; whether it happened.

        "No such file" is not believed at once: a retransmitted request is answered so although the first one was
        carried out. The destination belongs to this attempt and this writer alone, so what lies there is the proof.
        """
        filesystem = self.spool.filesystem
        try:
            filesystem.rename(source, destination)
        except FileNotFoundError:
            if not filesystem.exists(destination):
                return False
        self._unsynced.update((source.parent, destination.parent))
        return True

    def to_pending(self, source: Path, name: TaskName, request: Request, *, bucket: BucketName | None = None) -> bool:
        """Move a task among the waiting ones; whether it was still at `source`.

        Without a `bucket` it goes among those that were given back, which are served first in their priority.
        """
        layout, filesystem = self.spool.layout, self.spool.filesystem
        if bucket is None:
            part = sum(name.id.encode()) % _RETURN_BUCKETS
            bucket = BucketName(name.priority, 0, f"back{part:02d}")
        directory = layout.pending / request.class_name / str(bucket)
        for _ in range(_ROUNDS):
            # Whoever empties a bucket removes it, so it can vanish between being made and being filled.
            if self.move(source, directory / str(name)):
                return True
            if not filesystem.exists(source):
                return False
            filesystem.make_directories(directory, layout.root)
        raise OSError(f"{directory} vanished {_ROUNDS} times while {name} was to be moved there")

    def to_final(self, source: Path, file_name: str, state: State) -> Path | None:
        """Move a task into a final state; its new path, or None where it had been taken away."""
        layout, filesystem = self.spool.layout, self.spool.filesystem
        bucket = self._finished.get(state, 0) // BUCKET_SIZE
        directory = layout.finals_of(state, self.identity) / f"{bucket:06d}"
        if self._finished.get(state, 0) % BUCKET_SIZE == 0:
            filesystem.make_directories(directory, layout.root)
        if not self.move(source, directory / file_name):
            return None
        self._finished[state] = self._finished.get(state, 0) + 1
        return directory / file_name

    def note(self, event: str, **fields: Any) -> None:
        """Write a journal entry."""
        self.journal.write(event, **fields)

    def needs_sync(self, directory: Path) -> None:
        """Remember a directory whose entries changed."""
        self._unsynced.add(directory)

    def sync(self) -> None:
        """Make all moves so far durable: nothing may rely on them before.

        The journal, on which nothing relies, is synced once a second at most, and when the writer closes.
        """
        directories = list(self._unsynced)
        each(self.spool.filesystem.sync_directory, directories)
        self._unsynced.difference_update(directories)
        now_s = self.spool.clock.monotonic()
        if not 0 <= now_s - self._journal_synced_s < _JOURNAL_SYNC_S:
            self.journal.sync()
            self._journal_synced_s = now_s

    def close(self) -> None:
        """Sync, close the journal and remove the staging directory if it is empty."""
        self.sync()
        self.journal.close()
        self.spool.filesystem.remove_directory(self.spool.layout.staging_of(self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _crew(self) -> int:
        """The newest group of journals with room for one more."""
        layout, filesystem = self.spool.layout, self.spool.filesystem
        crews = sorted(int(name) for name in filesystem.list(layout.journals) if name.isdigit())
        if not crews:
            return 0
        crowded = len(filesystem.list(layout.journals / f"{crews[-1]:03d}")) >= BUCKET_SIZE
        return crews[-1] + int(crowded)
