"""What a video file is, found in one decode of the whole file.

ffmpeg plays the file into nothing and reports on the way: what the container declares, each frame's format and time,
which frames are black, and which are like the first. Memory doesn't grow with the length of the video. What is wrong
with a video, `faults.py` says.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadEnvironment, BadInput, FleetcraftError
from fleetcraft.media.ffmpeg import ffmpeg_command, pixel_formats
from fleetcraft.media.frames import BLACK

STILL = 3
"""How far, of 255, a pixel may be from the first frame's before a video counts as moving: compression alone moves the
pixels of a still video about as far."""


@dataclass(frozen=True)
class Facts:
    """What one video is.

    container, codec, pixel_format : as ffmpeg names them.
    bits : of the deepest channel.
    one_size : all frames have the size and the pixel format of the first.
    frames : how many could be decoded.
    rate : frames a second, as the container declares them; None where it doesn't.
    steps_s : shortest and longest time from one frame to the next; None for a single frame.
    even : all frames come at `rate`, as exactly as the container can tell time.
    duration_s : as the container declares it; None where it doesn't.
    played_s : from the first frame to the end of the last one that could be decoded.
    color_range, matrix, primaries, transfer : as tagged; "unknown" where they aren't.
    sample_aspect : width to height of a pixel; None where it isn't said.
    display : how a player is told to turn the picture before it shows it; None for not at all.
    black : no pixel of any frame is above `frames.BLACK`.
    frozen : no pixel of any frame is farther than `STILL` from the first frame's; False for a single frame.
    damage : the first error of ffmpeg while it played the file; None where there was none.
    """

    file: Path
    container: str
    codec: str
    pixel_format: str
    bits: int
    alpha: bool
    width: int
    height: int
    one_size: bool
    frames: int
    rate: Fraction | None
    steps_s: tuple[float, float] | None
    even: bool
    duration_s: float | None
    played_s: float
    color_range: str
    matrix: str
    primaries: str
    transfer: str
    sample_aspect: Fraction | None
    display: str | None
    interlaced: bool
    video_tracks: int
    audio_tracks: int
    black: bool
    frozen: bool
    damage: str | None

    @property
    def stream(self) -> str:
        """Codec and pixel format in one."""
        return f"{self.codec} {self.pixel_format}"

    def as_json(self) -> dict[str, Any]:
        """The facts as a record holds them: all but where the file is."""
        document = asdict(self)
        del document["file"]
        rates = {name: None if document[name] is None else str(document[name]) for name in ("rate", "sample_aspect")}
        return document | rates | {"steps_s": None if self.steps_s is None else list(self.steps_s)}


def probe(file: Path, error: type[FleetcraftError] = BadInput) -> Facts:
    """Play the whole of `file` once and say what it is.

    Raises
    ------
    error : the file has no picture that can be played: it is missing, empty, or no video.
    BadEnvironment : ffmpeg was killed.
    """
    if not file.is_file() or file.stat().st_size == 0:
        state = "is empty (0 bytes)" if file.is_file() else "isn't there"
        raise error(f"this video {state}", file=file, remedy="Put the whole video there")
    reports = _Reports()
    status = _play(file, reports, "-vf", _FILTERS)
    if reports.interrupted and reports.damage is None:
        # What came between lost its level, and may be an error. Errors alone don't come between anything.
        alone = _Reports()
        status = _play(file, alone, level="error") or status
        reports.damage = alone.damage
    if status and reports.damage is None:
        reports.damage = f"exit status {status}"
    if not reports.frames:
        if reports.container and not reports.video_tracks:
            reason = "it has no video track"
        else:
            reason = f"no frame of it can be decoded, ffmpeg says {reports.damage or 'nothing'!r}"
        raise error(f"this is no video: {reason}", file=file, remedy="Put a whole video there")
    return reports.facts(file)


def _play(file: Path, reports: _Reports, *filters: str, level: str = "info") -> int:
    """Decode the picture of `file` while `reports` reads what ffmpeg says; its exit status."""
    # As it is stored, not as a player would turn it: programs that score videos differ in whether they turn them.
    whole = ("-noautorotate", "-i", f"file:{file}", "-map", "0:V:0", *filters, "-fps_mode", "passthrough")
    command = ffmpeg_command(*whole, "-f", "null", "-", level=level)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        reports.read(line.decode(errors="replace").rstrip("\n") for line in process.stderr)
    if process.returncode < 0:
        raise BadEnvironment(
            f"ffmpeg was killed by signal {-process.returncode} while it played this video",
            file=file,
            remedy="Start again, with more memory: nothing was found wrong with the video",
        )
    return process.returncode


# The luma alone is looked at, on the full scale. `trim` keeps the first frame, which `blend` repeats.
_FILTERS = (
    "showinfo@facts=checksum=0,scale=out_range=full,format=gray,split[all][copy];[copy]trim=end_frame=1[first];"
    f"[all]blackframe@black=amount=100:threshold={BLACK + 1}[seen];"
    f"[seen][first]blend=all_mode=difference,blackframe@still=amount=100:threshold={STILL + 1}"
)

_INPUT = re.compile(r"\[info\] Input #0, (.+), from '")
_DURATION = re.compile(r"\[info\]   Duration: (\d+):(\d+):(\d+\.\d+)")
_STREAM = re.compile(r"\[info\]   Stream #0:\d+\S*: (Video|Audio): (\w+)(.*)")
_DISPLAY = re.compile(r"\[info\]       Display Matrix: (rotation of \S+ degrees)")
_CLOCK = re.compile(r"config in time_base: (\d+)/(\d+), frame_rate: (\d+)/(\d+)")
_FRAME = re.compile(r"\] n: *\d+ pts: *(\S+) .* fmt:(\S+) .*sar:(\d+)/(\d+) s:(\d+)x(\d+) i:(\w)")
_COLOR = re.compile(r"color_range:(\S+) color_space:(\S+) color_primaries:(\S+) color_trc:(\S+)")
_WHOLE_LINE = re.compile(r"\] \[info\] (?:n:|color_range:|config |  side data - )")
_ERROR = re.compile(r"\[(?:error|fatal|panic)\] (.+)")
_METADATA = ("[info]    ", " ")


@dataclass(frozen=True)
class _Format:
    """What showinfo says of one frame, its time aside."""

    pixel_format: str
    sample_aspect: Fraction | None
    width: int
    height: int


class _Reports:
    """What ffmpeg has said so far; grows with nothing."""

    def __init__(self) -> None:
        self.container, self.codec = "", ""
        self.duration_s: float | None = None
        self.video_tracks = self.audio_tracks = 0
        self.display: str | None = None
        self.tick = Fraction(1)
        self.rate: Fraction | None = None
        self.format: _Format | None = None
        self.color: tuple[str, ...] = ("unknown",) * 4
        self.frames = self.black = self.still = 0
        self.first = self.last = 0
        self.shortest: int | None = None
        self.longest: int | None = None
        self.timed = self.one_size = True
        self.interlaced = False
        self.damage: str | None = None
        self.interrupted = False
        """Another thread of ffmpeg spoke while a filter's line was unfinished: then the rest of it begins a line."""
        self._in_header = True

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.startswith("[showinfo@facts"):
                self._read_frame(line)
                self.interrupted |= _WHOLE_LINE.search(line) is None
            elif line.startswith("[blackframe@black"):
                self.black += 1
            elif line.startswith("[blackframe@still"):
                self.still += 1
            elif self._in_header:
                self._read_header(line)
            # Anywhere in a line: a decoder may speak while a filter's line is unfinished. But a title may say anything.
            found = None if self.damage or line.startswith(_METADATA) else _ERROR.search(line)
            self.damage = found[1] if found else self.damage

    def _read_header(self, line: str) -> None:
        if found := _INPUT.match(line):
            self.container = found[1]
        elif found := _DURATION.match(line):
            self.duration_s = 3600 * int(found[1]) + 60 * int(found[2]) + float(found[3])
        elif found := _STREAM.match(line):
            if found[1] == "Audio":
                self.audio_tracks += 1
            elif "(attached pic)" not in found[3]:
                self.codec = self.codec or found[2]
                self.video_tracks += 1
        elif found := _DISPLAY.match(line):
            self.display = found[1]
        elif line.startswith("[info] Stream mapping:"):
            self._in_header = False

    def _read_frame(self, line: str) -> None:
        if found := _FRAME.search(line):
            pts, pixel_format, *numbers, field = found.groups()
            over, under, width, height = map(int, numbers)
            form = _Format(pixel_format, Fraction(over, under) if over and under else None, width, height)
            self.format = self.format or form
            self.one_size &= form == self.format
            self.interlaced |= field != "P"
            self._read_time(pts)
            self.frames += 1
        elif found := _COLOR.search(line):
            self.color = found.groups() if self.frames == 1 else self.color
        elif found := _CLOCK.search(line):
            ticks, per, frames, seconds = map(int, found.groups())
            self.tick, self.rate = Fraction(ticks, per), Fraction(frames, seconds) if frames and seconds else None

    def _read_time(self, pts: str) -> None:
        if not pts.lstrip("-").isdigit():
            self.timed = False
            return
        now = int(pts)
        if self.frames:
            step = now - self.last
            self.shortest = step if self.shortest is None else min(self.shortest, step)
            self.longest = step if self.longest is None else max(self.longest, step)
        else:
            self.first = now
        self.last = now

    def facts(self, file: Path) -> Facts:
        """All of it, once ffmpeg has ended; at least one frame was seen."""
        assert self.format is not None
        bits, alpha = pixel_formats()[self.format.pixel_format]
        span, steps = (self.last - self.first) * self.tick, None
        even = self.timed and self.rate is not None
        if self.shortest is not None and self.longest is not None:
            steps = (float(self.shortest * self.tick), float(self.longest * self.tick))
            # A clock of milliseconds has to alternate between 41 and 42 for 24 frames a second.
            even &= self.longest - self.shortest <= 1
        if even and self.rate is not None:
            drift = abs(span - (self.frames - 1) / self.rate)
            even = drift <= max(self.tick, span / 10_000)
        color_range, matrix, primaries, transfer = self.color
        return Facts(
            file=file,
            container=self.container,
            codec=self.codec,
            pixel_format=self.format.pixel_format,
            bits=bits,
            alpha=alpha,
            width=self.format.width,
            height=self.format.height,
            one_size=self.one_size,
            frames=self.frames,
            rate=self.rate,
            steps_s=steps,
            even=even,
            duration_s=self.duration_s,
            played_s=float(span + (1 / self.rate if self.rate else 0)),
            color_range=color_range,
            matrix=matrix,
            primaries=primaries,
            transfer=transfer,
            sample_aspect=self.format.sample_aspect,
            display=self.display,
            interlaced=self.interlaced,
            video_tracks=self.video_tracks,
            audio_tracks=self.audio_tracks,
            black=self.black == self.frames,
            frozen=self.frames > 1 and self.still == self.frames,
            damage=self.damage,
        )
