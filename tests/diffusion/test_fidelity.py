"""What is measured of two encodings is what NumPy finds, and what is not measured is not a number."""

from __future__ import annotations

import os
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from numpy.typing import NDArray
from scores import listed

from fleetcraft.ground.errors import BadEnvironment, BadResult
from fleetcraft.media import fidelity
from fleetcraft.media.encoder import encode
from fleetcraft.media.fidelity import PAIRS, measure, mse
from fleetcraft.media.presets import encoder_settings
from fleetcraft.scoring import fidelity as scorer_of_fidelity
from fleetcraft.scoring import ssim
from fleetcraft.scoring.fidelity import HIGHEST_PSNR
from fleetcraft.scoring.interface import Pair

score = listed(scorer_of_fidelity)

WIDTH, HEIGHT, COUNT, FPS = 96, 64, 7, 8
SETTINGS = {"ffmpeg_sha256": encoder_settings("lossless", os.uname().machine).ffmpeg_sha256}


@pytest.fixture(scope="module")
def frames() -> NDArray[np.uint8]:
    """Coloured gradients that move, with noise."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    generator = np.random.default_rng(0)
    still = np.stack([x * 2.5, y * 3.5, 255 - x * 2.5], axis=-1)
    moving = [np.roll(still, 4 * index, axis=1) + generator.normal(0, 5, still.shape) for index in range(COUNT)]
    return np.clip(np.stack(moving), 0, 255).astype(np.uint8)


def encoded(path: Path, frames: NDArray[np.uint8], preset: str, **knob: float) -> Path:
    encode(path, iter(frames), WIDTH, HEIGHT, FPS, encoder_settings(preset, os.uname().machine, **knob))  # type: ignore[arg-type]
    return path


def played(path: Path) -> NDArray[np.uint8]:
    reader = imageio_ffmpeg.read_frames(str(path))
    next(reader)
    return np.stack([np.frombuffer(frame, np.uint8).reshape(HEIGHT, WIDTH, 3) for frame in reader])


def squared(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    return float(np.mean((one.astype(float) - other) ** 2))


def test_the_measures_are_those_of_the_decoded_pixels(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    declared = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    compared = encoded(tmp_path / "b.mp4", frames, "imageio-quality", quality=2)
    found = measure(iter(frames), WIDTH, HEIGHT, declared, compared)
    assert [(row["of"], row["against"]) for row in found] == list(PAIRS)
    pixels = {"frames": frames, "declared": played(declared), "compared": played(compared)}
    for row, (of, against) in zip(found, PAIRS, strict=True):
        assert row["mse"] == pytest.approx(squared(pixels[of], pixels[against]), rel=1e-4)
    close, far, apart = found
    for name in ("ssim", "vmaf"):
        assert close[name] > far[name]  # type: ignore[operator]
    assert apart["mse"] > 0  # type: ignore[operator]
    assert measure(iter(frames), WIDTH, HEIGHT, declared, compared) == found, "and the same each time"


def test_a_lossless_video_is_its_frames_and_measures_the_other_one_alike(
    tmp_path: Path, frames: NDArray[np.uint8]
) -> None:
    declared = encoded(tmp_path / "a.mp4", frames, "lossless")
    compared = encoded(tmp_path / "b.mp4", frames, "h264-crf18", crf=30)
    itself, to_frames, to_declared = measure(iter(frames), WIDTH, HEIGHT, declared, compared)
    assert (itself["mse"], itself["ssim"]) == (0.0, 1.0)
    assert [to_frames[name] for name in ("mse", "ssim", "vmaf")] == [
        to_declared[name] for name in ("mse", "ssim", "vmaf")
    ]


def test_what_this_ffmpeg_has_no_filter_for_is_not_measured(
    tmp_path: Path, frames: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    with_all = measure(iter(frames), WIDTH, HEIGHT, video, video)
    monkeypatch.setattr(fidelity, "_filters", lambda: {"psnr", "ssim"})
    without = measure(iter(frames), WIDTH, HEIGHT, video, video)
    assert [row["vmaf"] for row in without] == [None] * 3
    assert [row["ssim"] for row in without] == [row["ssim"] for row in with_all]


def test_a_video_that_can_not_be_read_is_named(tmp_path: Path, frames: NDArray[np.uint8]) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    broken = tmp_path / "b.mp4"
    broken.write_bytes(video.read_bytes()[:300])
    with pytest.raises(BadResult, match=r"b\.mp4: ffmpeg could not measure"):
        measure(iter(frames), WIDTH, HEIGHT, video, broken)


def test_an_arm_is_measured_against_its_baseline_as_encodings_are_against_each_other(
    tmp_path: Path, frames: NDArray[np.uint8]
) -> None:
    declared = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    compared = encoded(tmp_path / "b.mp4", frames, "imageio-quality", quality=2)
    *_, expected = measure(iter(frames), WIDTH, HEIGHT, declared, compared)
    pairs = [Pair("", compared, declared), Pair("", declared, declared)]
    psnr, identical = score("psnr", pairs, SETTINGS)
    assert mse(psnr) == expected["mse"] == pytest.approx(squared(played(compared), played(declared)), rel=1e-4)
    assert identical == HIGHEST_PSNR, "the same pixels have a number too"
    vmaf, highest = score("vmaf", pairs, SETTINGS)
    assert vmaf == expected["vmaf"] < 90 < highest <= 100
    assert score("vmaf", pairs[::-1], SETTINGS) == [highest, vmaf]


def test_a_dimension_that_this_ffmpeg_can_not_measure_is_refused(
    tmp_path: Path, frames: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    monkeypatch.setattr(fidelity, "_filters", lambda: {"psnr", "ssim"})
    with pytest.raises(BadEnvironment, match=r"ffmpeg.*can't measure vmaf.*libvmaf.*Leave vmaf out"):
        score("vmaf", [Pair("", video, video)], SETTINGS)


@pytest.mark.parametrize("kept", [300, 0.7])
def test_a_damaged_video_gets_no_score(tmp_path: Path, frames: NDArray[np.uint8], kept: float) -> None:
    video = encoded(tmp_path / "a.mp4", frames, "h264-crf18")
    broken, data = tmp_path / "b.mp4", video.read_bytes()
    broken.write_bytes(data[: int(kept if kept > 1 else kept * len(data))])
    sound = Pair("", video, video)
    for pair in (Pair("", broken, video), Pair("", video, broken)):
        for dimension, scorer in (("psnr", score), ("vmaf", score), ("ssim", listed(ssim))):
            before, error, after = scorer(dimension, [sound, pair, sound], SETTINGS)
            assert isinstance(error, BadResult)
            assert "could not compare" in str(error)
            assert str(video) in str(error)
            assert before == after, "the others go on"
            assert isinstance(before, float)
