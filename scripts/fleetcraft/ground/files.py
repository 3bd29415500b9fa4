"""Files that are whole or absent: written under a temporary name, synced, and renamed."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetcraft.ground.errors import BadInput, NoSpace

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


@contextmanager
def explained_os_errors(path: Path) -> Iterator[None]:
    """Turn "no space" and "not allowed" of the operating system into errors that say what to do."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise NoSpace(
                f"no space or quota is left to write this ({error})",
                file=path,
                remedy="Free space there or point `paths` elsewhere, then start again: finished work is kept",
            ) from error
        if getattr(error, "errno", None) in _REFUSED:
            raise BadInput(
                f"this can't be written ({error})",
                file=path,
                remedy="Make the directory writable for you or point `paths` elsewhere",
            ) from error
        raise


def is_full(error: BaseException) -> bool:
    """Whether a filesystem took no more.

    Libraries written in Rust raise errors of their own, in which only the text is the operating system's.
    """
    return getattr(error, "errno", None) in _FULL or "No space left on device" in str(error)


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
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


@contextmanager
def new_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary directory beside `path`; when the work is done it becomes `path`, else it is removed.

    Where `path` is there already when the work ends, that one stays (content-addressed directories are all alike),
    or, with `replace`, makes way and is removed only after the new one is in place.
    """
    unique = uuid.uuid4().hex[:12]
    temporary, old = path.with_name(f".{path.name}.{unique}.tmp"), path.with_name(f".{path.name}.{unique}.old")
    with explained_os_errors(path):
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for entry in temporary.rglob("*"):
                if not entry.is_symlink():
                    sync(entry)
            if replace and path.is_dir():
                path.rename(old)
            try:
                temporary.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if path.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            elif old.is_dir():
                old.rename(path)
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
