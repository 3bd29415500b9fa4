"""The registry of model families.

A family is a module with the functions of `fleetcraft.pipelines.interface` and a line here. The line holds what the
plan needs, so that a login node never imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from fleetcraft.pipelines.geometry import Geometry

if TYPE_CHECKING:
    from fleetcraft.pipelines.interface import FamilyModule


@dataclass(frozen=True)
class Family:
    """What is known of a family without loading it.

    pipeline : the class that a checkpoint's model_index.json must name.
    recipe : version of the tiny builder; raised whenever it would build other bytes from the same seed.
    """

    module: str
    pipeline: str
    geometry: Geometry
    recipe: int

    def load(self) -> FamilyModule:
        """Import the family's module, and with it torch and diffusers."""
        return cast("FamilyModule", import_module(f"fleetcraft.pipelines.{self.module}"))


FAMILIES = {
    "wan": Family("wan", "WanPipeline", Geometry(vae_stride=(4, 8, 8), patch=(1, 2, 2), channels=16), recipe=1),
}
