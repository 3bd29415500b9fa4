"""Accelerators by the names that experiments and batch tables use (`resources/hardware.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import yaml

from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.ground.repository import RESOURCES

_FILE = RESOURCES / "hardware.yaml"


@dataclass(frozen=True)
class Hardware:
    """One kind of accelerator.

    name : what its driver calls it begins with this.
    memory_gib : as the driver counts it, to a few per cent. bandwidth_tb_s : of its memory, decimal.
    mfu_peak_tflops : the denominator of estimated MFU, dense BF16.
    """

    name: str
    memory_gib: float
    dense_bf16_tflops: float
    bandwidth_tb_s: float
    mfu_peak_tflops: float


@cache
def known() -> dict[str, Hardware]:
    """Every accelerator of the table, by name."""
    rows = yaml.load(_FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {name: Hardware(**row) for name, row in rows.items()}


def hardware(name: str, key: str) -> Hardware:
    """The accelerator that an experiment names at `key`."""
    if name not in known():
        raise BadInput("no hardware has this name", key=key, value=name, remedy=nearest(name, known()))
    return known()[name]


def estimated_mfu(flops: float, seconds: float, peak_tflops: float) -> float:
    """Model FLOPs over the peak of a device in the same time (PaLM's convention: forward FLOPs of the model alone).

    Text encoders and VAEs are not counted as useful work, and their time is in the denominator: an estimate from
    arithmetic, not a profiler's measurement.
    """
    return flops / seconds / (peak_tflops * 1e12)
