"""Our reader gives VBench the frames that decord gives it, bit for bit, or refuses the video and says why.

Compared in VBench's tool chain, with videos that ffmpeg encodes, on the only architecture for which there is a decord.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from vbench_runs import answer, command, ffmpeg

from fleetcraft.ground.toolchain import clean_environment
from fleetcraft.media.presets import encoder_settings

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no decord to compare with")

# One line a question, one line an answer.
BOTH = """
import json, sys
import numpy as np
sys.path.append(sys.argv[1])
from decord import DECORDError, VideoReader
from fleetcraft.scoring import decord_reader
for line in sys.stdin:
    asked = json.loads(line)
    size = dict(zip(("width", "height"), asked["size"] or ()))
    try:
        ours = decord_reader.VideoReader(asked["video"], num_threads=1, **size)
        indices = range(len(ours)) if asked["indices"] is None else asked["indices"]
        frames = ours.get_batch(indices).asnumpy()
    except decord_reader.Unreadable as error:
        print(json.dumps({"refused": [type(error.error).__name__, str(error)]}), flush=True)
        continue
    try:
        theirs = VideoReader(asked["video"], num_threads=1, **size)
        expected = theirs.get_batch(indices).asnumpy()
    except DECORDError:
        print(json.dumps({"decord": "refused"}), flush=True)
        continue
    assert frames.dtype == expected.dtype == np.uint8 and frames.shape == expected.shape
    alike = (len(ours), ours.get_avg_fps()) == (len(theirs), theirs.get_avg_fps())
    apart = int(np.abs(frames.astype(int) - expected).max(initial=0))
    print(json.dumps({"alike": alike, "apart": apart, "frames": len(ours)}), flush=True)
"""

# What upstream's own loaders make of them, in its three ways to call decord; then again, with another decord.
LOADED = """
import hashlib, importlib, json, sys
from pathlib import Path
from tempfile import TemporaryDirectory
import numpy as np
sys.path.append(sys.argv[1])
from fleetcraft.scoring.decord_reader import VideoReader, stand_in
from fleetcraft.scoring.upstream import upstream
video, loaded = sys.argv[2], []
with TemporaryDirectory() as scratch, upstream(Path(scratch), None):
    from vbench import utils
    for ours in (False, True):
        if ours:
            for name in [name for name in sys.modules if name.split(".")[0] == "decord"]:
                del sys.modules[name]
            stand_in()
            importlib.reload(utils)
        assert (utils.VideoReader is VideoReader) == ours
        loaded.append([
            utils.load_video(video),
            utils.load_video(video, num_frames=16),
            utils.load_video(video, num_frames=16, return_tensor=False, width=384, height=384),
            utils.read_frames_decord_by_fps(video, num_frames=8, sample="middle"),
        ])
