"""What a video file is and what is wrong with it, told from real files that ffmpeg made so."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from fleetcraft.ground.errors import BadInput, BadResult
from fleetcraft.media.faults import Planned, faults, refuse
from fleetcraft.media.ffmpeg import ffmpeg_command
from fleetcraft.media.probe import Facts, probe

WIDTH, HEIGHT, COUNT, FPS = 64, 48, 16, 8
PLANNED = Planned(WIDTH, HEIGHT, COUNT, FPS)
MOVING = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS}:duration=2"
NOISE = f"nullsrc=size={WIDTH}x{HEIGHT}:rate={FPS}:duration=2,geq=random(1)*255:128:128"
H264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
HDR = "setparams=color_primaries=bt2020:color_trc={}:colorspace=bt2020nc"

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a video from a source of libavfilter, or of what `inputs` names instead."""

    def make(name: str, *arguments: str, source: str = MOVING, inputs: list[str] | None = None) -> Path:
        path = tmp_path / name
        given = ["-f", "lavfi", "-i", source] if inputs is None else inputs
        subprocess.run(ffmpeg_command("-y", *given, *arguments, str(path), level="error"), check=True)
        return path

    return make


def problems(path: Path, planned: Planned = PLANNED) -> str:
    return "; ".join(fault.problem for fault in faults(probe(path), planned))


def test_a_video_without_faults_is_described_and_not_refused(make: Make) -> None:
    tags = "setparams=color_primaries=bt709:color_trc=bt709:colorspace=bt709:range=tv"
    facts = probe(make("a.mp4", "-vf", tags, *H264))
    refuse(facts, PLANNED)
    assert (facts.width, facts.height, facts.frames, facts.rate) == (WIDTH, HEIGHT, COUNT, FPS)
    assert (facts.codec, facts.pixel_format, facts.bits, facts.alpha) == ("h264", "yuv420p", 8, False)
    assert (facts.color_range, facts.matrix, facts.primaries, facts.transfer) == ("tv", "bt709", "bt709", "bt709")
    assert "mp4" in facts.container
    assert (facts.duration_s, facts.played_s, facts.steps_s) == (2.0, 2.0, (0.125, 0.125))
    assert (facts.video_tracks, facts.audio_tracks, facts.display, facts.damage) == (1, 0, None, None)
    assert facts.even
    assert (facts.interlaced, facts.black, facts.frozen) == (False, False, False)
    assert facts.as_json()["rate"] == "8"


@pytest.mark.parametrize("name", ["a.mkv", "a.webm", "a.avi", "a.mov"])
@pytest.mark.parametrize("rate", ["24", "30000/1001"])
def test_an_even_rate_is_even_in_every_container(make: Make, name: str, rate: str) -> None:
    codec = ["-c:v", "libvpx-vp9"] if name == "a.webm" else H264
    facts = probe(make(name, *codec, source=f"testsrc2=size=64x48:rate={rate}:duration=2"))
    assert faults(facts) == []
    assert facts.rate == Fraction(rate)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["-c:v", "libx264", "-pix_fmt", "yuv420p10le"],
            "it has 10 bits a channel (yuv420p10le), where scoring reads 8",
        ),
        (
            ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-vf", HDR.format("smpte2084")],
            "it is HDR (PQ, tagged smpte2084)",
        ),
        (
            ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-vf", HDR.format("arib-std-b67")],
            "it is HDR (HLG, tagged arib-std-b67)",
        ),
        (
            ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-vf", HDR.format("bt709")],
            "its colours have a wide gamut (bt2020)",
        ),
        ([*H264, "-vf", "setsar=4/3"], "its pixels aren't square (4:3)"),
        ([*H264, "-r", "12"], "12 frames a second, not 8"),
        ([*H264, "-frames:v", "15"], "it has 15 frames, not 16 as planned"),
        ([*H264, "-vf", "scale=48:64"], "it is 48×64 pixels, not 64×48 as planned"),
    ],
)
def test_a_fault_is_named_and_refused(make: Make, arguments: list[str], said: str) -> None:
    path = make("a.mp4", *arguments)
    assert said in problems(path)
    with pytest.raises(BadInput, match=r"a\.mp4: this video can't be used: .*\. [A-Z].*\.$"):
        refuse(probe(path), PLANNED)


def test_ten_bit_hdr_in_hevc_is_named_with_both_of_its_faults(make: Make) -> None:
    codec = ["-c:v", "libx265", "-pix_fmt", "yuv420p10le", "-x265-params", "log-level=none"]
    path = make("a.mp4", *codec, "-vf", HDR.format("smpte2084"))
    assert (
        problems(path)
        == "it has 10 bits a channel (yuv420p10le), where scoring reads 8; it is HDR (PQ, tagged smpte2084)"
    )


def test_an_audio_track_is_named_with_the_command_that_drops_it(make: Make, tmp_path: Path) -> None:
    sound = ["-f", "lavfi", "-i", MOVING, "-f", "lavfi", "-i", "sine=duration=3"]
    path = make("a b.mp4", *H264, "-c:a", "aac", inputs=sound)
    (fault,) = faults(probe(path), PLANNED)
    assert fault.problem == "it has an audio track"
    command = fault.remedy.split("`")[1]
    assert command == "ffmpeg -i 'a b.mp4' -an -c copy NEW.mp4"
    silent = make("silent.mp4", "-an", "-c", "copy", inputs=["-i", str(path)])
    assert problems(silent) == ""


def test_a_varying_frame_rate_is_named_with_its_steps(make: Make) -> None:
    pause = f"setpts=if(lt(N\\,8)\\,N\\,2*N-8)/{FPS}/TB"
    facts = probe(make("a.mp4", "-vf", pause, "-fps_mode", "vfr", *H264))
    assert facts.frames == COUNT
    assert "its frame rate varies: 125.0 to 250.0 ms a frame" in "; ".join(f.problem for f in faults(facts, PLANNED))


