"""Frames and videos: whole, as planned, and the same bytes wherever they are made."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetcraft.ground.errors import BadEnvironment, BadResult, Damaged
from fleetcraft.media.contact_sheet import contact_sheet
from fleetcraft.media.encoder import check_video, encode
from fleetcraft.media.ffmpeg import check_ffmpeg, ffmpeg_binary
from fleetcraft.media.frames import read_frames, write_frames
from fleetcraft.media.presets import encoder_settings
from fleetcraft.scoring import ssim
from fleetcraft.scoring.interface import Pair

SETTINGS = encoder_settings("h264-crf18", "x86_64" if os.uname().machine == "x86_64" else "aarch64")
WIDTH, HEIGHT, COUNT, FPS = 64, 48, 9, 8


def frames(seed: int = 0, count: int = COUNT) -> Iterator[NDArray[np.uint8]]:
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield generator.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def encoded(path: Path, seed: int = 0, crf: int = 18) -> Path:
    settings = encoder_settings("h264-crf18", os.uname().machine, crf)
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


def test_a_video_is_the_same_bytes_however_many_threads_the_environment_asks_for(tmp_path: Path) -> None:
    first = digest(encoded(tmp_path / "a.mp4"))
    code = "import test_media, pathlib, sys; test_media.encoded(pathlib.Path(sys.argv[1]))"
    for number, threads in enumerate(("1", "7")):
        path = tmp_path / f"{number}.mp4"
        environment = os.environ | {
            "OMP_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        subprocess.run([sys.executable, "-c", code, path], check=True, env=environment)
        assert digest(path) == first
    assert digest(encoded(tmp_path / "other.mp4", seed=1)) != first


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
    values = ssim.score(
        "ssim", [Pair("", video, baseline) for video in videos], {"ffmpeg_sha256": SETTINGS.ffmpeg_sha256}
    )
    assert values[0] == 1.0
    assert 1.0 > values[1] > values[2]


def test_a_contact_sheet_shows_a_row_a_prompt(tmp_path: Path) -> None:
    from PIL import Image

    video = encoded(tmp_path / "a.mp4")
    contact_sheet(tmp_path / "one.png", "Arm full", [("a prompt", video)])
    contact_sheet(tmp_path / "two.png", "Arm full", [("a prompt", video), ("a long prompt " * 20, video)])
    one, two = Image.open(tmp_path / "one.png"), Image.open(tmp_path / "two.png")
    assert one.width == two.width
    assert two.height > one.height
