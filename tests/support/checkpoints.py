"""Checkpoints for tests: the files of one as far as they are looked at without loading, and lists of digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

TENSORS = {"x": 100, "y": 50}


def safetensors(**sizes: int) -> bytes:
    """A file of tensors of bytes: name → how many."""
    header, place = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(place)


def write_checkpoint(directory: Path) -> Path:
    """A checkpoint of Wan with sharded and with single weights, and its list of digests."""
    index = {
        "_class_name": "WanPipeline",
        "boundary_ratio": None,
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    }
    files = {
        "model_index.json": json.dumps(index).encode(),
        "scheduler/scheduler_config.json": b"{}",
        "tokenizer/tokenizer_config.json": b"{}",
        "tokenizer/tokenizer.json": b"{}",
        "vae/config.json": b"{}",
        "vae/diffusion_pytorch_model.safetensors": safetensors(w=10),
    }
    for part, base in {"transformer": "diffusion_pytorch_model", "text_encoder": "model"}.items():
        shards = {name: f"{base}-0000{number}-of-00002.safetensors" for number, name in enumerate(TENSORS, 1)}
        files[f"{part}/config.json"] = b"{}"
        files[f"{part}/{base}.safetensors.index.json"] = json.dumps(
            {"metadata": {"total_size": sum(TENSORS.values())}, "weight_map": shards}
        ).encode()
        files |= {f"{part}/{shard}": safetensors(**{name: TENSORS[name]}) for name, shard in shards.items()}
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    list_digests(directory)
    return directory


def write_verifier_files(directory: Path, weights: int = 10, model: str = "XCLIPModel") -> Path:
    """A verifier as far as a plan looks at it, and its list of digests: X-CLIP that reads four frames, or another."""
    files = {
        "config.json": json.dumps({"architectures": [model], "vision_config": {"num_frames": 4}}).encode(),
        "preprocessor_config.json": b"{}",
        "tokenizer_config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors": safetensors(w=weights),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    list_digests(directory)
    return directory


def list_digests(directory: Path, sums: Path | None = None) -> None:
    """The list that sha256sum would write."""
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  ./{file.relative_to(directory)}\n"
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != "SHA256SUMS"
    ]
    (sums or directory / "SHA256SUMS").write_text("".join(lines))
