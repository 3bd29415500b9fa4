"""Frames to a video with pinned settings, and a look at what came out."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import imageio_ffmpeg
import numpy as np

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadEnvironment, BadResult
from fleetcraft.media.presets import EncoderSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LITTLE_SPACE = 2**20


@cache
def ffmpeg_binary() -> tuple[str, str]:
    """Path and SHA-256 of the ffmpeg that imageio uses here."""
    path = imageio_ffmpeg.get_ffmpeg_exe()
    return path, sha256_file(path)


def check_ffmpeg(expected_sha256: str) -> None:
    """Refuse a binary other than the one whose digest is in the videos' keys."""
    path, sha256 = ffmpeg_binary()
    if sha256 != expected_sha256:
        raise BadEnvironment(
            "this ffmpeg is not the one that the encoder settings declare: its pixels may differ",
            file=path,
            value=sha256,
            remedy="Unset IMAGEIO_FFMPEG_EXE and run `make envs`, or declare this binary in resources/encoders.yaml",
        )


def encode(
    path: Path, frames: Iterable[NDArray[np.uint8]], width: int, height: int, fps: int, settings: EncoderSettings
) -> int:
    """Encode `frames`, each uint8 [height, width, 3], to `path`; memory holds one frame. Returns how many there were.

    The writer underneath ignores the exit status of ffmpeg: `check_video` tells whether the file is whole.
    """
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        pix_fmt_in="rgb24",
        pix_fmt_out=settings.pixel_format,
        fps=fps,
        quality=None,
        codec=settings.codec,
        macro_block_size=1,
        output_params=["-crf", str(settings.crf), *settings.arguments],
    )
    writer.send(None)
    count = 0
    try:
        for frame in frames:
            try:
                writer.send(frame)
            except OSError as error:
                raise _stopped(path, count, error) from error
            count += 1
    finally:
        writer.close()
    return count


def _stopped(path: Path, count: int, error: OSError) -> Exception:
    """Why ffmpeg took no more frames. All that is seen is a broken pipe; a full disk is the usual reason."""
    if shutil.disk_usage(path.parent).free < _LITTLE_SPACE:
        return OSError(errno.ENOSPC, "No space left on device", str(path))
    return BadResult(
        f"ffmpeg stopped after {count} frames: {str(error).splitlines()[0]}",
        file=path,
        remedy="Look at ffmpeg's own message above, then start again",
    )


def check_video(path: Path, width: int, height: int, frames: int, fps: int) -> None:
    """Decode a whole video and refuse it unless it has the planned size, number of frames and rate."""
    reader = imageio_ffmpeg.read_frames(str(path))
    try:
        meta = next(reader)
        found = sum(1 for _ in reader)
    except (OSError, StopIteration) as error:
        raise BadResult(
            f"ffmpeg can't play this video: {error}", file=path, remedy="Start again: it is encoded anew"
        ) from error
    seen = (*meta["size"], found, meta["fps"])
    planned = (width, height, frames, fps)
    if seen != planned:
        raise BadResult(
            f"this video is not as planned: (width, height, frames, frames per second) is {seen} instead of {planned}",
            file=path,
            remedy="Start again; if it stays so, the disk was full or ffmpeg was killed while it wrote",
        )
