"""Frames and videos: whole, as planned, and the same bytes wherever they are made."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
import pytest
from numpy.typing import NDArray
from scores import listed

from fleetcraft.ground.errors import BadEnvironment, BadResult, Damaged
from fleetcraft.media.contact_sheet import Tile, contact_sheet, draw_sheet, middle_frame
from fleetcraft.media.encoder import check_video, encode
from fleetcraft.media.ffmpeg import check_ffmpeg, ffmpeg_binary
from fleetcraft.media.frames import read_frames, write_frames
from fleetcraft.media.presets import encoder_settings
from fleetcraft.media.probe import probe
from fleetcraft.scoring import ssim
from fleetcraft.scoring.interface import Pair
from fleetcraft.stages import candidate_sheet

SETTINGS = encoder_settings("h264-crf18", "x86_64" if os.uname().machine == "x86_64" else "aarch64")
WIDTH, HEIGHT, COUNT, FPS = 64, 48, 9, 8
PRESETS = ["h264-crf18", "imageio-quality", "lossless"]


def frames(seed: int = 0, count: int = COUNT) -> Iterator[NDArray[np.uint8]]:
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield generator.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def encoded(path: Path, seed: int = 0, crf: int | None = None, preset: str = "h264-crf18") -> Path:
    settings = encoder_settings(preset, os.uname().machine, crf)
    assert encode(path, frames(seed), WIDTH, HEIGHT, FPS, settings) == COUNT
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_frames_are_read_as_they_were_written(tmp_path: Path) -> None:
    chunks = np.stack(list(frames()))
    write_frames(tmp_path / "a.npy", iter([chunks[:4], chunks[4:]]), (COUNT, HEIGHT, WIDTH))
    assert np.array_equal(np.stack(list(read_frames(tmp_path / "a.npy"))), chunks)
    assert np.array_equal(np.load(tmp_path / "a.npy"), chunks), "and NumPy reads the file"


@pytest.mark.parametrize(
    ("shape", "said"),
    [((COUNT + 1, HEIGHT, WIDTH), "9 frames, 10 were planned"), ((COUNT, WIDTH, HEIGHT), "64×48 pixels, 48×64")],
)
def test_frames_that_are_not_as_planned_are_refused(tmp_path: Path, shape: tuple[int, int, int], said: str) -> None:
    with pytest.raises(BadResult, match=said):
        write_frames(tmp_path / "a.npy", iter([np.stack(list(frames()))]), shape)


def test_black_frames_are_refused_and_one_bright_pixel_is_enough(tmp_path: Path) -> None:
    black = np.full((COUNT, HEIGHT, WIDTH, 3), 8, np.uint8)
    with pytest.raises(BadResult, match="every frame is black"):
        write_frames(tmp_path / "a.npy", iter([black]), (COUNT, HEIGHT, WIDTH))
    black[4, 3, 2, 1] = 9
    write_frames(tmp_path / "a.npy", iter([black]), (COUNT, HEIGHT, WIDTH))


def test_truncated_frames_are_named_with_the_frame_that_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    write_frames(file, iter([np.stack(list(frames()))]), (COUNT, HEIGHT, WIDTH))
    file.write_bytes(file.read_bytes()[: -HEIGHT * WIDTH * 3 - 1])
    with pytest.raises(Damaged, match=r"a\.npy.*ends in frame 7 of 9"):
        list(read_frames(file))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_video_is_the_same_bytes_however_many_threads_the_environment_asks_for(tmp_path: Path, preset: str) -> None:
    first = digest(encoded(tmp_path / "a.mp4", preset=preset))
    assert digest(encoded(tmp_path / "again.mp4", preset=preset)) == first
    code = "import test_media, pathlib, sys; test_media.encoded(pathlib.Path(sys.argv[1]), preset=sys.argv[2])"
    path = tmp_path / "7.mp4"
    environment = os.environ | {
        "OMP_NUM_THREADS": "7",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    subprocess.run([sys.executable, "-c", code, path, preset], check=True, env=environment)
    assert digest(path) == first
    assert digest(encoded(tmp_path / "other.mp4", seed=1, preset=preset)) != first


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_videos_without_faults_that_hold_no_word_of_the_encoder(tmp_path: Path, preset: str) -> None:
    path = encoded(tmp_path / "a.mp4", preset=preset)
    check_video(path, WIDTH, HEIGHT, COUNT, FPS)
    assert b"Lavf" not in path.read_bytes()


def played(path: Path) -> NDArray[np.uint8]:
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def test_lossless_video_is_bit_equal_to_the_frames(tmp_path: Path) -> None:
    assert np.array_equal(played(encoded(tmp_path / "a.mp4", preset="lossless")), np.stack(list(frames())))


@pytest.mark.parametrize("quality", [2, 5, 8.5, 10])
def test_the_imageio_preset_compresses_as_imageio_does(tmp_path: Path, quality: float) -> None:
    gradient = np.linspace(0, 255, 64 * 48 * 3, dtype=np.uint8).reshape(48, 64, 3)
    colors = [np.roll(gradient, 3 * index, axis=1) for index in range(COUNT)]
    imageio.mimwrite(tmp_path / "theirs.mp4", colors, fps=FPS, quality=quality, codec="libx264")
    settings = encoder_settings("imageio-quality", os.uname().machine, quality=quality)
    encode(tmp_path / "ours.mp4", iter(colors), WIDTH, HEIGHT, FPS, settings)
    theirs, ours = (tmp_path / "theirs.mp4").read_bytes(), (tmp_path / "ours.mp4").read_bytes()
    x264 = [dict(re.findall(rb"(crf|bframes|keyint|me|subme|ref)=(\S+)", video)) for video in (theirs, ours)]
    assert x264[0] == x264[1]
    assert float(x264[1].get(b"crf", 0)) == settings.crf, "x264 names no factor where nothing is lost"
    tags = [probe(tmp_path / name) for name in ("theirs.mp4", "ours.mp4")]
    assert (
        len({(facts.pixel_format, facts.color_range, facts.matrix, facts.primaries, facts.transfer) for facts in tags})
        == 1
    )
    apart = np.abs(played(tmp_path / "theirs.mp4").astype(int) - played(tmp_path / "ours.mp4"))
    assert apart.mean() < 2, "the scaler rounds more exactly, and nothing else differs"


def test_a_video_is_as_planned(tmp_path: Path) -> None:
    check_video(encoded(tmp_path / "a.mp4"), WIDTH, HEIGHT, COUNT, FPS)


@pytest.mark.parametrize(
    "planned", [(WIDTH + 2, HEIGHT, COUNT, FPS), (WIDTH, HEIGHT, COUNT - 1, FPS), (WIDTH, HEIGHT, COUNT, FPS + 1)]
)
def test_a_video_of_another_size_length_or_rate_is_refused(tmp_path: Path, planned: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadResult, match=r"a\.mp4: .* not .* as planned"):
        check_video(encoded(tmp_path / "a.mp4"), *planned)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.95])
def test_a_truncated_video_is_refused(tmp_path: Path, keep: float) -> None:
    path = encoded(tmp_path / "a.mp4")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(BadResult, match=r"a\.mp4"):
        check_video(path, WIDTH, HEIGHT, COUNT, FPS)


def test_the_binary_that_ships_is_the_declared_one() -> None:
    check_ffmpeg(SETTINGS.ffmpeg_sha256)
    path, found = ffmpeg_binary()
    assert digest(Path(path)) == found
    with pytest.raises(BadEnvironment, match="not the one that the encoder settings declare"):
        check_ffmpeg("0" * 64)


def test_structural_similarity_is_one_for_the_same_and_falls_with_compression(tmp_path: Path) -> None:
    baseline = encoded(tmp_path / "baseline.mp4")
    videos = [encoded(tmp_path / "same.mp4"), encoded(tmp_path / "30.mp4", crf=30), encoded(tmp_path / "other.mp4", 1)]
    values = listed(ssim)(
        "ssim", [Pair("", video, baseline) for video in videos], {"ffmpeg_sha256": SETTINGS.ffmpeg_sha256}
    )
    assert values[0] == 1.0
    assert 1.0 > values[1] > values[2]


def test_a_colon_in_a_path_is_no_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    encoded(tmp_path / "a:b/c.mp4")
    monkeypatch.chdir(tmp_path)
    video = Path("a:b/c.mp4")
    assert listed(ssim)("ssim", [Pair("", video, video)], {"ffmpeg_sha256": SETTINGS.ffmpeg_sha256}) == [1.0]


def test_below_a_candidate_is_a_line_for_each_round_and_no_title_is_cut(tmp_path: Path) -> None:
    from PIL import Image

    assert candidate_sheet.values_of({"value": 0.78714, "then": [0.5, None]}) == "0.7871\nthen 0.5\nthen none"
    frame = middle_frame(encoded(tmp_path / "a.mp4"))
    sizes = {}
    for name, title, label in (("one", "short", "a"), ("more", "short", "a\nb"), ("long", "a long title " * 9, "a")):
        draw_sheet(tmp_path / f"{name}.png", title, [("a prompt", [Tile(frame, label)])])
        sizes[name] = Image.open(tmp_path / f"{name}.png").size
    assert sizes["more"][0] == sizes["one"][0] == sizes["long"][0]
    assert min(sizes["more"][1], sizes["long"][1]) > sizes["one"][1]


def test_a_contact_sheet_shows_a_row_a_prompt(tmp_path: Path) -> None:
    from PIL import Image

    video = encoded(tmp_path / "a.mp4")
    contact_sheet(tmp_path / "one.png", "Arm full", [("a prompt", video)])
    contact_sheet(tmp_path / "two.png", "Arm full", [("a prompt", video), ("a long prompt " * 20, video)])
    one, two = Image.open(tmp_path / "one.png"), Image.open(tmp_path / "two.png")
    assert one.width == two.width
    assert two.height > one.height
