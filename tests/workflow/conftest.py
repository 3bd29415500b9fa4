"""Campaigns to test on: one that ran to its end, and copies of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from campaigns import BIN, ROOT, Campaign, new_campaign, small_document


@pytest.fixture(scope="session", autouse=True)
def tool_chains() -> None:
    """What these tests stand on; `make test` builds it."""
    for python in (BIN / "python", ROOT / ".envs/diffusion/bin/python", ROOT / ".envs/vbench/bin/python"):
        assert python.exists(), f"{python} is missing: run `make envs`"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A small campaign that ran to its end, once for all processes of the tests. Never changed: tests copy it."""
    base = tmp_path_factory.getbasetemp()
    # Each process of xdist has a directory of its own in the session's.
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, complete = session / "finished/campaign", session / "finished/complete"
    with (session / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            new_campaign(directory).complete()
            complete.touch()
    # Whoever comes second writes nothing: others may be reading.
    return Campaign(directory, small_document())


@pytest.fixture
def campaign(finished: Campaign, tmp_path: Path) -> Campaign:
    """A copy of the finished campaign, to be changed."""
    return finished.copy_to(tmp_path / "campaign")
