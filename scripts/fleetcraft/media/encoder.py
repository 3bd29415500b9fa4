"""Frames to a video with pinned settings, and a look at what came out."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import imageio_ffmpeg
import numpy as np

from fleetcraft.ground.errors import BadResult
from fleetcraft.media.faults import Planned, refuse
from fleetcraft.media.presets import EncoderSettings
from fleetcraft.media.probe import Facts, probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LITTLE_SPACE = 2**20


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


def check_video(path: Path, width: int, height: int, frames: int, fps: int) -> Facts:
    """Play a whole video that was just encoded, and say what it is.

    Raises
    ------
    BadResult : it isn't as planned, or has anything else about it that no video of ours may have.
    """
    facts = probe(path, BadResult)
    refuse(
        facts,
        Planned(width, height, frames, fps),
        error=BadResult,
        remedy="Look at the arm's dtype and guidance, and at its model's weights"
        if facts.frozen or facts.black
        else "Start again; if it stays so, the disk was full or ffmpeg was killed while it wrote",
    )
    return facts