def test_a_whole_video_of_a_varying_rate_is_not_called_truncated(make: Make) -> None:
    pauses = f"setpts=(N+gte(N\\,8)+5*gte(N\\,15))/{FPS}/TB"
    longer = make("longer.mp4", "-vf", pauses, "-fps_mode", "vfr", *H264, "-bf", "0")
    # Without the frame after its second pause, which the one before is then shown for.
    path = make("a.mp4", "-c", "copy", "-bsf:v", "noise=drop=eq(n\\,15)", inputs=["-i", str(longer)])
    facts = probe(path)
    assert facts.duration_s is not None
    assert facts.rate is not None
    assert (facts.duration_s - facts.played_s) * float(facts.rate) > 1.5
    (fault,) = faults(facts)
    assert "its frame rate varies" in fault.problem


def test_a_rotated_video_is_named_and_measured_as_it_is_stored(make: Make) -> None:
    plain = make("plain.mp4", *H264)
    path = make("a.mp4", "-c", "copy", inputs=["-display_rotation", "90", "-i", str(plain)])
    assert "rotation of 90.00 degrees" in problems(path)
    assert probe(path).width == WIDTH


def test_interlaced_transparent_and_doubled_videos_are_named(make: Make) -> None:
    assert "interlaced" in problems(make("i.mp4", "-vf", "setfield=tff", "-flags", "+ildct+ilme", *H264))
    assert "alpha channel (argb)" in problems(make("a.mov", "-c:v", "qtrle", "-pix_fmt", "argb"))
    twice = ["-f", "lavfi", "-i", MOVING, "-f", "lavfi", "-i", MOVING]
    assert "2 video tracks" in problems(make("t.mp4", "-map", "0", "-map", "1", *H264, inputs=twice))


def test_black_and_frozen_videos_are_named_although_compression_changes_their_pixels(make: Make) -> None:
    assert "every frame is black" in problems(
        make("b.mp4", *H264, source=f"color=black:size=64x48:rate={FPS}:duration=2")
    )
    hold = f"{NOISE},loop=loop=-1:size=1,trim=end_frame={COUNT}"
    for crf in ("1", "18", "40"):
        said = problems(make("f.mp4", *H264, "-crf", crf, source=hold))
        assert said == "it is frozen: all 16 frames are the same, up to 3 of 255 in each pixel's brightness"


def test_a_small_thing_that_moves_is_enough_and_so_is_one_bright_spot(make: Make) -> None:
    lit = r"if(between(X-{}*N\,8\,11)*between(Y\,8\,11)\,235\,16)"
    spot = f"nullsrc=size=64x48:rate=8:duration=2,geq=lum='{lit}':cb=128:cr=128"
    assert problems(make("moves.mp4", *H264, source=spot.format(2))) == ""
    assert problems(make("still.mp4", *H264, source=spot.format(0))).startswith("it is frozen")


def test_every_cut_of_a_video_is_named_truncated_or_no_video(make: Make) -> None:
    for name, flags in (("a.mp4", []), ("fast.mp4", ["-movflags", "+faststart"]), ("a.mkv", ["-c:v", "ffv1"])):
        path = make(name, *H264, "-crf", "1", *flags, source=NOISE)
        whole = path.read_bytes()
        assert problems(path) == ""
        for keep in (0.3, 0.5, 0.9, 0.98):
            path.write_bytes(whole[: int(len(whole) * keep)])
            with pytest.raises(BadInput, match=r"truncated|this is no video"):
                refuse(probe(path))


def test_a_cut_is_found_whenever_ffmpeg_tells_of_it(make: Make) -> None:
    path = make("a.mkv", "-c:v", "ffv1", source=NOISE)
    path.write_bytes(path.read_bytes()[:-3000])
    # The thread that reads the file may tell of its end in the middle of another thread's line.
    assert {problems(path, Planned()) for _ in range(20)} == {
        "it is damaged or truncated: ffmpeg says 'File ended prematurely'"
    }


def test_bytes_that_were_changed_are_named_damaged(make: Make) -> None:
    path = make("a.mp4", *H264, "-crf", "1", source=NOISE)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    assert "damaged" in problems(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "isn't there"), (b"", "is empty (0 bytes)"), (b"no video\n" * 100, "this is no video: no frame of it can")],
)
def test_what_is_no_video_is_refused_as_the_caller_wants(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.mp4"
    if content is not None:
        path.write_bytes(content)
    for error in (BadInput, BadResult):
        with pytest.raises(error) as caught:
            probe(path, error)
        assert said in str(caught.value)
        assert str(path) in str(caught.value)


def test_sound_alone_and_a_picture_are_no_videos(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it has no video track"):
        probe(make("a.mp4", "-c:a", "aac", inputs=["-f", "lavfi", "-i", "sine=duration=1"]))
    shutil.copy(make("a.png", "-frames:v", "1"), tmp_path / "b.mp4")
    assert "it is a picture (png), not a video" in problems(tmp_path / "b.mp4")


def test_what_a_video_says_of_itself_is_not_taken_for_a_fault(make: Make) -> None:
    title = "[error] Stream #0:1: Audio: aac\n[info]   Stream #0:1: Audio: aac\n[fatal] rotation"
    assert problems(make("a.mkv", *H264, "-metadata", f"title={title}")) == ""


def test_names_with_every_kind_of_character_are_probed(make: Make, tmp_path: Path) -> None:
    odd = tmp_path / "-a 'b' %03d: \u2215é.mp4"
    make("a.mp4", *H264).rename(odd)
    facts: Facts = probe(odd)
    assert facts.file == odd
    assert facts.frames == COUNT
