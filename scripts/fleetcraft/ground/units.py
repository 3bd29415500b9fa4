"""Units: of numbers for people, and of numbers in memory."""

from __future__ import annotations

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""What one number of a type takes."""


def counted(count: int, noun: str) -> str:
    """A number of things for people: 1 arm, 2 arms."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bytes_text(count: float) -> str:
    """A number of bytes for people: 1.4 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
