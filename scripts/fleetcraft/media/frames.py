"""Decoded frames on disk: one `.npy` file a sample, uint8 [frames, height, width, 3], written and read in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetcraft.ground.errors import BadResult, Damaged
from fleetcraft.ground.files import explained_os_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLACK = 8
"""A pixel value up to which a frame counts as black; compression noise on black stays below it."""


def write_frames(path: Path, chunks: Iterable[NDArray[np.uint8]], shape: tuple[int, int, int]) -> None:
    """Write `chunks` of frames to `path`; memory holds one chunk.

    Raises
    ------
    BadResult : the chunks don't add up to `shape` = (frames, height, width), or every frame is black.
    """
    header = {"descr": "|u1", "fortran_order": False, "shape": (*shape, 3)}
    count, brightest = 0, 0
    with explained_os_errors(path), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            if chunk.shape[1:] != (*shape[1:], 3):
                raise BadResult(
                    f"a decoded frame is {chunk.shape[2]}×{chunk.shape[1]} pixels, {shape[2]}×{shape[1]} were planned",
                    file=path,
                    remedy="Check `video` against what the model can make",
                )
            count += len(chunk)
            brightest = max(brightest, int(chunk.max()))
            chunk.tofile(file)
    if count != shape[0]:
        raise BadResult(
            f"decoding gave {count} frames, {shape[0]} were planned",
            file=path,
            remedy="Check `video.frames` against the VAE",
        )
    if brightest <= BLACK:
        raise BadResult(
            f"every frame is black (no pixel above {BLACK} of 255)",
            file=path,
            remedy="Look at the arm's dtype and guidance, and at the VAE's weights: even such a video gets scores",
        )


def read_frames(path: Path) -> Iterator[NDArray[np.uint8]]:
    """The frames of a file one by one, each [height, width, 3]; memory holds one frame."""
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("unknown version")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            size = int(np.prod(shape[1:]))
            for index in range(shape[0]):
                data = file.read(size)
                if len(data) != size:
                    raise ValueError(f"it ends in frame {index} of {shape[0]}")
                yield np.frombuffer(data, dtype).reshape(shape[1:])
    except ValueError as error:
        raise Damaged(
            f"this file of frames is damaged: {error}", file=path, remedy="Start again: it is decoded anew"
        ) from error
