"""A tiny Qwen2.5-VL with random weights, saved by its own class."""

from __future__ import annotations

from pathlib import Path

import torch
from checkpoints import list_digests
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>")


def write_qwen(directory: Path, seed: int = 0, shard_size: str = "50GB", positions: int = 4096) -> Path:
    """A model with patches of 4 pixels, with tokenizer, processor and list of digests."""
    torch.manual_seed(seed)
    names = [*sorted(bytes_to_unicode().values()), "Ye", "Yes"]
    tokenizer = Qwen2Tokenizer(
        vocab={name: number for number, name in enumerate(names)}, merges=[("Y", "e"), ("Ye", "s")]
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "out_hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 4,
        "patch_size": 4,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    }
    places = {
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=len(tokenizer) - 1,
        **{key: tokenizer.convert_tokens_to_ids(name) for key, name in places.items()},
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.1 * torch.randn(weights.shape))  # or it would hardly tell videos and prompts apart
    model.save_pretrained(directory, max_shard_size=shard_size)
    tokenizer.save_pretrained(directory)
    size = {"shortest_edge": 8 * 8, "longest_edge": 64 * 64}
    Qwen2VLImageProcessorPil(size=size, patch_size=4).save_pretrained(directory)
    list_digests(directory)
    return directory
