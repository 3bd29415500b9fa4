"""A small experiment that needs no tool chain, and a way to change it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any


def document(directory: Path) -> dict[str, Any]:
    """A valid experiment with two arms, three prompts and two seeds, below `directory`."""
    prompts = directory / "prompts.txt"
    prompts.write_text("a red bicycle\na blue boat\na green kite\n")
    return {
        "name": "small",
        "paths": {"scratch": str(directory / "scratch"), "work": str(directory / "work")},
        "stack": {"device": "cpu", "machine": "x86_64"},
        "models": {"tiny": {"family": "wan", "source": {"tiny": True, "seed": 0}}},
        "arms": {
            "full": {"model": "tiny", "dtype": "float32", "steps": 2},
            "cached": {
                "model": "tiny",
                "dtype": "float32",
                "steps": 2,
                "cache": {"type": "first_block", "threshold": 0.2},
            },
        },
        "baseline": "full",
        "prompts": {"file": str(prompts)},
        "seeds": [0, 1],
        "video": {"width": 32, "height": 32, "frames": 5, "fps": 8},
        "encoder": {"preset": "h264-crf18"},
        "scoring": {"dimensions": ["ssim"]},
        "shard_size": 4,
    }


def changed(base: dict[str, Any], dotted: str, value: object) -> dict[str, Any]:
    """A copy of `base` with one key, named by its path, set to `value`."""
    result = copy.deepcopy(base)
    *parents, last = dotted.split(".")
    place = result
    for part in parents:
        place = place[part]
    place[last] = value
    return result
