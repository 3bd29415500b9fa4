"""A reader of videos that stands in for decord 0.6.0 where there is none: its wheels are for x86-64 alone.

It has what VBench's code calls, and no more, and gives the same bytes: PyAV decodes, `decord_colours` converts. That
bytes don't depend on the processor rests on `CODECS`, whose standards say to the bit what is decoded, and on integers
in the conversion. What decord reads in another way than others do is refused. The tests compare the two on x86-64, with
videos that ffmpeg encodes, and VBench's scores with either.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fleetcraft.ground.errors import BadEnvironment, BadInput, BadResult, FleetcraftError
from fleetcraft.scoring.decord_colours import FORMATS, convert

if TYPE_CHECKING:
    import av.container
    import av.video.codeccontext
    import av.video.frame
    import av.video.stream
    from numpy.typing import NDArray

CODECS = ("h264", "hevc", "vp8", "vp9")
"""The codecs, as ffmpeg names them, whose standards leave no rounding to the decoder and that decord knows."""

_CONTAINERS = ("mov", "matroska")
_COPY_AGAIN = "Copy or make it again"
_AS_DECORD = "Make an H.264 copy (yuv420p, even sides) of all videos and report that, or score on x86_64"


class Unreadable(Exception):
    """What VBench sees raised for a video; `error` is for people."""

    def __init__(self, error: FleetcraftError):
        super().__init__(str(error))
        self.error = error


class Batch:
    """Frames as decord's native arrays: uint8 [frames, height, width, channels]."""

    def __init__(self, frames: NDArray[np.uint8]):
        self._frames = frames

    @property
    def shape(self) -> tuple[int, ...]:
        return self._frames.shape

    def asnumpy(self) -> NDArray[np.uint8]:
        return self._frames


@dataclass(frozen=True)
class Context:
    """Where decord would decode."""

    device: str
    number: int = 0


_CPU = Context("cpu")


def cpu(number: int = 0) -> Context:
    return Context("cpu", number)


