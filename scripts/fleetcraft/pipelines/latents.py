"""Latents in a file, read as they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


class LatentsFile:
    """One sample's latents [channels, frames, height, width], which are sliced as a tensor is.

    A slice is read when it is asked for. The file is mapped for no longer than that: what is read through a mapping
    counts as memory of this process until it is unmapped, and would grow with the video.
    """

    def __init__(self, path: Path):
        self.path = path
        with safe_open(path, "pt") as file:
            self.shape = torch.Size(file.get_slice("latents").get_shape())

    def __getitem__(self, index: Any) -> torch.Tensor:
        with safe_open(self.path, "pt") as file:
            # A copy: a view would keep the whole file mapped.
            piece: torch.Tensor = file.get_slice("latents")[index]
            return piece.clone()
