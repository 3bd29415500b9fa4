"""A small experiment that needs no tool chain, and ways to change it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcraft.experiment.load import load_experiment
from fleetcraft.experiment.plan import Plan


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


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """The small experiment as a document."""
    return document(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Write a document as an experiment file."""

    def write(changed: dict[str, Any]) -> Path:
        file = tmp_path / "experiment.yaml"
        file.write_text(yaml.safe_dump(changed, sort_keys=False, allow_unicode=True))
        return file

    return write


@pytest.fixture
def plan_of(write: Callable[[dict[str, Any]], Path]) -> Callable[[dict[str, Any]], Plan]:
    """The plan of a document."""
    return lambda changed: Plan(load_experiment(write(changed)))


def changed(base: dict[str, Any], dotted: str, value: object) -> dict[str, Any]:
    """A copy of `base` with one key, named by its path, set to `value`."""
    result = copy.deepcopy(base)
    *parents, last = dotted.split(".")
    place = result
    for part in parents:
        place = place[part]
    place[last] = value
    return result
