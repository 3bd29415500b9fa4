"""What all figures of a campaign share: a colour an arm, texts that fit their place, and whole files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from fleetcraft.ground.files import new_file
from fleetcraft.ground.lines import broken

_STRONG_AND_LIGHT = [to_hex(colour) for colour in matplotlib.colormaps["tab20"].colors]  # type: ignore[attr-defined]
_COLOURS = [*_STRONG_AND_LIGHT[::2], *_STRONG_AND_LIGHT[1::2]]
"""Twenty that can be told apart, the ten strong ones first."""


def colours_of(arms: Sequence[str]) -> dict[str, str]:
    """Arm → its colour, in all figures of the campaign that has these arms; the 21st has the first one's again."""
    return {arm: _COLOURS[place % len(_COLOURS)] for place, arm in enumerate(arms)}


def fitted(text: str, inches: float, points: float = 10) -> str:
    """`text` in lines of at most so many inches, in letters of so many points."""
    font = FontProperties(size=points)

    def width(line: str) -> float:
        return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0]) / 72

    return broken(text, inches, width)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, and let go of it."""
    with new_file(path) as temporary:
        # Without the version of matplotlib in it, the same scores give the same bytes.
        figure.savefig(temporary, dpi=160, metadata={"Software": None})
    plt.close(figure)
