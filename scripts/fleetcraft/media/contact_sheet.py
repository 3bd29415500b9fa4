"""Contact sheets: rows of frames, to be laid beside one another."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fleetcraft.ground.files import new_file
from fleetcraft.ground.lines import broken

_TILE_WIDTH = 200
_CAPTION_WIDTH = 240
_GAP = 6
_LINE_HEIGHT = 18
_TITLE_LINE_HEIGHT = 24
_FRAME = 4


@dataclass(frozen=True)
class Tile:
    """A frame of a video, with lines below it where there is something to say, and a frame where it stands out."""

    picture: Image.Image
    label: str = ""
    framed: bool = False


def contact_sheet(path: Path, title: str, rows: Sequence[tuple[str, Path]], columns: int = 5) -> None:
    """Draw `columns` evenly spaced frames of each (caption, video); memory holds one frame and the tiles."""
    draw_sheet(path, title, [(caption, [Tile(one) for one in _frames(video, columns)]) for caption, video in rows])


def middle_frame(video: Path) -> Image.Image:
    """The frame in the middle of a video, as small as a tile."""
    (frame,) = _frames(video, 1)
    return frame


def draw_sheet(path: Path, title: str, rows: Sequence[tuple[str, Sequence[Tile]]]) -> None:
    """Draw rows of tiles, each after its caption."""
    height = max(tile.picture.height for _, tiles in rows for tile in tiles)
    font, heading = ImageFont.load_default(13), ImageFont.load_default(18)
    labels = [[broken(tile.label, _TILE_WIDTH, font.getlength) for tile in tiles] for _, tiles in rows]
    lines = max((len(label.splitlines()) for row in labels for label in row), default=0)
    pitch = height + _GAP + lines * _LINE_HEIGHT
    width = _CAPTION_WIDTH + max(len(tiles) for _, tiles in rows) * (_TILE_WIDTH + _GAP) + _GAP
    title = broken(title, width - 2 * _GAP, heading.getlength)
    below_title = _GAP + len(title.splitlines()) * _TITLE_LINE_HEIGHT + _GAP
    sheet = Image.new("RGB", (width, below_title + len(rows) * pitch + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    draw.multiline_text((_GAP, _GAP), title, fill="black", font=heading)
    for row, (caption, tiles) in enumerate(rows):
        top = below_title + row * pitch
        caption_lines = textwrap.wrap(caption, 34)[: max(1, height // 18)]
        draw.multiline_text((_GAP, top), "\n".join(caption_lines), fill="black", font=font)
        for column, tile in enumerate(tiles):
            left = _CAPTION_WIDTH + column * (_TILE_WIDTH + _GAP)
            sheet.paste(tile.picture, (left, top))
            draw.multiline_text((left, top + height + 1), labels[row][column], fill="black", font=font)
            if tile.framed:
                corners = (left, top, left + _TILE_WIDTH - 1, top + tile.picture.height - 1)
                draw.rectangle(corners, outline="deepskyblue", width=_FRAME)
    with new_file(path) as temporary:
        sheet.save(temporary)


def _frames(video: Path, count: int) -> list[Image.Image]:
    """So many frames, evenly spaced; of one, the middle."""
    total, _ = imageio_ffmpeg.count_frames_and_secs(str(video))
    places = np.linspace(0, total - 1, min(count, total)) if count > 1 else [(total - 1) / 2]
    wanted = {round(position) for position in places}
    reader = imageio_ffmpeg.read_frames(str(video))
    width, height = next(reader)["size"]
    size = (_TILE_WIDTH, round(height * _TILE_WIDTH / width))
    return [
        Image.frombytes("RGB", (width, height), data).resize(size, Image.Resampling.LANCZOS)
        for index, data in enumerate(reader)
        if index in wanted
    ]
