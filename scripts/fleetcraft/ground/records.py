"""Sealed JSON lines: a file of records that tells whether it is whole.

A record is one JSON object a line. The last line is the seal: how many records there are and the SHA-256 of their
bytes. A file that was cut, edited or mixed up is told from a whole one without knowing what it should hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.ground.files import new_file

Record = dict[str, Any]


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write `records` and their seal to `path`, whole or not at all; holds one record in memory at a time."""
    digest, count = hashlib.sha256(), 0
    with new_file(path) as temporary, temporary.open("wb") as file:
        for record in records:
            line = (canonical_json(record) + "\n").encode()
            digest.update(line)
            file.write(line)
            count += 1
        file.write((canonical_json({"seal": {"records": count, "sha256": digest.hexdigest()}}) + "\n").encode())


_REMEDY = "Delete the file and start again: it is made anew"


def read_records(path: Path, remedy: str = _REMEDY) -> list[Record]:
    """The records of a sealed file; see `iterate_records`."""
    return list(iterate_records(path, remedy))


def iterate_records(path: Path, remedy: str = _REMEDY) -> Iterator[Record]:
    """The records of a sealed file one by one, after the whole file was found to be as it was sealed.

    Holds one record in memory at a time.

    Raises
    ------
    PurgedScratch : the file isn't there.
    Damaged : it is truncated, or its bytes aren't the ones that were sealed.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise PurgedScratch("this file of records has gone", file=path, remedy=remedy) from error
    with file:
        digest, count, last = hashlib.sha256(), -1, b""
        for line in file:
            digest.update(last)
            count, last = count + 1, line
        try:
            seal = json.loads(last)["seal"]
            sealed = (seal["records"], seal["sha256"])
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged("this file of records is truncated: its seal is missing", file=path, remedy=remedy) from error
        if not last.endswith(b"\n"):
            raise Damaged("this file of records is truncated in its seal", file=path, remedy=remedy)
        if sealed != (count, digest.hexdigest()):
            raise Damaged("the records in this file aren't the ones that were sealed", file=path, remedy=remedy)
        file.seek(0)
        for _ in range(count):
            yield json.loads(file.readline())