bits = [[np.ascontiguousarray(one) for one in some] for some in loaded]
print(json.dumps([[[one.shape, str(one.dtype), hashlib.sha256(one).hexdigest()] for one in some] for some in bits]))
"""

# Only what its own Python code and the decoders hold can grow here: numpy is there from the start.
MEMORY = """
import json, resource, sys
sys.path.append(sys.argv[1])
from fleetcraft.scoring.decord_reader import VideoReader
peaks = []
for video in sys.argv[2:]:
    reader = VideoReader(video, num_threads=1)
    assert reader.get_batch([0, len(reader) - 1]).shape[0] == 2
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
print(json.dumps([len(reader), *peaks]))
"""

SIZES = ((64, 48), (98, 66), (176, 144))

CASES: dict[str, tuple[str, list[object]]] = {
    "B-frames, BT.709": (
        "format=yuv420p,setparams=colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv",
        ["-c:v", "libx264", "-bf", 3, "-g", 5],
    ),
    "BT.601": ("format=yuv420p,setparams=colorspace=smpte170m:range=tv", ["-c:v", "libx264"]),
    "untagged": ("format=yuv420p", ["-c:v", "libx264"]),
    "SMPTE 240M": ("format=yuv420p,setparams=colorspace=smpte240m", ["-c:v", "libx264"]),
    "FCC": ("format=yuv420p,setparams=colorspace=fcc", ["-c:v", "libx264"]),
    "BT.2020": ("format=yuv420p,setparams=colorspace=bt2020nc", ["-c:v", "libx264"]),
    "full range": ("scale=out_range=pc,format=yuvj420p", ["-c:v", "libx264"]),
    "full range of BT.709": ("format=yuvj420p,setparams=colorspace=bt709:range=pc", ["-c:v", "libx264"]),
    "full range, told by the container": ("format=yuv420p,setparams=range=pc", ["-c:v", "libvpx-vp9"]),
    "4:2:2": ("format=yuv422p", ["-c:v", "libx264"]),
    "4:4:4": ("format=yuv444p", ["-c:v", "libx264"]),
    "4:4:4 of full range": ("format=yuvj444p", ["-c:v", "libx264"]),
    "RGB": ("format=gbrp", ["-c:v", "libx264rgb"]),
    "HEVC": ("format=yuv420p", ["-c:v", "libx265", "-x265-params", "log-level=error"]),
    "VP9": ("format=yuv420p", ["-c:v", "libvpx-vp9", "-g", 4]),
    "starts at 3 s": ("format=yuv420p", ["-c:v", "libx264", "-bf", 2, "-output_ts_offset", 3]),
    "frames of unlike length": (
        r"select='not(mod(n\,3))+eq(n\,1)',format=yuv420p",
        ["-c:v", "libx264", "-fps_mode", "vfr"],
    ),
    "a single frame": ("format=yuv420p", ["-c:v", "libx264", "-frames:v", 1]),
}

Ask = Callable[..., dict[str, Any]]


def make(video: Path, size: tuple[int, int], filters: str, arguments: list[object], frames: int = 9) -> Path:
    """A video of moving pictures and noise; an even number of pixels where the encoder asks for that."""
    source = f"testsrc2=size=256x192:rate=8,noise=alls=40:allf=t+u,scale={size[0]}:{size[1]},{filters}"
    ffmpeg("-f", "lavfi", "-i", source, "-frames:v", frames, "-crf", 20, "-cpu-used", 8, *arguments, video)
    return video


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks both readers for frames of a video, and tells how far apart they are."""
    with subprocess.Popen(
        command(BOTH),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=clean_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def asked(video: Path, indices: list[int] | None = None, size: tuple[int, int] | None = None) -> dict[str, Any]:
            print(json.dumps({"video": str(video), "indices": indices, "size": size}), file=process.stdin, flush=True)
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        yield asked
        process.stdin.close()


@pytest.mark.parametrize("case", CASES)
def test_frames_are_those_of_decord_bit_for_bit(ask: Ask, tmp_path: Path, case: str) -> None:
    filters, arguments = CASES[case]
    for number, size in enumerate(SIZES):
        video = make(tmp_path / f"{number}.mp4", size, filters, arguments)
        for scaled in (None,) if case == "RGB" else (None, (384, 384)):
            found = ask(video, size=scaled)
            assert found.get("alike"), (found, size, scaled)
            assert found["apart"] == 0, (found, size, scaled)


@pytest.mark.parametrize("preset", ["h264-crf18", "imageio-quality", "lossless"])
def test_so_are_those_of_our_encoders(ask: Ask, tmp_path: Path, preset: str) -> None:
    known = encoder_settings(preset, "x86_64")
    source = "testsrc2=size=176x96:rate=8,noise=alls=40:allf=t+u,format=rgb24"
    made = ["-c:v", known.codec, "-pix_fmt", known.pixel_format, "-crf", known.crf, *known.arguments]
    ffmpeg("-f", "lavfi", "-i", source, "-frames:v", 9, *made, tmp_path / "video.mp4")
    assert ask(tmp_path / "video.mp4") == {"alike": True, "apart": 0, "frames": 9}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn")


_numbers = count()
_sides = st.integers(34, 150)


@given(
    size=st.tuples(_sides, _sides),
    pixel_format=st.sampled_from(["yuv420p", "yuv444p", "yuv422p", "yuvj420p"]),
    frames=st.integers(1, 12),
    between_keys=st.integers(1, 6),
    scaled=st.none() | st.tuples(_sides, _sides),
    draw=st.data(),
)
@settings(max_examples=25, deadline=None)
def test_any_frames_of_any_video_are_those_of_decord(
    ask: Ask,
    directory: Path,
    size: tuple[int, int],
    pixel_format: str,
    frames: int,
    between_keys: int,
    scaled: tuple[int, int] | None,
    draw: st.DataObject,
) -> None:
    indices = draw.draw(st.lists(st.integers(-frames, frames - 1), max_size=8), label="indices")
    arguments = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", 2, "-g", between_keys]
    if pixel_format == "yuv420p":  # VP9 has odd sides, too
        arguments = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-g", between_keys]
    elif pixel_format != "yuv444p":
        size = (size[0] // 2 * 2, size[1] // 2 * 2 if pixel_format == "yuvj420p" else size[1])
    video = make(directory / f"{next(_numbers)}.mp4", size, f"format={pixel_format}", arguments, frames)
    found = ask(video, indices, scaled)
    assume(found != {"decord": "refused"})  # it doesn't copy pictures of some small widths
    assert found.get("frames") == frames, found
    assert found["alike"]
    assert found["apart"] == 0


def test_upstream_s_loaders_make_the_same_of_them(tmp_path: Path) -> None:
    video = make(tmp_path / "video.mp4", (176, 96), *CASES["B-frames, BT.709"], frames=21)
    theirs, ours = answer(LOADED, video)
    assert ours == theirs
    assert [shape for shape, *_ in ours] == [[21, 3, 96, 176], [16, 3, 96, 176], [16, 384, 384, 3], [8, 3, 96, 176]]


def test_what_decord_would_read_otherwise_is_refused_with_the_reason(ask: Ask, tmp_path: Path) -> None:
    def said(video: Path, size: tuple[int, int] | None = None) -> str:
        kind, text = ask(video, size=size)["refused"]
        assert kind == "BadInput"
        assert text.startswith(f"{video}: ")
        return str(text)

    whole = make(tmp_path / "whole.mp4", (64, 48), *CASES["B-frames, BT.709"])
    later, turned, stream = tmp_path / "later.mp4", tmp_path / "turned.mp4", tmp_path / "stream.mp4"
    ffmpeg("-ss", 0.4, "-i", whole, "-c", "copy", later)
    ffmpeg("-display_rotation", 90, "-i", whole, "-c", "copy", turned)
    ffmpeg("-i", whole, "-c", "copy", "-f", "mpegts", stream)
    assert "hides 4 of its 9 frames by an edit list, and decord counts them" in said(later)
    assert "have to turn this video's picture (by 90 degrees)" in said(turned)
    assert "container (mpegts)" in said(stream)
    mpeg4 = make(tmp_path / "mpeg4.mp4", (64, 48), "format=yuv420p", ["-c:v", "mpeg4"])
    assert "codec (mpeg4) isn't decoded everywhere to the bits that decord has" in said(mpeg4)
    deep = make(tmp_path / "deep.mp4", (64, 48), "format=yuv420p10", ["-c:v", "libx264"])
    assert "pixel format (yuv420p10le) isn't one of yuv420p" in said(deep)
    rgb = make(tmp_path / "rgb.mp4", (64, 48), *CASES["RGB"])
    assert "stored as RGB, and such can't be scaled as decord does it" in said(rgb, (384, 384))


def test_a_video_that_is_missing_empty_damaged_or_none_at_all_is_named_with_the_reason(
    ask: Ask, tmp_path: Path
) -> None:
    def said(name: str, content: bytes | None) -> str:
        video = tmp_path / name
        if content is not None:
            video.write_bytes(content)
        kind, text = ask(video)["refused"]
        assert kind == "BadResult"
        assert text.startswith(f"{video}: ")
        return str(text)

    filters, arguments = CASES["untagged"]
    make(tmp_path / "whole.mp4", (98, 66), filters, [*arguments, "-movflags", "+faststart"])
    whole = (tmp_path / "whole.mp4").read_bytes()
    late = make(tmp_path / "late.mp4", (98, 66), filters, arguments).read_bytes()
    broken = bytes(
        byte ^ 0x5A if len(whole) // 2 < place < len(whole) // 2 + 400 else byte for place, byte in enumerate(whole)
    )
    ffmpeg("-f", "lavfi", "-i", "sine=duration=1", "-c:a", "aac", tmp_path / "sound.mp4")
    assert "isn't there" in said("missing.mp4", None)
    assert "is empty (0 bytes)" in said("empty.mp4", b"")
    assert "can't be read: PyAV says 'Invalid data" in said("text.mp4", b"no video\n" * 99)
    assert "can't be read: PyAV says 'Invalid data" in said("head.mp4", late[:300])
    assert "its header says 9" in said("cut.mp4", whole[: len(whole) * 2 // 3])
    # Whether the decoder gives up or hands over a frame with holes is not the same on every machine.
    assert re.search(
        r"can't be read: PyAV says 'Invalid data|this video is damaged: a part", said("broken.mp4", broken)
    )
    assert "it has no video track" in said("sound.mp4", (tmp_path / "sound.mp4").read_bytes())


def test_memory_holds_what_is_asked_for_however_long_the_video(tmp_path: Path) -> None:
    arguments: list[object] = ["-c:v", "libx264", "-preset", "ultrafast"]
    videos = [make(tmp_path / f"{frames}.mp4", (640, 360), "format=yuv420p", arguments, frames) for frames in (8, 240)]
    frames, short, long = answer(MEMORY, *videos)
    assert frames == 240
    assert long - short < 32, "MiB; all frames would be 158"
