"""What torch, safetensors and diffusers raise is of the class that a person would call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file

from fleetcraft.ground.failures import failure_of

TRUNCATED = b"\xff\x00\x00\x00\x00\x00\x00\x00{"


def no_device() -> None:
    if torch.cuda.is_available():
        pytest.skip("this torch has its device")
    torch.zeros(1, device="cuda")


def device_memory(directory: Path) -> None:
    """Torch's own exception, raised by hand where there is no device that could run out of memory."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def wrapped(directory: Path) -> None:
    try:
        device_memory(directory)
    except RuntimeError as error:
        raise ValueError("the pipeline could not be run") from error


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def transformer(directory: Path, weights: bytes) -> None:
    """A small one, saved by diffusers, with other bytes for its weights."""
    model = WanTransformer3DModel(num_layers=1, num_attention_heads=1, attention_head_dim=12, text_dim=8, ffn_dim=8)
    model.save_pretrained(directory / "model")
    write(directory / "model" / "diffusion_pytorch_model.safetensors", weights)
    WanTransformer3DModel.from_pretrained(directory / "model", local_files_only=True)


@pytest.mark.parametrize(
    ("act", "failure_class", "problem"),
    [
        (device_memory, "device memory", "Tried to allocate"),
        (wrapped, "device memory", "Tried to allocate"),
        (lambda directory: torch.empty(10**15), "host memory", "can't allocate memory"),
        (lambda directory: load_file(write(directory / "x.safetensors", TRUNCATED)), "corrupt weights", "header"),
        (lambda directory: torch.load(write(directory / "x.pt", b"PK\3\4x")), "corrupt weights", "zip archive"),
        (lambda directory: torch.load(write(directory / "x.pt", b"x")), "corrupt weights", "UnpicklingError"),
        (lambda directory: no_device(), "wrong environment", "CUDA"),
        (
            lambda directory: WanTransformer3DModel.from_pretrained(
                write(directory / "model" / "config.json", b"{}").parent, local_files_only=True
            ),
            "missing weights",
            "no file named",
        ),
        (lambda directory: transformer(directory, TRUNCATED), "corrupt weights", "header"),
    ],
)
def test_what_libraries_raise_has_a_class(
    act: Callable[[Path], object], failure_class: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what the test asks
        act(tmp_path)
    failure = failure_of(caught.value)
    assert failure.failure_class == failure_class, failure
    assert problem in failure.problem


def test_a_mistake_in_shapes_is_a_bug() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert failure_of(caught.value).failure_class == "bug"
