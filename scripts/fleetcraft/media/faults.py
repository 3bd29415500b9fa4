"""What is wrong with a video: of a kind that scoring would silently misread, not as planned, damaged, or lifeless.

Nothing is ever converted here. Those who read videos for scoring flatten 10-bit and HDR to 8 bits without a word, drop
alpha, and disagree on rotation: such videos are refused, with what their owner can do about it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.media.frames import BLACK
from fleetcraft.media.probe import STILL, Facts

_HDR = {"smpte2084": "PQ", "arib-std-b67": "HLG"}
_WIDE = {"bt2020", "smpte431", "smpte432"}
_STILL_PICTURES = ("_pipe", "image2")
_TO_SDR = "Make an 8-bit SDR version of every video with a tone mapping that you choose, and report which"
_COPY_AGAIN = "Copy or make it again"
_LOOK = "Leave it out, or look at what made it: even such a video gets scores"


@dataclass(frozen=True)
class Planned:
    """What a video has to be; None where anything goes.

    stream : codec and pixel format, as ffmpeg names them, that the experiment vouches for.
    """

    width: int | None = None
    height: int | None = None
    frames: int | None = None
    fps: int | None = None
    stream: str | None = None


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a video, and what its owner can do about it."""

    problem: str
    remedy: str


def faults(facts: Facts, planned: Planned = Planned()) -> list[Fault]:
    """Everything that is wrong with a video, the worst first; nothing for one that can be scored."""
    return [*_damaged(facts), *_not_as_planned(facts, planned), *_misread(facts), *_lifeless(facts)]


def refuse(
    facts: Facts, planned: Planned = Planned(), *, error: type[FleetcraftError] = BadInput, remedy: str | None = None
) -> None:
    """Raise `error` if anything is wrong with a video: all of it, with `remedy` or else the first fault's own."""
    found = faults(facts, planned)
    if found:
        problems = "; ".join(fault.problem for fault in found)
        raise error(f"this video can't be used: {problems}", file=facts.file, remedy=remedy or found[0].remedy)


def _damaged(facts: Facts) -> Iterator[Fault]:
    if facts.damage is not None:
        yield Fault(f"it is damaged or truncated: ffmpeg says {facts.damage!r}", _COPY_AGAIN)
    elif _frames_missing(facts) > 1.5:
        yield Fault(
            f"it is truncated: it plays for {facts.played_s:.2f} s, its header says {facts.duration_s:.2f} s",
            _COPY_AGAIN,
        )


def _frames_missing(facts: Facts) -> float:
    """By how many frames a video ends before its header says; 0 where that can't be told."""
    # A sound that lasts longer than the picture would look like a picture that ends too early, and where frames don't
    # come at the header's rate, nobody knows how long the last one is shown.
    if facts.rate is None or facts.duration_s is None or facts.audio_tracks or not facts.even:
        return 0.0
    return (facts.duration_s - facts.played_s) * float(facts.rate)


def _not_as_planned(facts: Facts, planned: Planned) -> Iterator[Fault]:
    width, height = planned.width or facts.width, planned.height or facts.height
    if (facts.width, facts.height) != (width, height):
        yield Fault(
            f"it is {facts.width}×{facts.height} pixels, not {width}×{height} as planned",
            "Plan the size that the videos have: scaling them would change what is scored",
        )
    if planned.frames is not None and facts.frames != planned.frames:
        yield Fault(
            f"it has {facts.frames} frames, not {planned.frames} as planned",
            "Plan the number of frames that the videos have",
        )
    if planned.fps is not None and facts.even and facts.rate != planned.fps:
        yield Fault(
            f"it has {_rate(facts)}, not {planned.fps} as planned",
            "Plan the rate that the videos have: some scores depend on it",
        )
    if planned.stream not in (None, facts.stream):
        yield Fault(
            f"it is {facts.stream} and not {planned.stream}, so it wasn't encoded as the other arms are, as"
            " `same_encoder` says",
            "Leave that key out: the arm is scored all the same, and not compared",
        )


def _misread(facts: Facts) -> Iterator[Fault]:
    source = f"ffmpeg -i {shlex.quote(facts.file.name)}"
    if facts.container.endswith(_STILL_PICTURES):
        yield Fault(f"it is a picture ({facts.codec}), not a video", "Put a video there")
    if facts.bits > 8:
        yield Fault(f"it has {facts.bits} bits a channel ({facts.pixel_format}), where scoring reads 8", _TO_SDR)
    if facts.transfer in _HDR:
        yield Fault(f"it is HDR ({_HDR[facts.transfer]}, tagged {facts.transfer})", _TO_SDR)
    elif facts.primaries in _WIDE:
        yield Fault(f"its colours have a wide gamut ({facts.primaries})", _TO_SDR)
    if facts.alpha:
        yield Fault(
            f"it has an alpha channel ({facts.pixel_format}), which scoring drops", "Lay it over a background yourself"
        )
    if not facts.one_size:
        yield Fault("the size or format of its picture changes on the way", "Make all frames alike")
    if not facts.even:
        steps = (
            "" if facts.steps_s is None else ": {:.1f} to {:.1f} ms a frame".format(*(1e3 * s for s in facts.steps_s))
        )
        yield Fault(
            f"its frame rate varies{steps}, while its header says {_rate(facts)}",
            f"Make it even, such as by `{source} -fps_mode cfr -r RATE -crf 12 NEW.mp4`, and report that",
        )
    if facts.interlaced:
        yield Fault(
            "it is interlaced",
            f"Make whole frames, such as by `{source} -vf bwdif -crf 12 NEW.mp4`, and report that",
        )
    if facts.sample_aspect not in (None, 1):
        yield Fault(
            f"its pixels aren't square ({str(facts.sample_aspect).replace('/', ':')})",
            "Scale the picture, or say that they are square:"
            f" `{source} -c copy -aspect {facts.width}:{facts.height} NEW.mp4`",
        )
    if facts.display is not None:
        yield Fault(
            f"players have to turn its picture ({facts.display}), and not all do",
            f"Store it as it is to be seen, such as by `{source} -crf 12 NEW.mp4`, and report that",
        )
    if facts.video_tracks > 1:
        yield Fault(f"it has {facts.video_tracks} video tracks", f"Keep one: `{source} -map 0:v:0 -c copy NEW.mp4`")
    if facts.audio_tracks:
        tracks = "an audio track" if facts.audio_tracks == 1 else f"{facts.audio_tracks} audio tracks"
        yield Fault(
            f"it has {tracks}", f"Drop the sound, which leaves the picture as it is: `{source} -an -c copy NEW.mp4`"
        )


def _lifeless(facts: Facts) -> Iterator[Fault]:
    if facts.black:
        yield Fault(f"every frame is black (no pixel above {BLACK} of 255)", _LOOK)
    elif facts.frozen:
        yield Fault(
            f"it is frozen: all {facts.frames} frames are the same, up to {STILL} of 255 in each pixel's brightness",
            _LOOK,
        )


def _rate(facts: Facts) -> str:
    rate: Fraction | None = facts.rate
    if rate is None:
        return "no frame rate"
    return f"{rate if rate.denominator == 1 else f'{float(rate):.3f}'} frames a second"
