"""What all tests share."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

# Tests of tool chains run without it. A busy machine makes examples slow, which says nothing about them.
with contextlib.suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
