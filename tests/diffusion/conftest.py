"""Tests that run in the tool chain `diffusion`: real pipelines with tiny random weights, real ffmpeg."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from fleetcraft.pipelines import numerics
from fleetcraft.pipelines.families import FAMILIES


@pytest.fixture(scope="session", autouse=True)
def pinned() -> None:
    """Torch as the stages pin it."""
    numerics.pin("cpu")


@pytest.fixture(scope="session", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Each family in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def tiny(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the family's tiny model."""
    directory = tmp_path_factory.mktemp("models") / family
    FAMILIES[family].load().build_tiny(directory, 0)
    return directory
