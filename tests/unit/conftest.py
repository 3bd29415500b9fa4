"""The small experiment, as a document, a file and a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiments import document

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan


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
    return lambda changed: plan_of_file(write(changed))
