"""Restraint on login nodes: how many processes the user has there, and where a spool can't be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fleetcraft.fleet.settings import Site
from fleetcraft.ground.errors import BadEnvironment, BadInput

SHARED_TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "pvfs2", "orangefs", "panfs", "wekafs"}
    | {"daos", "9p", "glusterfs", "virtiofs"}
    | {f"fuse.{name}" for name in ("glusterfs", "ceph", "lustre", "sshfs", "juicefs")}
)


def count_processes(uid: int | None = None, root: Path = Path("/proc")) -> int:
    """Processes of a user (this one's by default) on this machine."""
    uid = os.getuid() if uid is None else uid
    count = 0
    for entry in root.iterdir():
        if entry.name.isdigit():
            try:
                count += entry.stat().st_uid == uid
            except OSError:
                continue
    return count


def check_login_node(site: Site, processes: int | None = None) -> None:
    """Refuse to start anything where the user has too many processes. Inside an allocation nobody counts.

    Raises
    ------
    BadEnvironment : there are too many.
    """
    if "SLURM_JOB_ID" in os.environ:
        return
    count = count_processes() if processes is None else processes
    if count >= site.stop_launching_at:
        raise BadEnvironment(
            f"you have {count} processes on this machine, and nothing is started here from {site.stop_launching_at} on "
            f"(the ceiling is {site.processes})",
            key="site.stop_launching_at",
            remedy="End some of them, or use `fleetcraft launch`, which runs the controller on a compute node",
        )


def check_shared(directory: Path, declared: Iterable[str], mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a spool that the nodes can't see.

    Parameters
    ----------
    declared : directories that the fleet file says are shared.

    Raises
    ------
    BadInput : the directory's file system is one machine's own.
    """
    directory = directory.resolve()
    if any(directory.is_relative_to(Path(path).resolve()) for path in declared):
        return
    kind, mount = _file_system(directory, mounts)
    if kind not in SHARED_TYPES:
        raise BadInput(
            f"the spool lies on a file system of this machine alone ({kind} at {mount}), which other nodes can't see",
            file=directory,
            remedy="Put it on a shared one with --spool-dir; if this is one, name it in the fleet file's site.shared",
        )


def _file_system(directory: Path, mounts: Path) -> tuple[str, str]:
    """Type and mount point of the file system that a directory is, or will be, on."""
    best = ("unknown", "/")
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        mount = fields[4].replace("\\040", " ")
        if directory.is_relative_to(mount) and len(mount) >= len(best[1]):
            best = (after.split()[0], mount)
    return best
