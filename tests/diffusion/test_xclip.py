"""A verifier gives every video a score of its own: of its frames, its prompt and the listed weights."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import list_digests
from safetensors.torch import load_file, save_file
from scores import listed
from tiny_xclip import DEVIATION, FRAMES, MEAN, SIZE, write_xclip
from transformers import AutoTokenizer, XCLIPModel

from fleetcraft.ground.errors import BadInput, BadResult, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.media.encoder import encode
from fleetcraft.media.playing import play
from fleetcraft.media.presets import encoder_settings
from fleetcraft.mirror.inspection import inspect_model
from fleetcraft.mirror.sums import read_sums
from fleetcraft.pipelines import numerics
from fleetcraft.scoring import xclip
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.verifiers import VERIFIERS

score = listed(xclip)

COUNT = 9
FFMPEG = encoder_settings("lossless", os.uname().machine).ffmpeg_sha256
PROMPTS = ("a red bicycle", "a blue boat", "a green kite")


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    numerics.pin("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_xclip(tmp_path_factory.mktemp("xclip"))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Lossless, as large as the model reads: what it sees are the frames."""
    generator, directory = np.random.default_rng(0), tmp_path_factory.mktemp("videos")
    paths = [directory / f"{number}.mp4" for number in range(3)]
    for path in paths:
        frames = generator.integers(0, 256, (COUNT, SIZE, SIZE, 3)).astype(np.uint8)
        encode(path, iter(frames), SIZE, SIZE, 8, encoder_settings("lossless", os.uname().machine))
    return paths


def settings(model: Path, **changes: Any) -> dict[str, Any]:
    about = {"dtype": "float32", "device": "cpu", "frames": FRAMES, "of_frames": COUNT, "long_prompts": "refuse"}
    weights = {"directory": str(model), "files": read_sums(model)}
    return {"ffmpeg_sha256": FFMPEG, "weights": weights, **about, **changes}


def pairs(videos: list[Path]) -> list[Pair]:
    return [Pair(prompt, video, None) for prompt, video in zip(PROMPTS, videos, strict=True)]


def test_a_score_is_the_model_s_similarity_of_frames_in_the_middles_of_equal_parts(
    model: Path, videos: list[Path]
) -> None:
    (found,) = score("alignment", pairs(videos)[:1], settings(model))
    frames = np.stack(list(play(videos[0])))[[1, 3, 5, 7]]
    pixels = (frames / 255 - np.array(MEAN)) / np.array(DEVIATION)
    loaded = XCLIPModel.from_pretrained(model).eval()
    tokens = AutoTokenizer.from_pretrained(model)(PROMPTS[0], return_tensors="pt").input_ids
    with torch.inference_mode():
        outputs = loaded(
            input_ids=tokens, pixel_values=torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2)[None]
        )
        expected = float(outputs.logits_per_video[0, 0] / loaded.logit_scale.exp())
    assert found == pytest.approx(expected, abs=1e-5)
    assert -1 <= found <= 1


def test_no_score_depends_on_the_others_of_a_job_or_on_their_order(model: Path, videos: list[Path]) -> None:
    together = score("alignment", pairs(videos), settings(model))
    assert score("alignment", pairs(videos)[::-1], settings(model)) == together[::-1]
    assert [score("alignment", [pair], settings(model))[0] for pair in pairs(videos)] == together
    assert len(set(together)) == 3


def test_a_score_is_of_the_video_the_prompt_the_weights_and_their_type(
    model: Path, videos: list[Path], tmp_path: Path
) -> None:
    (first,) = score("alignment", [Pair(PROMPTS[0], videos[0], None)], settings(model))
    (prompt,) = score("alignment", [Pair(PROMPTS[1], videos[0], None)], settings(model))
    (video,) = score("alignment", [Pair(PROMPTS[0], videos[1], None)], settings(model))
    (weights,) = score("alignment", [Pair(PROMPTS[0], videos[0], None)], settings(write_xclip(tmp_path / "x", 1)))
    (rounded,) = score("alignment", [Pair(PROMPTS[0], videos[0], None)], settings(model, dtype="bfloat16"))
    assert len({first, prompt, video, weights, rounded}) == 5
    assert rounded == pytest.approx(first, abs=0.05)


def test_weights_that_are_not_as_listed_or_not_whole_are_refused(videos: list[Path], tmp_path: Path) -> None:
    damaged = write_xclip(tmp_path / "damaged")
    before = settings(damaged)
    file = damaged / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(CorruptWeights, match=r"model\.safetensors.*not the listed one"):
        score("alignment", pairs(videos), before)
    tensors = load_file(write_xclip(tmp_path / "lacking") / "model.safetensors")
    del tensors["visual_projection.weight"]
    save_file(tensors, tmp_path / "lacking/model.safetensors", metadata={"format": "pt"})
    list_digests(tmp_path / "lacking")
    with pytest.raises(MissingWeights, match=r"tensors of the verifier are missing.*visual_projection\.weight"):
        score("alignment", pairs(videos), settings(tmp_path / "lacking"))


def test_frames_that_are_prepared_for_another_model_are_refused(videos: list[Path], tmp_path: Path) -> None:
    model = write_xclip(tmp_path)
    file = model / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"crop_size": {"height": 16, "width": 16}}))
    list_digests(model)
    with pytest.raises(CorruptWeights, match=r"preprocessor_config.*\[3, 16, 16\].*\[3, 32, 32\]"):
        score("alignment", pairs(videos), settings(model))


def test_a_prompt_that_is_too_long_is_refused_or_cut(
    model: Path, videos: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    long = "kite " * 40
    refused, other = score("alignment", [Pair(long, videos[0], None), *pairs(videos)[1:2]], settings(model))
    assert isinstance(refused, BadInput)
    assert re.search(r"alignment reads 77 of .* tokens of this prompt.*long: cut", str(refused))
    assert isinstance(other, float)
    (cut,) = score("alignment", [Pair(long, videos[0], None)], settings(model, long_prompts="cut"))
    assert "alignment reads 77 of" in capsys.readouterr().out
    assert -1 <= cut <= 1


def test_a_video_of_another_length_than_planned_is_named(model: Path, videos: list[Path]) -> None:
    (error,) = score("alignment", pairs(videos)[:1], settings(model, of_frames=12))
    assert isinstance(error, BadResult)
    assert f"{videos[0]}: 4 frames of 12 were wanted, and this video has 9" in str(error)


def test_what_its_class_saves_is_whole_to_the_plan(model: Path) -> None:
    known = VERIFIERS["xclip"]
    inspection = inspect_model(model, known.model, known.processor)
    assert inspection.findings == []
    assert len(inspection.parts["model"].tensors) == len(load_file(model / "model.safetensors"))
    assert known.frames(json.loads((model / "config.json").read_text())) == FRAMES


@pytest.mark.parametrize(
    "lost", ["config.json", "preprocessor_config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"]
)
def test_what_a_verifier_lacks_is_named_by_the_plan(tmp_path: Path, lost: str) -> None:
    known = VERIFIERS["xclip"]
    model = write_xclip(tmp_path)
    (model / lost).unlink()

    def look() -> None:
        for finding in inspect_model(model, known.model, known.processor).findings:
            raise finding

    with pytest.raises(FleetcraftError, match=lost.replace(".", r"\.")):
        look()
