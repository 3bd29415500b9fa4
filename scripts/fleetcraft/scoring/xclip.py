"""How well a video shows its prompt: the cosine of X-CLIP's embeddings of both, which it was trained to bring together.

The model reads as many frames as its config says, in the middles of equal parts of the video, prepared as its processor
file says. One video at a time, so that no score depends on which others a job has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, XCLIPModel
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

from fleetcraft.ground.errors import BadInput, CorruptWeights
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.playing import sample
from fleetcraft.pipelines.loading import load_verifier
from fleetcraft.pipelines.prompts import Reader
from fleetcraft.scoring.interface import Pair, Score, one_by_one
from fleetcraft.scoring.listed import Weights, verified_directory


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """The similarity of each video and its prompt, −1 to 1.

    settings : `weights`, the model's directory and the SHA-256 of its files; `device`, `dtype`; `frames`, how many of
        the `of_frames` that each video has are read; `long_prompts`, "refuse" or "cut".

    A prompt that is longer than the model reads is an error of its videos.

    Raises
    ------
    MissingWeights, CorruptWeights : the model isn't as listed, or isn't whole.
    """
    check_ffmpeg(settings["ffmpeg_sha256"])
    with ledger.phase("load"):
        directory = verified_directory(Weights(**settings["weights"]))
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        processor = VideoMAEImageProcessorPil.from_pretrained(directory, local_files_only=True)
        model = load_verifier(XCLIPModel, directory, settings["device"], settings["dtype"])
    reader = Reader(tokenizer, limit=model.config.text_config.max_position_embeddings)

    def similarity(pair: Pair) -> float:
        text = _text(dimension, reader, pair.prompt, settings["long_prompts"] == "cut")
        frames = sample(pair.video, settings["frames"], settings["of_frames"])
        pixels = processor(list(frames), return_tensors="pt")["pixel_values"]
        _check_pixels(pixels, model.config.vision_config, directory)
        with torch.inference_mode():
            found = model(input_ids=text.to(settings["device"]), pixel_values=pixels.to(settings["device"]))
        video, prompt = found.video_embeds[0].float(), found.text_embeds[0, 0].float()
        return float(torch.nn.functional.cosine_similarity(video, prompt, dim=0))

    return one_by_one(pairs, similarity, ledger)


def _text(dimension: str, reader: Reader, prompt: str, cut: bool) -> torch.Tensor:
    """The tokens of a prompt, [1, tokens]."""
    reading = reader.read(prompt)
    if reading.cut:
        said = f"{dimension} reads {reading.taken} of {reading.tokens} tokens of this prompt and not {reading.cut!r}"
        if not cut:
            raise BadInput(
                said,
                key="prompts",
                value=prompt,
                remedy="Shorten it, or have long prompts cut: `prompts: {long: cut}`",
            )
        print(f"score: prompt {prompt!r}: {said}")
    tokens: torch.Tensor = reader.tokenizer(
        prompt, truncation=True, max_length=reader.limit, return_tensors="pt"
    ).input_ids
    return tokens


def _check_pixels(pixels: torch.Tensor, config: Any, directory: Path) -> None:
    """`pixels` are [1, frames, channels, height, width]."""
    wanted = (config.num_channels, config.image_size, config.image_size)
    if tuple(pixels.shape[2:]) != wanted:
        raise CorruptWeights(
            f"frames are prepared as {list(pixels.shape[2:])} (channels, height, width), and the model reads"
            f" {list(wanted)}",
            file=directory / "preprocessor_config.json",
            remedy="Mirror the model and its processor again, from one revision",
        )
