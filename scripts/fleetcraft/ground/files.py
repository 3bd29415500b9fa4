"""Files that are whole or absent: written under a temporary name, synced, and renamed."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from fleetcraft.ground.errors import BadInput, NoSpace

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}


@contextmanager
def explained_os_errors(path: Path) -> Iterator[None]:
    """Turn "no space" and "not allowed" of the operating system into errors that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(
                f"no space or quota is left to write this ({error.strerror})",
                file=path,
                remedy="Free space on that filesystem or point `paths` elsewhere, then start again: finished work is kept",
            ) from error
        if error.errno in _REFUSED:
            raise BadInput(
                f"this can't be written ({error.strerror})",
                file=path,
                remedy="Make the directory writable for you or point `paths` elsewhere",
            ) from error
        raise


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; on success it becomes `path`, durably and in one step, else it is removed.

    The temporary name keeps the suffix of `path`, for tools that go by it.
    """
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:12]}.tmp{path.suffix}")
    with explained_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary directory beside `path`; on success it becomes `path` in one step, else it is removed.

    Where `path` is there already when the work ends, that one stays: content-addressed directories are all alike.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    with explained_os_errors(path):
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for file in temporary.rglob("*"):
                sync(file)
            try:
                os.rename(temporary, path)
            except OSError:
                if not path.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Make the bytes of a file, or the entries of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
