"""Which source a campaign ran from."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from fleetcraft import __version__
from fleetcraft.ground.digests import sha256_file, sha256_text


def source_revision(root: Path, checkout: Path | None = None) -> dict[str, Any]:
    """Version, git revision and what differs from it; without git, the digest of every source file all the same.

    Parameters
    ----------
    root : the sources that run.
    checkout : where they were copied from at the start of the campaign, or the same. Its revision is theirs as far as
        it has not been edited since, which `changed_since_start` tells.
    """
    checkout = checkout or root
    files = {
        str(file.relative_to(root)): sha256_file(file)
        for folder in ("scripts", "rules", "resources", "envs")
        for file in sorted((root / folder).rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file)
    }
    files["Snakefile"] = sha256_file(root / "Snakefile")
    revision = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain")
    edited = [name for name, digest in files.items() if _digest(checkout / name) != digest]
    return {
        "version": __version__,
        "revision": revision,
        "uncommitted_changes": None if changed is None else changed.splitlines(),
        "changed_since_start": edited,
        "digest": sha256_text("".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))),
        "files": files,
    }


def _digest(file: Path) -> str | None:
    return sha256_file(file) if file.is_file() else None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
