"""A contact sheet: frames of an arm's videos, one row a prompt, to be laid beside another arm's."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fleetcraft.ground.files import new_file

_TILE_WIDTH = 200
_CAPTION_WIDTH = 240
_GAP = 6
_TITLE_HEIGHT = 34


def contact_sheet(path: Path, title: str, rows: Sequence[tuple[str, Path]], columns: int = 5) -> None:
    """Draw `columns` evenly spaced frames of each (caption, video); memory holds one frame and the tiles."""
    rows_of_tiles = [(caption, _tiles(video, columns)) for caption, video in rows]
    height = max(tile.height for _, tiles in rows_of_tiles for tile in tiles)
    font, heading = ImageFont.load_default(13), ImageFont.load_default(18)
    widest = max(len(tiles) for _, tiles in rows_of_tiles)
    sheet = Image.new(
        "RGB",
        (_CAPTION_WIDTH + widest * (_TILE_WIDTH + _GAP) + _GAP, _TITLE_HEIGHT + len(rows) * (height + _GAP) + _GAP),
        "white",
    )
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, _GAP), title, fill="black", font=heading)
    for row, (caption, tiles) in enumerate(rows_of_tiles):
        top = _TITLE_HEIGHT + row * (height + _GAP)
        lines = textwrap.wrap(caption, 34)[: max(1, height // 18)]
        draw.multiline_text((_GAP, top), "\n".join(lines), fill="black", font=font)
        for column, tile in enumerate(tiles):
            sheet.paste(tile, (_CAPTION_WIDTH + column * (_TILE_WIDTH + _GAP), top))
    with new_file(path) as temporary:
        sheet.save(temporary)


def _tiles(video: Path, count: int) -> list[Image.Image]:
    total, _ = imageio_ffmpeg.count_frames_and_secs(str(video))
    wanted = {round(position) for position in np.linspace(0, total - 1, min(count, total))}
    reader = imageio_ffmpeg.read_frames(str(video))
    width, height = next(reader)["size"]
    size = (_TILE_WIDTH, round(height * _TILE_WIDTH / width))
    return [
        Image.frombytes("RGB", (width, height), data).resize(size, Image.Resampling.LANCZOS)
        for index, data in enumerate(reader)
        if index in wanted
    ]
