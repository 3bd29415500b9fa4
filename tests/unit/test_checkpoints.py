"""A checkpoint is looked at before a GPU is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights


def safetensors(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The files of a Wan checkpoint as far as the plan looks at them."""
    directory = tmp_path / "checkpoint"
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
        "transformer/config.json": b"{}",
        "transformer/a-00001-of-00002.safetensors": safetensors(100),
        "transformer/a-00002-of-00002.safetensors": safetensors(50),
        "transformer/a.safetensors.index.json": json.dumps(
            {"weight_map": {"x": "a-00001-of-00002.safetensors", "y": "a-00002-of-00002.safetensors"}}
        ).encode(),
        "vae/config.json": b"{}",
        "vae/b.safetensors": safetensors(10),
        "text_encoder/config.json": b"{}",
        "text_encoder/c.safetensors": safetensors(10),
    }
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    list_digests(directory)
    return directory


def list_digests(directory: Path) -> None:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  ./{file.relative_to(directory)}\n"
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != "SHA256SUMS"
    ]
    (directory / "SHA256SUMS").write_text("".join(lines))


@pytest.fixture
def plan(small: dict[str, Any], write: Callable[[dict[str, Any]], Path], checkpoint: Path) -> Callable[[], Plan]:
    return lambda: plan_of_file(write(changed(small, "models.tiny.source", {"path": str(checkpoint)})))


def test_a_whole_checkpoint_is_accepted_and_named_by_its_files(plan: Callable[[], Plan], checkpoint: Path) -> None:
    before = plan().models["tiny"].digest
    (checkpoint / "vae/config.json").write_text('{"changed": true}')
    list_digests(checkpoint)
    assert plan().models["tiny"].digest != before


def test_a_moved_checkpoint_keeps_its_digest(
    small: dict[str, Any], write: Callable[[dict[str, Any]], Path], plan: Callable[[], Plan], checkpoint: Path
) -> None:
    before = plan().models["tiny"].digest
    moved = checkpoint.rename(checkpoint.with_name("moved"))
    after = plan_of_file(write(changed(small, "models.tiny.source", {"path": str(moved)})))
    assert after.models["tiny"].digest == before


def removed(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


def truncated(directory: Path) -> None:
    file = directory / "transformer/a-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def cut_in_the_header(directory: Path) -> None:
    file = directory / "vae/b.safetensors"
    file.write_bytes(file.read_bytes()[:20])


def of_another_family(directory: Path) -> None:
    index = json.loads((directory / "model_index.json").read_text())
    (directory / "model_index.json").write_text(json.dumps(index | {"_class_name": "LTXPipeline"}))


def unlisted(directory: Path) -> None:
    (directory / "vae/extra.safetensors").write_bytes(safetensors(5))


def without_weights(directory: Path) -> None:
    (directory / "vae/b.safetensors").unlink()


def garbage_json(directory: Path) -> None:
    (directory / "vae/config.json").write_text('{"half": ')


def garbled_list(directory: Path) -> None:
    (directory / "SHA256SUMS").write_text("not a digest\n")


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (removed("model_index.json"), MissingWeights, "model_index.json"),
        (removed("tokenizer/tokenizer.json"), MissingWeights, "unknown tokens"),
        (removed("tokenizer/tokenizer_config.json"), MissingWeights, "tokenizer_config.json"),
        (removed("transformer/a-00002-of-00002.safetensors"), MissingWeights, "a-00002-of-00002.safetensors"),
        (removed("scheduler/scheduler_config.json"), MissingWeights, "scheduler_config.json"),
        (removed("SHA256SUMS"), MissingWeights, "sha256sum > SHA256SUMS"),
        (truncated, CorruptWeights, "a-00002-of-00002.safetensors.*truncated"),
        (cut_in_the_header, CorruptWeights, "b.safetensors"),
        (garbage_json, CorruptWeights, "config.json"),
        (without_weights, MissingWeights, "no safetensors weights"),
        (of_another_family, BadInput, "LTXPipeline.*loads WanPipeline"),
        (unlisted, BadInput, "vae/extra.safetensors is not in the list"),
        (garbled_list, BadInput, "SHA256SUMS:1"),
    ],
)
def test_damage_is_found_without_loading_anything(
    plan: Callable[[], Plan],
    checkpoint: Path,
    damage: Callable[[Path], None],
    error: type[FleetcraftError],
    said: str,
) -> None:
    damage(checkpoint)
    with pytest.raises(error, match=said):
        plan()
