"""The difference of consecutive frames is NumPy's, of the frames that were encoded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scores import listed

from fleetcraft.ground.errors import BadResult
from fleetcraft.media.encoder import encode
from fleetcraft.media.playing import play
from fleetcraft.media.presets import encoder_settings
from fleetcraft.scoring import frame_difference
from fleetcraft.scoring.interface import Pair

score = listed(frame_difference)

WIDTH, HEIGHT, COUNT = 96, 64, 7
SETTINGS = {"ffmpeg_sha256": encoder_settings("lossless", os.uname().machine).ffmpeg_sha256}


@pytest.fixture(scope="module")
def frames() -> NDArray[np.uint8]:
    """A still picture with noise that changes."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    still = np.stack([x * 2.5, y * 3.5, 255 - x * 2.5], axis=-1)
    noise = np.random.default_rng(0).normal(0, 6, (COUNT, HEIGHT, WIDTH, 3))
    return np.clip(still + noise, 0, 255).astype(np.uint8)


def encoded(path: Path, frames: NDArray[np.uint8], preset: str, **knob: int) -> Path:
    encode(path, iter(frames), WIDTH, HEIGHT, 8, encoder_settings(preset, os.uname().machine, **knob))
    return path


def test_a_lossless_video_plays_as_the_frames_that_were_encoded(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "lossless")
    assert np.array_equal(np.stack(list(play(video))), frames)
    first = next(iter(play(video)))
    assert np.array_equal(first, frames[0]), "and nobody has to see all of it"


def test_the_difference_is_the_mean_over_pixels_channels_and_steps(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "lossless")
    expected = np.abs(np.diff(frames.astype(int), axis=0)).mean()
    assert score("mean_frame_difference", [Pair("", video, None)], SETTINGS) == [pytest.approx(expected, rel=1e-12)]


def test_heavier_compression_makes_a_video_steadier(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    videos = [encoded(tmp_path / f"{crf}.mp4", frames, "h264-crf18", crf=crf) for crf in (5, 18, 32)]
    values = score("mean_frame_difference", [Pair("", video, None) for video in videos], SETTINGS)
    assert values == sorted(values, reverse=True)
    assert values[0] > 2 * values[2]


def test_a_single_frame_and_a_damaged_video_are_named(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    sound = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    one = encoded(tmp_path / "one.mp4", frames[:1], "h264-crf18")
    broken, data = tmp_path / "broken.mp4", sound.read_bytes()
    broken.write_bytes(data[: int(0.7 * len(data))])
    single, damaged, value = score(
        "mean_frame_difference", [Pair("", path, None) for path in (one, broken, sound)], SETTINGS
    )
    assert isinstance(single, BadResult)
    assert f"{one}: this video has fewer than two frames" in str(single)
    assert isinstance(damaged, BadResult)
    assert f"{broken}: this video can't be played to its end" in str(damaged)
    assert isinstance(value, float), "the others go on"
