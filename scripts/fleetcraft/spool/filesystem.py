"""The system calls that the spool makes, in one place.

Every call is announced to `before` first. Production does nothing there; the fault tests kill the process there, so
that they visit every point between two system calls, and the benchmark counts there.
"""

# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH116, PTH121, PTH208
# This is the layer of system calls: each one is written out as itself.

from __future__ import annotations

import errno
import os
from pathlib import Path

_GONE = {errno.ENOENT, errno.ESTALE}


def is_absence(error: OSError) -> bool:
    """Whether an error says that a file isn't there: NFS says ESTALE where a local filesystem says ENOENT."""
    return error.errno in _GONE


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no space or quota left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Filesystem:
    """System calls on a shared file system, each announced to `before`."""

    def before(self, call: str, path: Path) -> None:
        """Called before each system call with its name; for tests and counters."""

    def list(self, directory: Path) -> list[str]:
        """Names in a directory; an absent directory is an empty one, and so is a stray file in its place."""
        self.before("list", directory)
        try:
            return os.listdir(directory)
        except NotADirectoryError:
            return []
        except OSError as error:
            if is_absence(error):
                return []
            raise

    def exists(self, path: Path) -> bool:
        """Whether a path is there now, as far as this client's caches know."""
        self.before("stat", path)
        return os.path.lexists(path)

    def links(self, path: Path) -> int:
        """Number of hard links of a file; 0 where it isn't there."""
        self.before("stat", path)
        try:
            return os.stat(path).st_nlink
        except OSError as error:
            if is_absence(error):
                return 0
            raise

    def same_file(self, first: Path, second: Path) -> bool:
        """Whether two names are one file."""
        self.before("stat", first)
        try:
            return os.path.samefile(first, second)
        except OSError as error:
            if is_absence(error):
                return False
            raise

    def rename(self, source: Path, destination: Path) -> None:
        """rename(2)."""
        self.before("rename", source)
        os.rename(source, destination)

    def link(self, source: Path, destination: Path) -> None:
        """link(2): fails with FileExistsError where the destination is there, whatever else runs."""
        self.before("link", destination)
        os.link(source, destination)

    def make_directory(self, path: Path) -> bool:
        """Make one directory and sync its parent; False where it was there."""
        self.before("mkdir", path)
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        self.sync_directory(path.parent)
        return True

    def make_directories(self, path: Path, root: Path) -> None:
        """Make `path` and what is missing between it and `root`, which exists."""
        try:
            self.make_directory(path)
        except FileNotFoundError:
            if path == root:
                raise
            self.make_directories(path.parent, root)
            self.make_directory(path)

    def remove_directory(self, path: Path) -> bool:
        """Remove a directory if it is empty; whether it is gone now."""
        self.before("rmdir", path)
        try:
            os.rmdir(path)
        except OSError as error:
            if is_absence(error):
                return True
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def remove(self, path: Path) -> None:
        """Remove a file that may be gone already."""
        self.before("unlink", path)
        try:
            os.unlink(path)
        except OSError as error:
            if not is_absence(error):
                raise

    def read(self, path: Path) -> bytes:
        """A file's bytes."""
        self.before("open", path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.before("read", path)
            blocks = []
            while block := os.read(descriptor, 1 << 20):
                blocks.append(block)
        finally:
            os.close(descriptor)
        return b"".join(blocks)

    def create(self, path: Path, data: bytes) -> None:
        """Make a new file, durably; FileExistsError where it is there."""
        self._put(path, data, os.O_CREAT | os.O_EXCL, durable=True)

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file that exists, durably; FileNotFoundError where it doesn't."""
        self._put(path, data, os.O_APPEND, durable=True)

    def publish(self, path: Path, temporary: Path, data: bytes, *, durable: bool) -> None:
        """Make or replace a small file in one step through `temporary`; synced if a reboot may not forget it."""
        for last in (False, True):
            self._put(temporary, data, os.O_CREAT | os.O_TRUNC, durable=durable)
            try:
                self.rename(temporary, path)
                if durable:
                    self.sync_directory(path.parent)
            except FileNotFoundError:
                # Carried out and answered so after a retransmission; or somebody tidied the temporary file away.
                if self.exists(path):
                    return
                if last:
                    raise
            else:
                return

    def sync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable; one that was removed meanwhile needs it no more."""
        self.before("fsync", path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if is_absence(error):
                return
            raise
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file(self, path: Path) -> None:
        """Make a file's bytes durable that somebody else wrote."""
        self.before("fsync", path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _put(self, path: Path, data: bytes, flags: int, *, durable: bool) -> None:
        self.before("open", path)
        descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
        try:
            self.before("write", path)
            self.write(descriptor, data)
            if durable:
                self.before("fsync", path)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data`; a signal or a full disk can cut write(2) short."""
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
