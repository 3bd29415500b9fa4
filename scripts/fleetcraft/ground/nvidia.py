"""Questions to nvidia-smi. Who asks decides what no answer means."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_PATIENCE_S = 60


def ask(about: str, fields: Sequence[str]) -> str | None:
    """What `--query-<about>` says: a line a thing, its `fields` with commas between; None without an answer.

    There is none where nvidia-smi isn't installed, may not be run, finds no driver, or doesn't end.
    """
    command = ("nvidia-smi", f"--query-{about}={','.join(fields)}", "--format=csv,noheader,nounits")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def rows(about: str, fields: Sequence[str]) -> list[dict[str, str]] | None:
    """The same as mappings of `fields`; lines that don't have all of them are passed over."""
    text = ask(about, fields)
    if text is None:
        return None
    found = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in found if len(row) == len(fields)]
