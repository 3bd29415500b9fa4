"""Artifacts by key.

An artifact is there when its record is: the file is renamed into place first, the record after it. A key names
everything that decided the bytes, so an artifact that is there never needs to be made again, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.ground.files import new_file
from fleetcraft.ground.records import Record, read_records, write_records

_REMEDY = "Run `fleetcraft audit --repair EXPERIMENT`, then start again: only what is gone is made anew"

SUFFIXES = {"latents": ".safetensors", "videos": ".mp4"}
"""Kinds of artifacts with a file of their own, and its suffix. Other kinds are records alone."""


class Store:
    """The store below one scratch root; any number of processes may write to it."""

    def __init__(self, root: Path | str):
        self.root = Path(root)

    def file(self, kind: str, key: str) -> Path:
        """Where the artifact's file is. Two digits of the key name a directory, which keeps directories small."""
        return self.root / kind / key[:2] / f"{key}{SUFFIXES[kind]}"

    def record_file(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / f"{key}.jsonl"

    def keys(self, kind: str) -> set[str]:
        """The keys of all artifacts of a kind that have a record, by listing directories and reading no file."""
        return {record.stem for record in (self.root / kind).glob("??/*.jsonl") if not record.name.startswith(".")}

    def find(self, kind: str, key: str) -> Record | None:
        """The artifact's record, or None where the store lacks the artifact.

        A file of another size than recorded, or a damaged record, counts as lacking: it will be made again. Bytes are
        digested when they are read (`verified`), not here.
        """
        try:
            (record,) = read_records(self.record_file(kind, key))
        except (PurgedScratch, Damaged):
            return None
        if kind in SUFFIXES:
            try:
                size = self.file(kind, key).stat().st_size
            except FileNotFoundError:
                return None
            if size != record["bytes"]:
                return None
        return record

    def verified(self, kind: str, key: str) -> Path:
        """The artifact's file, after its size and digest were found to be the recorded ones.

        Raises
        ------
        PurgedScratch : the artifact or its record has gone.
        Damaged : its bytes are not the recorded ones.
        """
        (record,) = read_records(self.record_file(kind, key), remedy=_REMEDY)
        file = self.file(kind, key)
        if not file.is_file():
            raise PurgedScratch(f"this file of the store has gone ({kind})", file=file, remedy=_REMEDY)
        size = file.stat().st_size
        if size != record["bytes"]:
            raise Damaged(f"this file is truncated: {size:,} of {record['bytes']:,} bytes", file=file, remedy=_REMEDY)
        if sha256_file(file) != record["sha256"]:
            raise Damaged(
                "the bytes of this file are not the recorded ones (SHA-256 differs)", file=file, remedy=_REMEDY
            )
        return file

    def commit(self, kind: str, key: str, record: Record, write: Callable[[Path], None]) -> Record:
        """Let `write` fill a temporary file, put it in place, and record it with its size and digest.

        What `write` raises leaves the store as it was.
        """
        file = self.file(kind, key)
        with new_file(file) as temporary:
            write(temporary)
            record = {
                **record,
                "kind": kind,
                "key": key,
                "bytes": temporary.stat().st_size,
                "sha256": sha256_file(temporary),
            }
        write_records(self.record_file(kind, key), [record])
        return record

    def commit_record(self, kind: str, key: str, record: Record) -> Record:
        """Put an artifact that is a record alone in place."""
        record = {**record, "kind": kind, "key": key}
        write_records(self.record_file(kind, key), [record])
        return record

    def leftovers(self) -> Iterator[Path]:
        """Temporary files and directories that writers left behind which were killed, or are writing right now."""
        for pattern in ("*/??/.*.tmp*", "models/.*.tmp"):
            yield from sorted(self.root.glob(pattern))

    def discard(self, kind: str, key: str) -> None:
        """Take an artifact out: its record first, so that nobody finds it half gone."""
        self.record_file(kind, key).unlink(missing_ok=True)
        if kind in SUFFIXES:
            self.file(kind, key).unlink(missing_ok=True)
