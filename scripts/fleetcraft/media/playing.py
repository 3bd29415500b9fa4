"""A video's frames as red, green and blue, one after the other, decoded by the video's own tags."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from fleetcraft.ground.errors import BadResult
from fleetcraft.media.ffmpeg import EXACT_SCALING, ffmpeg_command

if TYPE_CHECKING:
    from numpy.typing import NDArray


def play(video: Path, matrix: str | None = None) -> Generator[NDArray[np.uint8], None, None]:
    """Each frame, uint8 [height, width, 3], as stored and not as a player would turn it; memory holds one.

    Colours are decoded by the video's tags, as BT.601 where it has none; `matrix` takes them for another one's, as
    ffmpeg names it (`bt601`, `bt709`), whatever the tags say.

    Raises
    ------
    BadResult : the video can't be decoded to its end.
    """
    taken = f"in_color_matrix={matrix}:" if matrix else ""
    source = ["-noautorotate", "-i", f"file:{video}", "-map", "0:V:0", "-fps_mode", "passthrough"]
    # Each picture says its size.
    pictures = ["-vf", f"scale={taken}{EXACT_SCALING},format=rgb24", "-f", "image2pipe", "-c:v", "ppm", "-"]
    with tempfile.TemporaryFile("w+") as log:
        command = ffmpeg_command("-xerror", *source, *pictures, level="error")
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as process:
            assert process.stdout is not None
            whole = False
            try:
                while (frame := _picture(process.stdout)) is not None:
                    yield frame
                whole = True
            finally:
                if not whole:
                    process.kill()  # whoever reads has seen enough
        if process.returncode != 0:
            log.seek(0)
            said = log.read().strip().splitlines() or [f"exit status {process.returncode}"]
            raise BadResult(
                f"this video can't be played to its end: {said[0]}",
                file=video,
                remedy="Delete the video and run `fleetcraft audit --repair`: it is made or taken in anew",
            )


def sample(video: Path, count: int, of: int) -> NDArray[np.uint8]:
    """`count` frames of a video that has `of`: those in the middles of equal parts; uint8 [count, height, width, 3].

    Raises
    ------
    BadResult : the video can't be played to its end, or has another number of frames.
    """
    wanted = {(2 * part + 1) * of // (2 * count) for part in range(count)}
    kept, seen = [], 0
    for number, frame in enumerate(play(video)):
        seen += 1
        if number in wanted:
            kept.append(frame)
    if seen != of or len(kept) != count:
        raise BadResult(
            f"{count} frames of {of} were wanted, and this video has {seen}",
            file=video,
            remedy="Delete the video and run `fleetcraft audit --repair`: it is made or taken in anew",
        )
    return np.stack(kept)


def _picture(stream: IO[bytes]) -> NDArray[np.uint8] | None:
    """One picture in the format PPM; None where there is no other, or only a part of one."""
    magic, size, most = (stream.readline() for _ in range(3))
    if not most:
        return None
    assert (magic, most) == (b"P6\n", b"255\n"), (magic, most)
    width, height = map(int, size.split())
    data = stream.read(3 * width * height)
    if len(data) != 3 * width * height:
        return None
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)
