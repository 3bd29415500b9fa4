"""The stage that scores leaves each score in the store as soon as it is known, and tells loading from scoring."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_xclip import FRAMES, write_xclip

from fleetcraft.ground.records import read_records
from fleetcraft.media.encoder import encode
from fleetcraft.media.playing import play
from fleetcraft.media.presets import encoder_settings
from fleetcraft.mirror.sums import read_sums
from fleetcraft.scoring import frame_difference
from fleetcraft.stages import score
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store

ENCODER = encoder_settings("lossless", os.uname().machine)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with four videos."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Store(tmp_path / "store")
    for number in range(4):
        video = tmp_path / f"{number}.mp4"
        frames = np.random.default_rng(number).integers(0, 255, (9, 32, 48, 3), dtype=np.uint8)
        encode(video, iter(frames), 48, 32, 8, ENCODER)
        found.commit("videos", f"video{number}", {}, lambda file, video=video: shutil.copy(video, file))
    return found


def job(store: Store, dimension: str, numbers: range, **settings: Any) -> Job:
    samples = [
        {"arm": "full", "sample": f"s{n}", "prompt": "a red bicycle", "seed": n, "baseline_video": None}
        | {"video": f"video{n}", "score": f"{dimension}{n}"}
        for n in numbers
    ]
    known = {"dimension": dimension, "ffmpeg_sha256": ENCODER.ffmpeg_sha256}
    output = str(store.root.parent / "scores.jsonl")
    return Job("score", "diffusion", (), str(store.root), output, samples=tuple(samples), settings=known | settings)


def test_what_was_scored_before_an_interruption_is_not_scored_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = job(store, "mean_frame_difference", range(4), scorer="frame_difference")
    played: list[Path] = []

    def interrupted(video: Path, matrix: str | None) -> Iterator[Any]:
        played.append(video)
        if len(played) == 3:
            raise KeyboardInterrupt
        return play(video, matrix)

    with monkeypatch.context() as patched:
        patched.setattr(frame_difference, "play", interrupted)
        with pytest.raises(KeyboardInterrupt):
            score.run(asked)
    score.run(asked)
    assert "4 samples, 2 in the store, 2 to make" in capsys.readouterr().out
    assert [record["sample"] for record in read_records(Path(asked.output))] == ["s0", "s1", "s2", "s3"]


def test_a_model_is_loaded_once_and_that_is_no_part_of_what_scoring_takes(store: Store, tmp_path: Path) -> None:
    model = write_xclip(tmp_path / "xclip")
    weights = {"directory": str(model), "files": read_sums(model)}
    read = {"frames": FRAMES, "of_frames": 9, "long_prompts": "refuse", "dtype": "float32", "weights": weights}
    where = {"device": "cpu", "hardware": None}
    asked = job(store, "alignment", range(4), scorer="xclip", **read, **where)
    score.run(asked)
    seconds = [record["seconds"] for record in read_records(Path(asked.output))]
    assert [set(one) for one in seconds] == [{"load", "score"}] * 4
    assert len({one["load"] for one in seconds}) == 1
    assert len({one["score"] for one in seconds}) > 1, "each has its own"
