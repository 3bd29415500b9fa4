"""The record of a timed pass: the only thing that a latency can be computed from.

A bulk job can't make one: it takes what was seen of the node during the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetcraft.ground.records import Record
from fleetcraft.timing.order import Pass
from fleetcraft.timing.surroundings import FOREIGN_CORES

KIND = "timings"

LATENCY = ("text_encode", "denoise", "decode", "transfer")
"""The phases that make a video's latency: from the prompt to frames in host memory."""

PHASES = (*LATENCY, "encode", "write")


@dataclass(frozen=True)
class Timed:
    """What one pass took, and what was seen meanwhile.

    seconds : phase → seconds. steps_s : of each denoising step.
    foreign_cores : CPU cores that others kept busy on average.
    video_sha256 : of the video that it made; that of the campaign's, where the arm denoises one sample at a time.
    """

    planned: Pass
    prompt: str
    seed: int
    seconds: Mapping[str, float]
    steps_s: Sequence[float]
    foreign_cores: float
    video_sha256: str

    def record(self, where: Mapping[str, Any], disturbances: Sequence[str], made: Mapping[str, Any]) -> Record:
        """As the manifest has it; `disturbances` are those of the whole job."""
        found = list(disturbances)
        if self.foreign_cores > FOREIGN_CORES:
            found.append(f"others kept {self.foreign_cores:.2f} cores busy during it")
        seconds = {name: round(value, 6) for name, value in self.seconds.items()}
        return {
            "kind": KIND,
            "arm": self.planned.arm,
            "prompt": self.prompt,
            "seed": self.seed,
            "round": self.planned.round,
            "warmup": self.planned.warmup,
            "valid": not found,
            "disturbances": found,
            "foreign_cores": round(self.foreign_cores, 3),
            "seconds": {**seconds, "total": round(sum(self.seconds[name] for name in LATENCY), 6)},
            "steps_s": [round(value, 6) for value in self.steps_s],
            "video_sha256": self.video_sha256,
            "where": dict(where),
            "made": dict(made),
        }
