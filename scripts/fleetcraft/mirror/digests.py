"""Every file of a checkpoint has the SHA-256 that its list says: read once, remembered after."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError
from fleetcraft.mirror.memory import Memory
from fleetcraft.mirror.progress import Progress
from fleetcraft.mirror.reading import readable
from fleetcraft.mirror.sums import not_there

_BLOCK = 2**22
"""Bytes read at once: few calls for a network file system, and little memory for each reader."""


@dataclass
class Digests:
    """What a verification found.

    files, remembered : how many files were verified, and how many of these by memory alone.
    read : bytes that were read, in `seconds`.
    """

    findings: list[FleetcraftError] = field(default_factory=list)
    files: int = 0
    remembered: int = 0
    read: int = 0
    seconds: float = 0.0


def verify_digests(directory: Path, files: dict[str, str], memory: Memory, readers: int) -> Digests:
    """Compare every file that is there with its digest in `files`; several `readers` read as many files at a time.

    A file that was found to be as listed is not read again while its size and time of change stay. One that is not
    is never remembered: a copy that keeps the time of change must be looked at.
    """
    answer, wanted = Digests(), []
    for name, digest in files.items():
        try:
            if not (directory / name).exists():
                raise not_there(directory / name)
            with readable(directory / name):
                file = (directory / name).resolve()
                status = file.stat()
            answer.files += 1
            if memory.recall(str(file), _facts(status, digest)):
                answer.remembered += 1
            else:
                wanted.append((file, status, name, digest))
        except FleetcraftError as finding:
            answer.findings.append(finding)
    # The largest first, so that the last reader doesn't start with it when the others are done.
    wanted.sort(key=lambda item: -item[1].st_size)
    with Progress("verifying", len(wanted), sum(status.st_size for _, status, _, _ in wanted)) as progress:
        stopped = threading.Event()

        def advance(count: int) -> None:
            if stopped.is_set():
                raise CancelledError
            progress.advance(count)

        def look(item: tuple[Path, os.stat_result, str, str]) -> FleetcraftError | None:
            file, status, name, digest = item
            try:
                _verify(file, directory / name, status, digest, advance)
            except FleetcraftError as finding:
                return finding
            except BaseException:
                stopped.set()
                raise
            finally:
                progress.file_done()
            memory.remember(str(file), _facts(status, digest))
            return None

        with ThreadPoolExecutor(max(1, min(readers, len(wanted)))) as pool:
            try:
                found = [finding for finding in pool.map(look, wanted) if finding is not None]
            except BaseException:
                # Or the pool would read everything to its end before an interrupt ends this process.
                stopped.set()
                raise
    answer.findings += sorted(found, key=lambda finding: str(finding.file))
    answer.read, answer.seconds = progress.bytes, progress.seconds
    return answer


def _facts(status: os.stat_result, digest: str) -> dict[str, object]:
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest}


def _verify(file: Path, shown: Path, status: os.stat_result, digest: str, advance: Callable[[int], None]) -> None:
    found = hashlib.sha256()
    with readable(shown), file.open("rb", buffering=0) as stream:
        block, done = bytearray(_BLOCK), 0
        # No further than its size was: a file that is still written could go on for ever.
        while done <= status.st_size and (count := stream.readinto(block)):
            found.update(memoryview(block)[:count])
            advance(count)
            done += count
        after = os.fstat(stream.fileno())
    if (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise BadInput(
            "this file was changed while it was verified", file=shown, remedy="Wait until it is copied, then again"
        )
    if found.hexdigest() != digest:
        raise CorruptWeights(
            f"the SHA-256 of this file is not the listed one: {found.hexdigest()}, listed {digest}",
            file=shown,
            remedy="Copy the file again; if it is the right one, make the list again",
        )
