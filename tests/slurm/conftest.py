"""One Slurm for all of these tests. Without Slurm they are skipped, or fail where it is required."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, missing, slurm_cluster

REQUIRED = "FLEETCRAFT_REQUIRE_SLURM"


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[SlurmCluster]:
    reason = missing()
    if reason is not None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED} is set, and {reason}", pytrace=False)
        pytest.skip(reason)
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: SlurmCluster) -> SlurmCluster:
    """The cluster, whole and idle."""
    running_cluster.mend()
    running_cluster.forget_calls()
    return running_cluster


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path
