"""How torch is pinned down before a model runs, and how pixels leave it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fleetcraft.ground.errors import BadEnvironment, BadResult
from fleetcraft.pipelines.clock import span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MEMORY_TOLERANCE = 0.05
"""Drivers keep some memory for themselves; kinds of one name differ by a third at least."""


def pin(device: str, hardware: Mapping[str, Any] | None = None) -> None:
    """Make a run repeatable: one CPU thread (their number changes the order of sums), no TF32, deterministic kernels.

    The plan counts these settings in every sample's key (`fleetcraft.experiment.plan.DETERMINISM`).
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise BadEnvironment(
            "the experiment declares `stack.device: cuda`, but torch sees no GPU here",
            remedy="Run where there is a GPU, or declare `device: cpu`",
        )
    if device == "cuda" and hardware is not None:
        found = torch.cuda.get_device_properties(0)
        check_hardware(hardware, found.name, found.total_memory)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def check_hardware(declared: Mapping[str, Any], name: str, memory_bytes: int) -> None:
    """Refuse another accelerator than the declared one: samples of two kinds of hardware are two conditions.

    declared : `name` and `memory_gib`, as resources/hardware.yaml has them. name, memory_bytes : what the driver says.
    """
    gib = memory_bytes / 2**30
    if not name.startswith(declared["name"]) or abs(gib / declared["memory_gib"] - 1) > _MEMORY_TOLERANCE:
        raise BadEnvironment(
            f"the experiment declares {declared['name']} with {declared['memory_gib']} GiB,"
            f" and this is {name} with {gib:.1f} GiB",
            key="stack.hardware",
            remedy="Run on nodes of the declared kind (the profile's partition), or declare this one",
        )


class OwnRandomness:
    """A stream of random numbers for code that can only draw from torch's global generators.

    Those are as they were afterwards, and what happens between two uses changes nothing in the stream.
    """

    def __init__(self, seed: int, device: torch.device):
        self._cuda = [] if device.type == "cpu" else [device]
        with torch.random.fork_rng(devices=self._cuda):
            torch.manual_seed(seed)
            self._states = self._read()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Whatever is drawn inside is drawn from this stream."""
        with torch.random.fork_rng(devices=self._cuda):
            host, *rest = self._states
            torch.set_rng_state(host)
            for device, state in zip(self._cuda, rest, strict=True):
                torch.cuda.set_rng_state(state, device)
            try:
                yield
            finally:
                self._states = self._read()

    def _read(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._cuda)]


def to_uint8(pixels: torch.Tensor) -> NDArray[np.uint8]:
    """Pixels [3, frames, height, width] in [-1, 1] as uint8 [frames, height, width, 3], rounded to nearest.

    Raises BadResult where a pixel isn't finite: a writer would turn it into black.
    """
    if not torch.isfinite(pixels).all():
        raise BadResult(
            "decoding gave pixels that are not finite", remedy="Look at the sample's latents and the VAE's dtype"
        )
    scaled = (pixels.float().clamp(-1, 1) + 1) * 127.5
    rounded = scaled.round().to(torch.uint8).permute(1, 2, 3, 0)
    with span("transfer"):
        frames: NDArray[np.uint8] = rounded.cpu().numpy()
    return frames
