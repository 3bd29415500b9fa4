"""Sealed JSON lines: a file of records that tells whether it is whole.

A record is one JSON object a line. The last line is the seal: how many records there are and the SHA-256 of their
bytes. A file that was cut, edited or mixed up is told from a whole one without knowing what it should hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
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


def read_records(path: Path, remedy: str = "Delete the file and start again: it is made anew") -> list[Record]:
    """The records of a sealed file.

    Raises
    ------
    PurgedScratch : the file isn't there.
    Damaged : it is truncated, or its bytes aren't the ones that were sealed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise PurgedScratch("this file of records has gone", file=path, remedy=remedy) from error
    body_end = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        seal = json.loads(data[body_end:])["seal"]
        if not data.endswith(b"\n"):
            raise ValueError("no newline at the end")
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("this file of records is truncated: its seal is missing", file=path, remedy=remedy) from error
    body = data[:body_end]
    if hashlib.sha256(body).hexdigest() != seal["sha256"]:
        raise Damaged("the records in this file aren't the ones that were sealed", file=path, remedy=remedy)
    return [json.loads(line) for line in body.splitlines()]