class VideoReader:
    """The frames of a video by their numbers.

    Opening reads the file once without decoding it. Memory holds the frames that are asked for, and one more.

    Raises
    ------
    Unreadable : here or when frames are read: the file is missing, empty, no video, damaged or truncated (`BadResult`),
        or its frames can't be given as decord would (`BadInput`).
    """

    def __init__(self, uri: str, ctx: Context = _CPU, width: int = -1, height: int = -1, num_threads: int = 0) -> None:
        self._file, self._threads = Path(uri), num_threads
        self._size = (width, height) if width > 0 and height > 0 else None
        if ctx.device != "cpu" or (width > 0) != (height > 0):
            raise NotImplementedError("videos are read by the CPU, and scaled to a width and a height or not at all")
        if not self._file.is_file() or self._file.stat().st_size == 0:
            state = "is empty (0 bytes)" if self._file.is_file() else "isn't there"
            self._refuse(BadResult, f"this video {state}", _COPY_AGAIN)
        with self._opened() as (container, stream):
            self._check(container, stream)
            self._rate = stream.average_rate
            self._stored = (stream.codec_context.width, stream.codec_context.height)
            self._frames = self._count(container, stream)

    def __len__(self) -> int:
        return self._frames

    def __getitem__(self, index: int) -> Any:
        """uint8 [height, width, channels]."""
        return _bridged(self._read([_within(index, self._frames)])[0])

    def get_avg_fps(self) -> float:
        """Frames a second, on average, as the container has it."""
        assert self._rate is not None
        return float(self._rate)

    def get_batch(self, indices: Sequence[int]) -> Any:
        """The frames of these numbers, in any order and as often as named: uint8 [frames, height, width, channels]."""
        return _bridged(self._read([_within(index, self._frames) for index in indices]))

    def _read(self, numbers: Sequence[int]) -> NDArray[np.uint8]:
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(number, []).append(place)
        width, height = self._size or self._stored
        frames = np.empty((len(numbers), height, width, 3), np.uint8)
        seen, last = 0, max(numbers, default=-1)
        with self._opened() as (container, stream):
            for frame in container.decode(stream):
                self._check_frame(frame, stream.codec_context)
                if seen in places:
                    frames[places[seen]] = self._converted(frame)
                seen += 1
                if seen > last:
                    break
        if seen <= last:
            self._refuse(BadResult, f"only {seen} of this video's {self._frames} frames can be decoded", _COPY_AGAIN)
        return frames

    def _converted(self, frame: av.video.frame.VideoFrame) -> NDArray[np.uint8]:
        planes = [
            np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
            for plane in frame.planes
        ]
        return convert(planes, frame.format.name, frame.colorspace, frame.color_range == _FULL, self._size)

    @contextmanager
    def _opened(self) -> Iterator[tuple[av.container.InputContainer, av.video.stream.VideoStream]]:
        """The file and its picture, whose decoder conceals no damage."""
        import av
        import av.error

        try:
            with av.open(f"file:{self._file}") as container:
                stream = container.streams.best("video")
                if stream is None:
                    self._refuse(BadResult, "this is no video: it has no video track", "Put a whole video there")
                stream.codec_context.thread_count = self._threads
                stream.codec_context.options = {"err_detect": "explode"}
                yield container, stream
        except av.error.FFmpegError as error:
            self._refuse(BadResult, f"this video can't be read: PyAV says {error.strerror!r}", _COPY_AGAIN)

    def _check(self, container: av.container.InputContainer, stream: av.video.stream.VideoStream) -> None:
        """Refuse what decord would read in another way, as far as the header says it."""
        form = f"{stream.codec_context.pix_fmt}"
        if container.format.name.split(",")[0] not in _CONTAINERS:
            self._refuse(
                BadInput,
                f"this video is in a container ({container.format.name}) that can't be read as decord reads it",
                "Change the container: `ffmpeg -i FILE -c copy NEW.mp4`, which changes no pixel",
            )
        if stream.codec_context.name not in CODECS:
            known = ", ".join(CODECS)
            self._refuse(
                BadInput,
                f"this video's codec ({stream.codec_context.name}) isn't decoded everywhere to the bits that decord"
                f" has, as {known} are",
                _AS_DECORD,
            )
        if form not in FORMATS:
            self._refuse(BadInput, f"this video's pixel format ({form}) isn't one of {', '.join(FORMATS)}", _AS_DECORD)
        if form == "gbrp" and self._size is not None:
            self._refuse(
                BadInput,
                "this video is stored as RGB, and such can't be scaled as decord does it, which this dimension needs",
                _AS_DECORD,
            )
        if stream.average_rate is None:
            self._refuse(BadResult, "this video doesn't say its frame rate", _COPY_AGAIN)

    def _count(self, container: av.container.InputContainer, stream: av.video.stream.VideoStream) -> int:
        """How many frames there are: decord counts packets."""
        packets = hidden = 0
        for packet in container.demux(stream):
            packets += packet.size > 0
            hidden += packet.is_discard
        if hidden:
            self._refuse(
                BadInput,
                f"this video hides {hidden} of its {packets} frames by an edit list, and decord counts them",
                "Encode it anew without them, and report that",
            )
        if stream.frames not in (0, packets):
            self._refuse(
                BadResult,
                f"this video is truncated: it has {packets} frames, its header says {stream.frames}",
                _COPY_AGAIN,
            )
        if not packets:
            self._refuse(BadResult, "this video has no frame", "Put a whole video there")
        return packets

    def _check_frame(self, frame: av.video.frame.VideoFrame, header: av.video.codeccontext.VideoCodecContext) -> None:
        """Refuse what only frames tell."""
        if frame.is_corrupt:
            self._refuse(BadResult, "this video is damaged: a part of a frame is missing", _COPY_AGAIN)
        if (frame.format.name, frame.width, frame.height) != (header.pix_fmt, *self._stored):
            self._refuse(
                BadInput, "the size or format of this video's picture changes on the way", "Make all frames alike"
            )
        if frame.rotation:
            self._refuse(
                BadInput,
                f"players have to turn this video's picture (by {frame.rotation} degrees), and not all do",
                "Store it as it is to be seen, and report that",
            )

    def _refuse(self, kind: type[FleetcraftError], problem: str, remedy: str) -> NoReturn:
        raise Unreadable(kind(problem, file=self._file, remedy=remedy)) from None


_FULL = 2
"""ffmpeg's number for full range."""


def _within(index: int, frames: int) -> int:
    """The frame's number; negative ones count from the end."""
    number = int(index) + frames if index < 0 else int(index)
    if not 0 <= number < frames:
        raise IndexError(f"frame {index} of a video of {frames}")
    return number


# ---------------------------------------------------------------------- as a package

_bridge = "native"


def set_bridge(name: str) -> None:
    """What readers return from now on: `native` ones are `Batch`, `torch` ones tensors."""
    global _bridge  # decord has it so
    if name not in ("native", "torch"):
        raise NotImplementedError(f"frames can't be had as {name}")
    _bridge = name


def _bridged(frames: NDArray[np.uint8]) -> Any:
    if _bridge == "torch":
        import torch

        return torch.from_numpy(frames)
    return Batch(frames)


def stand_in() -> None:
    """From now on, this process imports what is here as `decord`.

    Raises
    ------
    BadEnvironment : it has imported another one.
    """
    already = sys.modules.get("decord")
    if already is not None:
        if getattr(already, "VideoReader", None) is not VideoReader:
            raise BadEnvironment("decord was imported before its stand-in was there", remedy="Start another process")
        return
    package, bridge = ModuleType("decord", __doc__), ModuleType("decord.bridge")
    # As libraries look for packages by their specs.
    package.__spec__, bridge.__spec__ = ModuleSpec("decord", None, is_package=True), ModuleSpec("decord.bridge", None)
    vars(bridge).update(set_bridge=set_bridge)
    vars(package).update(VideoReader=VideoReader, cpu=cpu, bridge=bridge, DECORDError=Unreadable, __path__=[])
    sys.modules.update({"decord": package, "decord.bridge": bridge})
