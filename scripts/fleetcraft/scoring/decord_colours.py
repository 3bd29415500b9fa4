"""From the planes of a decoded picture to red, green and blue, bit for bit as decord 0.6.0 has them on x86-64.

decord scales and converts with the libswscale of ffmpeg 4.1, told to be bilinear. That one has several ways from YUV to
RGB, which round differently, and chooses by size and format: pictures of an even height that keep their size go a fast
way of x86, others through its filters. Other versions and processors choose and round otherwise. So the arithmetic is
written down here, in integers that no processor rounds its own way. What the claim rests on is measurement: the tests
compare with decord itself.

`C` in shapes is red, green and blue; all of it is 8 bits a channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Plane = NDArray[np.uint8]
    Lines = NDArray[np.int32]

_SUBSAMPLED = {"yuv420p": (1, 1), "yuv422p": (1, 0), "yuv444p": (0, 0)}
"""Format → the binary logarithms of how many pixels, horizontally and vertically, share a sample of colour."""

FORMATS = (*_SUBSAMPLED, *(name.replace("yuv", "yuvj") for name in _SUBSAMPLED), "gbrp")
"""The pixel formats that can be converted, as ffmpeg names them; `yuvj` is full range."""

_BT601 = (104597, 132201, 25675, 53279)
_COEFFICIENTS = {
    1: (117489, 138438, 13975, 34925),
    4: (104448, 132798, 24759, 53109),
    7: (117579, 136230, 16907, 35559),
    9: (110013, 140363, 12277, 42626),
    10: (110013, 140363, 12277, 42626),
}
"""Matrix, by its number in ISO/IEC 23091-2 → how much of V is in red, of U in blue, and of U and V is missing in green,
for limited range and times 2¹⁶: BT.709, FCC, SMPTE 240M, BT.2020. All others count as BT.601."""


@dataclass(frozen=True)
class _Matrix:
    """How Y, U and V become colours. All but `full` are times 2¹⁶."""

    full: bool
    y: int
    v_red: int
    u_blue: int
    u_green: int
    v_green: int

    @property
    def black(self) -> int:
        return 0 if self.full else 16


@cache
def _matrix(number: int, full: bool) -> _Matrix:
    v_red, u_blue, u_green, v_green = _COEFFICIENTS.get(number, _BT601)
    signed = (v_red, u_blue, -u_green, -v_green)
    if full:
        # Towards zero, as C divides.
        return _Matrix(True, 1 << 16, *(int(np.sign(one)) * (abs(one) * 224 // 255) for one in signed))
    return _Matrix(False, (255 << 16) // 219, *signed)


def convert(
    planes: Sequence[Plane], pixel_format: str, matrix: int, full: bool, size: tuple[int, int] | None = None
) -> Plane:
    """The picture as uint8 [height, width, C].

    planes : Y, U and V, or for `gbrp` G, B and R; each [height, width] of its own size.
    pixel_format : one of `FORMATS`.
    matrix : the one that the picture is tagged with, by its number in ISO/IEC 23091-2.
    full : whether the picture is tagged as of full range.
    size : (width, height) to scale it to.
    """
    height, width = planes[0].shape
    wanted = size or (width, height)
    if pixel_format == "gbrp":
        if wanted != (width, height):
            raise ValueError("RGB isn't scaled as decord does it")
        green, blue, red = planes
        return np.stack([red, green, blue], axis=-1)
    colours = _matrix(matrix, full or pixel_format.startswith("yuvj"))
    across, down = _SUBSAMPLED[pixel_format.replace("yuvj", "yuv")]
    if wanted == (width, height) and across and height % 2 == 0:
        return _fast(planes, colours, down)
    return _filtered(planes, colours, across, wanted)


# ---------------------------------------------------------------------- the fast way


def _fast(planes: Sequence[Plane], colours: _Matrix, down: int) -> Plane:
    """Each pixel takes the nearest sample of colour."""
    luma, u, v = planes
    height, width = luma.shape
    steps = np.arange(256, dtype=np.int64)

    def high(table: Any, coefficient: int) -> NDArray[np.int16]:
        """The high words of products of 16 bits, as x86 multiplies."""
        words: NDArray[np.int16] = ((table * _rounded(coefficient << 13)) >> 16).astype(np.int16)
        return words

    light = high(8 * steps - 8 * colours.black, colours.y)[luma]
    centred = 8 * steps - 1024

    def spread(samples: NDArray[np.int16]) -> NDArray[np.int16]:
        return samples.repeat(1 << down, axis=0).repeat(2, axis=1)[:height, :width]

    red = high(centred, colours.v_red)[v]
    blue = high(centred, colours.u_blue)[u]
    green = high(centred, colours.u_green)[u] + high(centred, colours.v_green)[v]
    picture = np.empty((height, width, 3), np.uint8)
    for channel, colour in enumerate((red, green, blue)):
        np.clip(light + spread(colour), 0, 255, out=picture[..., channel], casting="unsafe")
    return picture


def _rounded(value: int) -> int:
    return (value + (1 << 15)) >> 16


# ---------------------------------------------------------------------- the way through filters


def _filtered(planes: Sequence[Plane], colours: _Matrix, across: int, size: tuple[int, int]) -> Plane:
    """Lines are scaled to 15 bits, then columns together with the conversion."""
    width, height = size
    # Colour is kept for each pixel where it came so, or where the last pixel would have no neighbour to share with.
    whole = not across or width % 2 == 1
    colour_width = width if whole else (width + 1) // 2
    luma = _scaled_lines(planes[0], width)
    chroma = [_scaled_lines(plane, colour_width) for plane in planes[1:]]
    light, colour = _filter(planes[0].shape[0], height, 1 << 12), _filter(planes[1].shape[0], height, 1 << 12)
    y, u, v = _scaled_columns(luma, chroma, light, colour, whole)
    return _by_product(y, u, v, colours) if whole else _by_table(y, u, v, colours, width)


def _scaled_lines(plane: Plane, width: int) -> Lines:
    """[lines, width] of 15 bits."""
    taps = _filter(plane.shape[1], width, 1 << 14, multiple=4)
    total = np.zeros((plane.shape[0], width), np.int32)
    for tap in range(taps.size):
        total += plane[:, taps.at[:, tap]] * taps.weights[:, tap]
    return (total >> 7).clip(max=(1 << 15) - 1)


def _scaled_columns(
    luma: Lines, chroma: Sequence[Lines], light: _Taps, colour: _Taps, whole: bool
) -> tuple[Lines, Lines, Lines]:
    """Y, U and V: of 8 bits, or in 2⁻⁹ where colour is `whole`, U and V around 0 then."""
    if light.size == 1 and colour.size <= 2:
        # Colour isn't weighed: one line of it is taken, or two are halved.
        second = colour.weights[:, 1] >= 2048 if colour.size == 2 else np.zeros(len(colour.at), bool)
        y = luma[light.at[:, 0]]
        pairs = [(plane[colour.at[:, 0]], plane[colour.at[:, -1]]) for plane in chroma]
        either = second[:, None]
        if whole:
            u, v = (np.where(either, (a + b - (128 << 8)) * 2, (a - (128 << 7)) * 4) for a, b in pairs)
            return y * 4, u, v
        u, v = (np.where(either, (a + b + 128) >> 8, (a + 64) >> 7) for a, b in pairs)
        return (y + 64) >> 7, u, v
    weighed = [_weighed(luma, light), *(_weighed(plane, colour) for plane in chroma)]
    if light.size == 2 and colour.size == 2:
        y, u, v = weighed
        if whole:
            return y >> 10, (u - (128 << 19)) >> 10, (v - (128 << 19)) >> 10
        return y >> 19, u >> 19, v >> 19
    y, u, v = weighed
    if whole:
        half = 1 << 9
        return (y + half) >> 10, (u + half - (128 << 19)) >> 10, (v + half - (128 << 19)) >> 10
    half = 1 << 18
    return (y + half) >> 19, (u + half) >> 19, (v + half) >> 19


def _weighed(lines: Lines, taps: _Taps) -> Lines:
    total = np.zeros((len(taps.at), lines.shape[1]), np.int32)
    for tap in range(taps.size):
        total += lines[taps.at[:, tap]] * taps.weights[:, tap, None]
    return total


def _by_product(y: Lines, u: Lines, v: Lines, colours: _Matrix) -> Plane:
    """From values in 2⁻⁹."""
    light = (y.astype(np.int64) - (colours.black << 9)) * _rounded(colours.y << 13) + (1 << 21)
    red = light + v * _rounded(colours.v_red << 13)
    green = light + v * _rounded(colours.v_green << 13) + u * _rounded(colours.u_green << 13)
    blue = light + u * _rounded(colours.u_blue << 13)
    return np.stack([np.clip(one >> 22, 0, 255).astype(np.uint8) for one in (red, green, blue)], axis=-1)


def _by_table(y: Lines, u: Lines, v: Lines, colours: _Matrix, width: int) -> Plane:
    """From values of 8 bits; each pair of pixels takes one sample of colour, which moves where light is looked up."""
    # Where Y begins in the table of light. For limited range that isn't quite where black is: white comes out at 253.
    start = 384 if colours.full else 326

    def moved(samples: Lines, share: int) -> Lines:
        """By how many places a sample of colour moves."""
        numerator = (share << 16) + 0x8000
        step = numerator // colours.y if share >= 0 else -(-numerator // colours.y)  # towards zero, as C divides
        return -(step >> 9) + ((np.clip(samples, 0, 255).astype(np.int64) * step) >> 16)

    red, blue = moved(v, colours.v_red), moved(u, colours.u_blue)
    green = moved(u, colours.u_green) + moved(v, colours.v_green)

    def seen(colour: Lines) -> Plane:
        place = start + colour.repeat(2, axis=1)[:, :width] + y
        value = (place * colours.y - ((384 + colours.black) << 16) + 0x8000) >> 16
        return value.clip(0, 255).astype(np.uint8)

    return np.stack([seen(red), seen(green), seen(blue)], axis=-1)


# ---------------------------------------------------------------------- filters


@dataclass(frozen=True)
class _Taps:
    """at : which samples each result is made of [results, taps]. weights : and how much of each."""

    at: NDArray[np.intp]
    weights: NDArray[np.int32]

    @property
    def size(self) -> int:
        return int(self.at.shape[1])


@cache
def _filter(source: int, wanted: int, one: int, multiple: int = 1) -> _Taps:
    """The bilinear filter from `source` samples to `wanted`; weights add up to `one`, about."""
    step = ((source << 16) + (wanted >> 1)) // wanted
    if abs(step - (1 << 16)) < 10:
        first, rows, unit = list(range(wanted)), [[1 << 54] for _ in range(wanted)], 1 << 54
        kept = 1
    else:
        first, rows, unit = _triangles(source, wanted, step)
        kept = _trimmed(first, rows, unit)
    size = -(-kept // multiple) * multiple
    rows = [(row + [0] * size)[:size] for row in rows]
    for number, row in enumerate(rows):
        first[number] = _inside(first[number], row, source)
    weights = np.array([_normalised(row, one) for row in rows], np.int32)
    at = np.minimum(np.array(first)[:, None] + np.arange(size), source - 1)
    return _Taps(at, weights)


def _triangles(source: int, wanted: int, step: int) -> tuple[list[int], list[list[int]], int]:
    """Where each result's samples begin, their weights, and what these add up to, about."""
    unit = 1 << (54 - min(max((source // wanted).bit_length() - 1, 0), 8))
    size = 3 if step <= 1 << 16 else 1 + (2 * source + wanted - 1) // wanted
    size = max(min(size, source - 2), 1)
    first, rows, place = [], [], step - (1 << 16)
    for _ in range(wanted):
        start = place - (size - 2) * (1 << 16)
        begin = start >> 17 if start >= 0 else -(-start >> 17)  # towards zero, as C divides
        row = []
        for tap in range(begin, begin + size):
            distance = abs((tap << 17) - place) << 13
            if step > 1 << 16:
                distance = distance * wanted // source
            row.append(max((1 << 30) - distance, 0) * (unit >> 30))
        first.append(begin)
        rows.append(row)
        place += 2 * step
    return first, rows, unit


def _trimmed(first: list[int], rows: list[list[int]], unit: int) -> int:
    """Moves weights next to nothing out of the left of each row, and says how many all rows need at most."""
    most, negligible = 0, 0.002 * unit
    for number in reversed(range(len(rows))):
        row, cut = rows[number], 0
        for _ in range(len(row)):
            cut += abs(row[0])
            if cut > negligible or (number < len(rows) - 1 and first[number] >= first[number + 1]):
                break
            row.append(0)
            del row[0]
            first[number] += 1
        needed, cut = len(row), 0
        for tap in range(len(row) - 1, 0, -1):
            cut += abs(row[tap])
            if cut > negligible:
                break
            needed -= 1
        most = max(most, needed)
    return most


def _inside(first: int, row: list[int], source: int) -> int:
    """Lays weights of samples beyond the edges on the outermost ones; says where the row begins then."""
    size = len(row)
    if first < 0:
        for tap in range(1, size):
            left = max(tap + first, 0)
            row[left] += row[tap]
            row[tap] = 0 if left != tap else row[tap]
        first = 0
    if first + size > source:
        shift = first + min(size - source, 0)
        beyond = sum(row[tap] for tap in range(size) if first + tap >= source)
        row[:] = [0 if first + tap >= source else row[tap] for tap in range(size)]
        row[:] = [row[tap - shift] if tap >= shift else 0 for tap in range(size)]
        first -= shift
        row[source - 1 - first] += beyond
    return first


def _normalised(row: list[int], one: int) -> list[int]:
    """In parts of `one`; what rounding takes from a weight, the next gets."""
    total = (sum(row) + one // 2) // one or 1
    weights, error = [], 0
    for weight in row:
        value = weight + error
        rounded = (value + (total >> 1)) // total if value >= 0 else -((-value + (total >> 1)) // total)
        weights.append(rounded)
        error = value - rounded * total
    return weights
