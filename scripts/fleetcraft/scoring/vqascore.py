"""VQAScore by a Qwen2.5-VL: how probable it finds "Yes" when asked whether a video shows its prompt.

After Lin et al., "Evaluating Text-to-Visual Generation with Image-to-Text Generation" (ECCV 2024), with their question
and answer; the probability is among all tokens. The model sees frames in the middles of equal parts of the video,
prepared as its processor file says, with the times between them. One video at a time, so that no score depends on which
others a job has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from fleetcraft.ground.errors import BadInput, CorruptWeights
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.playing import sample
from fleetcraft.pipelines.loading import load_verifier
from fleetcraft.scoring.interface import Pair, Score, one_by_one
from fleetcraft.scoring.listed import Weights, verified_directory

QUESTION = 'Does this figure show "{}"? Please answer Yes or No.'
ANSWER = "Yes"

# As the chat template of these models has a video and a question.
_BEFORE = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|vision_start|>"
_AFTER = "<|vision_end|>{}<|im_end|>\n<|im_start|>assistant\n"

_TEXT, _VIDEO = 0, 2
"""Types of tokens, as the model numbers them."""


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """The probability of the answer for each video, 0 to 1.

    settings : `weights`, the model's directory and the SHA-256 of its files; `device`, `dtype`; `frames`, how many of
        the `of_frames` that each video has, at `fps`, are read.

    More tokens of a video and its prompt than the model takes are an error of that video.

    Raises
    ------
    MissingWeights, CorruptWeights : the model isn't as listed, or isn't whole.
    """
    check_ffmpeg(settings["ffmpeg_sha256"])
    device = settings["device"]
    with ledger.phase("load"):
        directory = verified_directory(Weights(**settings["weights"]))
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        processor = Qwen2VLImageProcessorPil.from_pretrained(directory, local_files_only=True)
        answer = tokenizer(ANSWER, add_special_tokens=False).input_ids
        if len(answer) != 1:
            raise CorruptWeights(
                f"the tokenizer has no token for {ANSWER!r}, whose probability is the score",
                file=directory,
                remedy="Mirror the model with its own tokenizer",
            )
        model = load_verifier(Qwen2_5_VLForConditionalGeneration, directory, device, settings["dtype"])
    most = model.config.text_config.max_position_embeddings

    def probability(pair: Pair) -> float:
        frames = sample(pair.video, settings["frames"], settings["of_frames"])
        pixels, grid = video_patches(processor, list(frames))
        tokens, types = _tokens(tokenizer, pair.prompt, model.config.video_token_id, _count(grid, processor))
        if tokens.shape[1] > most:
            raise BadInput(
                f"{dimension} takes {most:,} tokens, and this video with its prompt has {tokens.shape[1]:,}",
                file=pair.video,
                remedy=f"Let it read fewer frames: `scoring.verifiers.{dimension}.frames`",
            )
        # Seconds from the first frame of one patch in time to the first of the next.
        step = processor.temporal_patch_size * settings["of_frames"] / settings["frames"] / settings["fps"]
        with torch.inference_mode():
            logits = model(
                input_ids=tokens.to(device),
                mm_token_type_ids=types.to(device),
                pixel_values_videos=pixels.to(device, model.dtype),
                video_grid_thw=grid.to(device),
                second_per_grid_ts=torch.tensor([step], device=device),
                logits_to_keep=1,
            ).logits[0, -1]
        return float(logits.float().softmax(dim=-1)[answer[0]])

    return one_by_one(pairs, probability, ledger)


def video_patches(processor: Any, frames: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The patches of a video, [patches, values], and its grid, [1, 3]: steps in time, rows, columns.

    `processor` prepares pictures, each as a patch in time of its own that repeats it; here the frames that follow one
    another make up such a patch together, as the model knows videos.
    """
    prepared = processor(list(frames), return_tensors="pt")
    _, rows, columns = (int(size) for size in prepared["image_grid_thw"][0])
    depth, side = processor.temporal_patch_size, processor.patch_size
    # [steps, frame in its step, patch, channel, frame repeated, row, column]
    repeated = prepared["pixel_values"].view(len(frames) // depth, depth, rows * columns, -1, depth, side, side)
    patches = torch.stack([repeated[:, place, :, :, place] for place in range(depth)], dim=3)
    steps = len(frames) // depth
    return patches.reshape(steps * rows * columns, -1), torch.tensor([[steps, rows, columns]])


def _count(grid: torch.Tensor, processor: Any) -> int:
    """How many tokens a video is to the language model."""
    return int(grid.prod()) // int(processor.merge_size) ** 2


def _tokens(tokenizer: Any, prompt: str, video_token: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of the conversation up to the answer, and their types, both [1, tokens]."""
    before = tokenizer(_BEFORE, add_special_tokens=False).input_ids
    after = tokenizer(_AFTER.format(QUESTION.format(prompt)), add_special_tokens=False).input_ids
    types = [_TEXT] * len(before) + [_VIDEO] * count + [_TEXT] * len(after)
    return torch.tensor([[*before, *[video_token] * count, *after]]), torch.tensor([types])
