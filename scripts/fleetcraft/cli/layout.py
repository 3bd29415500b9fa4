"""Plain text that fits a terminal and loses nothing: what is too long for its place gets a line of its own."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

_PIPE_COLUMNS = 120
"""Columns where there is no terminal to ask."""

_NO_BREAK = "\N{NO-BREAK SPACE}"


def columns() -> int:
    """Of the terminal."""
    return shutil.get_terminal_size((_PIPE_COLUMNS, 24)).columns


def wrapped(text: str, indent: str = "", following: str | None = None) -> list[str]:
    """A paragraph; names, paths and `commands` in it stay whole. following : the indent of all lines but the first."""
    lines = textwrap.wrap(
        re.sub("`[^`]*`", lambda command: command[0].replace(" ", _NO_BREAK), text),
        min(columns(), _PIPE_COLUMNS),
        initial_indent=indent,
        subsequent_indent=indent if following is None else following,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def aligned(rows: Sequence[Sequence[str]], styles: str, indent: str = "  ") -> list[str]:
    """Rows of a name and cells, one string each, with a line break after a name that leaves no room for the cells.

    styles : a letter a cell: `>` to the right, `<` to the left, `[` to the left and close to the cell before it.
    """
    cells = [max((len(cell) for cell in column), default=0) for column in list(zip(*rows, strict=True))[1:]]
    gaps = [" " * (0 if not size else 1 if style == "[" else 2) for style, size in zip(styles, cells, strict=True)]
    room = columns() - len(indent) - sum(cells) - sum(map(len, gaps))
    width = max((len(name) for name, *_ in rows if len(name) <= room), default=0)
    lines = []
    for name, *texts in rows:
        line = indent + name.ljust(width)
        if len(name) > width:
            line += f"\n{indent}{' ' * width}"
        for text, style, size, gap in zip(texts, styles, cells, gaps, strict=True):
            line += gap + (text.rjust(size) if style == ">" else text.ljust(size))
        lines.append(line.rstrip())
    return lines
