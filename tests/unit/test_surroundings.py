"""What is seen of a node around timed passes. The GPUs are those that a stand-in for nvidia-smi speaks of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetcraft.timing.surroundings import Snapshot, disturbances, foreign_cores, moment, neighbours, snapshot

GPU = {
    "uuid": "GPU-1",
    "name": "NVIDIA GH200 480GB",
    "utilization.gpu": "0",
    "memory.used": "4",
    "clocks.sm": "1980",
    "clocks.max.sm": "1980",
    "temperature.gpu": "35",
    "power.draw": "80.10",
    "clocks_throttle_reasons.active": "0x0000000000000001",
}


def seen(processes: list[tuple[str, str]] | None = None, throttle: str = "0x0000000000000001") -> Snapshot:
    found = [{"gpu_uuid": "GPU-1", "pid": pid, "used_memory": used} for pid, used in processes or []]
    return Snapshot(0.1, [GPU | {"clocks_throttle_reasons.active": throttle}], found)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path in which a stand-in for nvidia-smi can be put."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "nvidia-smi"


def test_gpus_that_this_process_may_not_use_are_not_looked_at(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [", ".join((GPU | {"uuid": uuid}).values()) for uuid in ("GPU-1", "GPU-2")]
    smi.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f"--query-gpu=*) printf '%s\\n' '{rows[0]}' '{rows[1]}' ;;\n"
        "*) printf '%s\\n' 'GPU-1, 77, 512' 'GPU-2, 78, 512' ;;\nesac\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    found = snapshot()
    assert found.gpus == [GPU]
    assert found.gpu_processes == [{"gpu_uuid": "GPU-1", "pid": "77", "used_memory": "512"}]


@pytest.mark.parametrize("script", [None, "#!/bin/sh\nexit 9\n"])
def test_without_an_answer_of_nvidia_smi_nothing_is_said_of_gpus(smi: Path, script: str | None) -> None:
    if script is not None:
        smi.write_text(script)
        smi.chmod(0o755)
    found = snapshot()
    assert found.gpus is None
    assert found.gpu_processes is None
    assert disturbances(found, found, None) == []


def test_a_process_of_others_before_or_after_is_a_disturbance_and_this_one_is_none() -> None:
    assert disturbances(seen(), seen([(str(os.getpid()), "900")]), None) == []
    (before, after) = disturbances(seen([("77", "512")]), seen([("77", "512"), (str(os.getpid()), "900")]), None)
    assert "process 77 held 512 MiB of a GPU before" in before
    assert "after" in after


def test_in_a_container_the_one_new_process_is_this_one_under_another_number() -> None:
    assert disturbances(seen(), seen([("4001", "900")]), None) == []
    (found,) = disturbances(seen(), seen([("4001", "900"), ("4002", "300")]), None)
    assert "process 4002" in found


@pytest.mark.parametrize(("reasons", "harmless"), [("0x1", True), ("0x2", True), ("0x4", False), ("0x20", False)])
def test_throttled_clocks_are_a_disturbance_and_idle_ones_are_none(reasons: str, harmless: bool) -> None:
    assert (disturbances(seen(), seen(throttle=reasons), None) == []) is harmless


def test_reasons_that_a_driver_does_not_tell_are_no_disturbance() -> None:
    assert disturbances(seen(), seen(throttle="[N/A]"), None) == []


def test_a_node_that_its_worker_shared_is_a_disturbance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert neighbours() is None or "FLEETCRAFT_NODE_FILE" in os.environ
    file = tmp_path / "node.json"
    monkeypatch.setenv("FLEETCRAFT_NODE_FILE", str(file))
    for access, found in (("exclusive", 0), ("shared", 1)):
        file.write_text(json.dumps({"access": access}))
        assert len(disturbances(seen(), seen(), neighbours())) == found


def test_work_of_others_is_told_from_this_process_s_own_and_its_children_s() -> None:
    before = moment()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert moment().own - before.own > 0.1
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        before = moment()
        time.sleep(1)
        after = moment()
    finally:
        neighbour.kill()
        neighbour.wait()
    assert after.own - before.own < 0.1
    assert foreign_cores(before, after) > 0.4
