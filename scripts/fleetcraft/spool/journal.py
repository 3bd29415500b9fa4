"""The journal: what happened, in one append-only file a writer, merged by readers.

The directories are the truth; the journal is how they came to be. A writer that is killed may leave out its last entry,
or announce a transition that did not happen: readers that prove something say so where it matters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetcraft.ground.clock import Clock
from fleetcraft.ground.digests import canonical_json
from fleetcraft.spool.filesystem import Filesystem, is_full
from fleetcraft.spool.layout import Layout, WriterName

Entry = dict[str, Any]

_LONGEST_BACKLOG = 10_000
"""Entries that are held in memory while a disk is full."""


class Journal:
    """One writer's journal; the file appears with its first entry.

    Each entry has `sequence`, `event`, `monotonic_s` of the writer's machine, which is told by `host` and `boot`, and
    `wall_s` for people.
    """

    def __init__(self, layout: Layout, writer: WriterName, host: str, boot: str, filesystem: Filesystem, clock: Clock):
        self._path = layout.journal(writer)
        self._root = layout.root
        self._writer = str(writer)
        self._host, self._boot = host, boot
        self._filesystem, self._clock = filesystem, clock
        self._descriptor: int | None = None
        self._sequence = 0
        self._waiting: list[bytes] = []
        self._unsynced = False

    def write(self, event: str, **fields: Any) -> None:
        """Append an entry; it is durable after the next `sync`."""
        self._sequence += 1
        entry = {
            "sequence": self._sequence,
            "writer": self._writer,
            "host": self._host,
            "boot": self._boot,
            "monotonic_s": round(self._clock.monotonic(), 6),
            "wall_s": round(self._clock.wall(), 3),
            "event": event,
            **fields,
        }
        self._waiting.append(b"\n" + canonical_json(entry).encode() + b"\n")
        try:
            self._flush()
        except OSError as error:
            # The state of tasks doesn't hang on the journal: it goes on, and `sync` tells of what lasts.
            if not is_full(error) or len(self._waiting) > _LONGEST_BACKLOG:
                raise

    def sync(self) -> None:
        """Make all entries durable."""
        self._flush()
        if self._descriptor is not None and self._unsynced:
            self._filesystem.before("fsync", self._path)
            os.fsync(self._descriptor)
            self._unsynced = False

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _flush(self) -> None:
        while self._waiting:
            descriptor = self._opened()
            self._filesystem.before("write", self._path)
            self._filesystem.write(descriptor, self._waiting[0])
            self._waiting.pop(0)
            self._unsynced = True

    def _opened(self) -> int:
        if self._descriptor is None:
            self._filesystem.make_directories(self._path.parent, self._root)
            self._filesystem.before("open", self._path)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._filesystem.sync_directory(self._path.parent)
        return self._descriptor


def read_journals(root: Path) -> Iterator[Entry]:
    """All entries of all writers, writer by writer, each in its own order; torn lines are skipped."""
    for path in sorted((root / "journal").glob("*/*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                try:
                    entry = json.loads(line) if line.strip() else None
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry


class JournalTail:
    """All entries of all writers as they come: each is read once. Torn lines are skipped."""

    def __init__(self, layout: Layout):
        self._journals = layout.journals
        self._offsets: dict[Path, int] = {}

    def read(self) -> Iterator[Entry]:
        """What was written since the last time, writer by writer."""
        for path in self._journals.glob("*/*.jsonl"):
            known = self._offsets.get(path, 0)
            if path.stat().st_size == known:
                continue
            with path.open("rb") as file:
                file.seek(known)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = known + len(whole)
            for line in whole.splitlines():
                try:
                    entry = json.loads(line) if line else None
                except ValueError:
                    # Its writer was killed in the middle of it; the directories are the truth.
                    continue
                if isinstance(entry, dict):
                    yield entry


def merged_journal(root: Path) -> list[Entry]:
    """All entries by wall clock, for people: clocks of different hosts aren't comparable to the second."""
    return sorted(read_journals(root), key=lambda entry: (entry["wall_s"], entry["writer"], entry["sequence"]))
