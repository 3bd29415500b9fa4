"""A text in lines that are no wider than its place in a picture."""

from __future__ import annotations

import re
from collections.abc import Callable

_PIECE = re.compile(r"[^\s_-]*(?:\s+|[_-]+|$)")
"""As much as stays together: names, which have no spaces, are broken after `_` and `-`."""


def broken(text: str, widest: float, width: Callable[[str], float]) -> str:
    """`text` with line breaks, so that no line is wider than `widest`, in the unit of what `width` says of a line.

    A piece that is wider by itself is broken anywhere; a single letter never is.
    """
    lines = [""]
    for piece in _PIECE.findall(text):
        if width(lines[-1] + piece.rstrip()) <= widest:
            lines[-1] += piece
            continue
        if lines[-1]:
            lines.append("")
        for letter in piece:
            if lines[-1] and not letter.isspace() and width(lines[-1] + letter) > widest:
                lines.append("")
            lines[-1] += letter
    return "\n".join(line.rstrip() for line in lines)
