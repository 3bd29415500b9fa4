"""A tiny X-CLIP with random weights, saved by its own class. As a script: tiny_xclip.py DIRECTORY SEED."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from checkpoints import list_digests
from transformers import CLIPTokenizer, XCLIPConfig, XCLIPModel
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

from fleetcraft.pipelines.hunyuan_video import bytes_tokenizer

FRAMES, SIZE = 4, 32
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def write_xclip(directory: Path, seed: int = 0) -> Path:
    """A model that reads `FRAMES` frames of `SIZE` pixels, with tokenizer, processor and list of digests."""
    torch.manual_seed(seed)
    tokenizer: CLIPTokenizer = bytes_tokenizer()
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": 8,
        "num_frames": FRAMES,
        "mit_hidden_size": 16,
        "mit_intermediate_size": 32,
        "mit_num_attention_heads": 4,
    }
    config = XCLIPConfig(text_config=text, vision_config=vision, projection_dim=16, prompt_num_attention_heads=4)
    model = XCLIPModel(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.2 * torch.randn(weights.shape))  # or all videos and prompts would look alike to it
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    processor = VideoMAEImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}, image_mean=MEAN, image_std=DEVIATION
    )
    processor.save_pretrained(directory)
    list_digests(directory)
    return directory


if __name__ == "__main__":
    write_xclip(Path(sys.argv[1]), int(sys.argv[2]))
