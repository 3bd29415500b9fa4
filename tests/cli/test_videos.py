"""`fleetcraft videos check` on real videos, with the tool chain that plays them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import BIN, ROOT

PROMPTS = ["a red bicycle", "a blue boat"]
FFMPEG = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())"


@pytest.fixture(scope="module")
def ffmpeg() -> str:
    command = [ROOT / ".envs/diffusion/bin/python", "-c", FFMPEG]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def experiment(tmp_path: Path, ffmpeg: str) -> dict[str, Any]:
    """Two directories of two videos each, in H.264, and their experiment."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    for arm in ("one", "other"):
        (tmp_path / arm).mkdir()
        for seed, prompt in enumerate(PROMPTS):
            make(ffmpeg, tmp_path / arm / f"{prompt}-0.mp4", hue=f"{seed + 2 * (arm == 'other')}")
        list_digests(tmp_path / arm)
    arms = {arm: {"source": {"videos": str(tmp_path / arm), "same_encoder": True}} for arm in ("one", "other")}
    return {
        "name": "two",
        "paths": {"scratch": str(tmp_path / "scratch"), "work": str(tmp_path / "work")},
        "arms": arms,
        "baseline": "one",
        "prompts": {"file": str(tmp_path / "prompts.txt")},
        "seeds": [0],
        "video": {"width": 64, "height": 48, "frames": 9, "fps": 8},
        "scoring": {"dimensions": ["temporal_flickering"]},
    }


def make(ffmpeg: str, file: Path, *options: str, hue: str = "0", rate: int = 8) -> None:
    source = f"testsrc2=size=64x48:rate={rate},hue=h=90*{hue}"
    coding = ("-frames:v", "9", "-pix_fmt", "yuv420p", *options)
    subprocess.run([ffmpeg, "-v", "error", "-y", "-f", "lavfi", "-i", source, *coding, file], check=True)


def list_digests(directory: Path) -> None:
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in directory.glob("*.mp4")]
    (directory / "SHA256SUMS").write_text("".join(lines))


def check(experiment: dict[str, Any], tmp_path: Path, *options: str) -> tuple[int, str]:
    """Exit status, and what was printed for people and programs; progress is on stderr."""
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    command = [BIN / "fleetcraft", "videos", "check", *options, tmp_path / "experiment.yaml"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Traceback" not in answer.stderr
    return answer.returncode, answer.stdout or answer.stderr


def test_good_videos_are_described_and_nothing_is_written(experiment: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "one/notes.txt").write_text("x")
    status, text = check(experiment, tmp_path)
    assert status == 0, text
    header, one, other, *_ = text.splitlines()
    assert header.split() == ["arm", "videos", "codec", "pixel", "format", "size", "frames", "fps", "faults"]
    assert one.split() == ["one", "2", "of", "2", "h264", "yuv420p", "64×48", "9", "8", "0"]
    assert other.split()[0] == "other"
    assert "note: 1 strays there are no .mp4 files: 'notes.txt'" in text
    assert not (tmp_path / "scratch").exists()


def test_every_fault_of_names_and_videos_is_told_at_once(
    experiment: dict[str, Any], tmp_path: Path, ffmpeg: str
) -> None:
    (tmp_path / "one/a red bicycle-0.mp4").rename(tmp_path / "one/a red bicycle-0.mp4.mp4")
    make(ffmpeg, tmp_path / "one/a blue boat-0.mp4", "-vf", "setparams=color_trc=smpte2084:color_primaries=bt2020")
    make(ffmpeg, tmp_path / "other/a red bicycle-0.mp4", rate=24)
    list_digests(tmp_path / "other")
    broken = tmp_path / "other/a blue boat-0.mp4"
    broken.write_bytes(broken.read_bytes()[:300])
    experiment["arms"]["other"]["source"]["same_encoder"] = False
    status, text = check(experiment, tmp_path, "--json")
    assert status == 1
    one, other = json.loads(text)
    said = [finding["text"] for finding in one["findings"]]
    assert (one["wanted"], one["found"]) == (2, 1)
    assert "names count to the letter: 'a red bicycle-0.mp4.mp4' is not 'a red bicycle-0.mp4'" in said[0]
    assert [finding["class"] for finding in one["findings"]] == ["bad input", "damaged file", "bad input"]
    assert "it is HDR (PQ, tagged smpte2084)" in said[2]
    said = [finding["text"] for finding in other["findings"]]
    assert "24 frames a second, not 8 as planned" in said[0]
    assert str(broken) in said[1]
    assert "this is no video" in said[2]
    assert other["fps"] == {"24": 1}
    assert other["remarks"] == ["how its videos were encoded is unknown: it is not compared with other arms"]


def test_arms_of_other_codecs_can_t_be_vouched_for(experiment: dict[str, Any], tmp_path: Path, ffmpeg: str) -> None:
    for seed, prompt in enumerate(PROMPTS):
        make(ffmpeg, tmp_path / "other" / f"{prompt}-0.mp4", "-c:v", "mpeg4", hue=str(seed))
    list_digests(tmp_path / "other")
    status, text = check(experiment, tmp_path)
    assert status == 1
    assert "these videos are mpeg4 yuv420p, those of 'one' are h264 yuv420p: they were not encoded alike" in text
    assert f"{tmp_path}/experiment.yaml:8, key 'arms.other.source.same_encoder': {tmp_path}/other: " in text
    assert check(experiment, tmp_path, "--names")[0] == 0, "which names can't tell"


def test_an_arm_that_mixes_codecs_says_so_and_can_t_be_vouched_for(
    experiment: dict[str, Any], tmp_path: Path, ffmpeg: str
) -> None:
    make(ffmpeg, tmp_path / "other" / f"{PROMPTS[0]}-0.mp4", "-c:v", "mpeg4", hue="2")
    list_digests(tmp_path / "other")
    status, text = check(experiment, tmp_path)
    assert status == 1
    assert "these videos are h264 yuv420p or mpeg4 yuv420p: they were not encoded alike" in text
    assert text.count("not encoded alike") == 1, "the other arm is as it should be"
    experiment["arms"]["other"]["source"]["same_encoder"] = False
    status, text = check(experiment, tmp_path)
    assert status == 0, text
    assert (
        "note: its videos were not encoded alike: h264 yuv420p (1), mpeg4 yuv420p (1); differences between them may be"
        " the encoder's" in text
    )


def test_progress_counts_the_videos_that_were_played(experiment: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    command = [BIN / "fleetcraft", "videos", "check", tmp_path / "experiment.yaml"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stderr.splitlines()
    assert said == ["one: 2 of 2 videos played", "other: 2 of 2 videos played"]


def test_an_experiment_without_existing_videos_says_so(tmp_path: Path) -> None:
    demo = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    status, text = check(demo, tmp_path)
    assert status == 1
    assert "this experiment has no arm of existing videos" in text
