"""Making a task's outputs durable before its result can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleetcraft.ground.files import sync


def sync_outputs(outputs: Iterable[str], directory: str) -> str | None:
    """Sync files, or directories with all that is in them; what is missing, or None.

    Parameters
    ----------
    directory : what relative paths are relative to.
    """
    parents = set()
    for output in outputs:
        path = Path(directory) / output
        try:
            for inner in [*path.rglob("*"), path] if path.is_dir() else [path]:
                if inner.is_file() or inner.is_dir():
                    sync(inner)
                elif not inner.is_symlink():
                    return f"its output {output} is missing"
        except FileNotFoundError:
            return f"its output {output} is missing"
        parents.add(path.parent)
    for parent in parents:
        sync(parent)
    return None
