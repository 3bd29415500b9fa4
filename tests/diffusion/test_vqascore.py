"""VQAScore is the probability of "Yes" that the model gives, of patches as it knows videos."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import list_digests
from safetensors.torch import load_file
from scores import listed
from tiny_qwen import write_qwen
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from fleetcraft.ground.errors import BadInput, CorruptWeights
from fleetcraft.media.encoder import encode
from fleetcraft.media.playing import play
from fleetcraft.media.presets import encoder_settings
from fleetcraft.mirror.inspection import inspect_model
from fleetcraft.mirror.sums import read_sums
from fleetcraft.pipelines import numerics
from fleetcraft.scoring import vqascore
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.verifiers import VERIFIERS
from fleetcraft.scoring.vqascore import video_patches

score = listed(vqascore)

COUNT, WIDTH, HEIGHT, FPS = 9, 48, 32, 8
FFMPEG = encoder_settings("lossless", os.uname().machine).ffmpeg_sha256
PROMPTS = ("a red bicycle", "a blue boat", "a green kite")


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    numerics.pin("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In several shards, as the large ones are."""
    directory = write_qwen(tmp_path_factory.mktemp("qwen"), shard_size="80KB")
    assert (directory / "model.safetensors.index.json").is_file()
    return directory


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    generator, directory = np.random.default_rng(0), tmp_path_factory.mktemp("videos")
    paths = [directory / f"{number}.mp4" for number in range(3)]
    for path in paths:
        frames = generator.integers(0, 256, (COUNT, HEIGHT, WIDTH, 3)).astype(np.uint8)
        encode(path, iter(frames), WIDTH, HEIGHT, FPS, encoder_settings("lossless", os.uname().machine))
    return paths


def settings(model: Path, **changes: Any) -> dict[str, Any]:
    about = {"dtype": "float32", "device": "cpu", "frames": 4, "of_frames": COUNT, "fps": FPS}
    weights = {"directory": str(model), "files": read_sums(model)}
    return {"ffmpeg_sha256": FFMPEG, "weights": weights, **about, **changes}


def pairs(videos: list[Path]) -> list[Pair]:
    return [Pair(prompt, video, None) for prompt, video in zip(PROMPTS, videos, strict=True)]


def test_frames_make_up_patches_in_time_two_by_two(model: Path, videos: list[Path]) -> None:
    processor = Qwen2VLImageProcessorPil.from_pretrained(model)
    frames = np.stack(list(play(videos[0])))[:4]
    patches, grid = video_patches(processor, list(frames))
    assert grid.tolist() == [[2, HEIGHT // 4, WIDTH // 4]]
    scaled = (frames / 255 - np.array(processor.image_mean)) / np.array(processor.image_std)
    expected = []
    # In blocks of 2 × 2 patches, which the model merges into one token each.
    for step in range(2):
        for top in range(0, HEIGHT, 8):
            for left in range(0, WIDTH, 8):
                for y, x in ((top, left), (top, left + 4), (top + 4, left), (top + 4, left + 4)):
                    block = scaled[2 * step : 2 * step + 2, y : y + 4, x : x + 4]
                    expected.append(block.transpose(3, 0, 1, 2).ravel())  # channel, frame, row, column
    assert patches.numpy() == pytest.approx(np.stack(expected), abs=1e-5)


def test_a_score_is_the_probability_of_yes_after_video_and_question(model: Path, videos: list[Path]) -> None:
    (found,) = score("alignment", pairs(videos)[:1], settings(model))
    loaded = Qwen2_5_VLForConditionalGeneration.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    frames = np.stack(list(play(videos[0])))[[1, 3, 5, 7]]
    patches, grid = video_patches(Qwen2VLImageProcessorPil.from_pretrained(model), list(frames))
    tokens = tokenizer(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        + "<|video_pad|>" * 48
        + '<|vision_end|>Does this figure show "a red bicycle"? Please answer Yes or No.<|im_end|>\n'
        "<|im_start|>assistant\n",
        return_tensors="pt",
    ).input_ids
    with torch.inference_mode():
        logits = loaded(
            input_ids=tokens,
            mm_token_type_ids=2 * (tokens == loaded.config.video_token_id).int(),
            pixel_values_videos=patches,
            video_grid_thw=grid,
            second_per_grid_ts=torch.tensor([2 * (9 / 4) / 8]),
        ).logits[0, -1]
    assert found == pytest.approx(float(logits.softmax(-1)[tokenizer.convert_tokens_to_ids("Yes")]), rel=1e-4)
    assert 0 < found < 1


def test_no_score_depends_on_the_others_of_a_job_or_on_their_order(model: Path, videos: list[Path]) -> None:
    together = score("alignment", pairs(videos), settings(model))
    assert score("alignment", pairs(videos)[::-1], settings(model)) == together[::-1]
    assert score("alignment", pairs(videos)[1:2], settings(model)) == together[1:2]
    assert len(set(together)) == 3


def test_a_score_is_of_the_video_the_prompt_the_frames_their_times_and_the_type(
    model: Path, videos: list[Path]
) -> None:
    def of(prompt: int, video: int, **changes: Any) -> float:
        (value,) = score("alignment", [Pair(PROMPTS[prompt], videos[video], None)], settings(model, **changes))
        return value

    first = of(0, 0)
    others = [of(1, 0), of(0, 1), of(0, 0, frames=2), of(0, 0, fps=1), of(0, 0, dtype="bfloat16")]
    assert len({first, *others}) == 6
    assert others[-1] == pytest.approx(first, rel=0.2)


def test_a_damaged_shard_and_a_tokenizer_without_the_answer_are_refused(videos: list[Path], tmp_path: Path) -> None:
    damaged = write_qwen(tmp_path / "damaged", shard_size="80KB")
    before = settings(damaged)
    shard = min(damaged.glob("model-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(CorruptWeights, match=rf"{shard.name}.*not the listed one"):
        score("alignment", pairs(videos), before)
    wordless = write_qwen(tmp_path / "wordless")
    file = wordless / "tokenizer.json"
    file.write_text(file.read_text().replace('"Yes"', '"Yea"').replace('"s"\n', '"a"\n'))
    list_digests(wordless)
    with pytest.raises(CorruptWeights, match=r"no token for 'Yes'"):
        score("alignment", pairs(videos), settings(wordless))


def test_more_tokens_than_the_model_takes_are_refused(videos: list[Path], tmp_path: Path) -> None:
    small = write_qwen(tmp_path, positions=128)
    for error in score("alignment", pairs(videos), settings(small)):
        assert isinstance(error, BadInput)
        assert re.search(r"\d\.mp4: alignment takes 128 tokens.*fewer frames.*alignment\.frames", str(error))


def test_what_its_class_saves_in_shards_is_whole_to_the_plan(model: Path) -> None:
    known = VERIFIERS["vqascore"]
    inspection = inspect_model(model, known.model, known.processor)
    assert inspection.findings == []
    saved = [name for shard in model.glob("*.safetensors") for name in load_file(shard)]
    assert inspection.parts["model"].tensors.keys() == set(saved)
