"""Timed passes of real pipelines on a real machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fleetcraft.ground.errors import BadEnvironment
from fleetcraft.media.presets import encoder_settings
from fleetcraft.pipelines.clock import Clock
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings
from fleetcraft.pipelines.numerics import check_hardware
from fleetcraft.stages.timing import Timeable, passes
from fleetcraft.timing.order import interleaved
from fleetcraft.timing.passes import LATENCY, PHASES, Timed

SETTINGS = {
    "dtype": "float32",
    "steps": 2,
    "guidance": 5.0,
    "negative_prompt": "",
    "cache": None,
    "attention": None,
    "width": 64,
    "height": 64,
    "frames": 9,
    "fps": 8,
}
FORWARDS = 4
SLEEP_S = 0.4
WHERE = {"host": "n1", "slot": "n1/node", "stack": "s", "job": "j"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "wan"
    FAMILIES["wan"].load().build_tiny(directory, 0)
    return directory


def arm(model: Path, sleep_s: float = 0.0) -> Timeable:
    family = FAMILIES["wan"].load()
    denoiser = family.load_denoiser(model, DenoiseSettings(**SETTINGS), "cpu")
    if sleep_s:
        denoiser.pipeline.transformer.register_forward_pre_hook(lambda *_: time.sleep(sleep_s))
    encoder = encoder_settings("h264-crf18", "x86_64")
    return Timeable(denoiser, family.load_decoder(model, "cpu"), (9, 64, 64), 8, encoder)


def time_arms(arms: dict[str, Timeable], tmp_path: Path, repeats: int) -> list[Timed]:
    planned = list(interleaved(list(arms), 1, 1, repeats))
    return list(passes(planned, [("a red bicycle", 0)], arms, "cpu", tmp_path))


def test_a_known_slowdown_is_measured_and_told_from_other_phases(model: Path, tmp_path: Path) -> None:
    timed = time_arms({"full": arm(model), "slow": arm(model, SLEEP_S)}, tmp_path, repeats=3)
    counted = [one for one in timed if not one.planned.warmup]
    denoise = {
        name: [one.seconds["denoise"] for one in counted if one.planned.arm == name] for name in ("full", "slow")
    }
    differences = np.array(denoise["slow"]) - np.array(denoise["full"])
    assert np.median(differences) == pytest.approx(FORWARDS * SLEEP_S, rel=0.02)
    for one in counted:
        assert set(one.seconds) == {*PHASES}
        assert len(one.steps_s) == SETTINGS["steps"]
        # The steps are what denoising is made of, but for what a pipeline prepares and takes off the device.
        assert sum(one.steps_s) <= one.seconds["denoise"] + 1e-3
    decode = [np.median([one.seconds["decode"] for one in counted if one.planned.arm == name]) for name in denoise]
    assert abs(decode[0] - decode[1]) < FORWARDS * SLEEP_S / 4
    assert len({one.video_sha256 for one in timed}) == 1, "a slower arm, not another"


def test_a_neighbour_makes_a_pass_invalid(model: Path, tmp_path: Path) -> None:
    alone = arm(model, SLEEP_S)
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        (first, *_) = time_arms({"full": alone}, tmp_path, repeats=1)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    record = first.record(WHERE, [], {})
    assert not record["valid"]
    assert "cores busy" in record["disturbances"][0]
    assert record["seconds"]["total"] == pytest.approx(sum(first.seconds[name] for name in LATENCY), abs=1e-5)


def test_what_disturbed_a_whole_job_invalidates_each_of_its_passes(model: Path, tmp_path: Path) -> None:
    (first, *_) = time_arms({"full": arm(model)}, tmp_path, repeats=1)
    record = first.record(WHERE, ["its worker shared the node with other tasks"], {})
    assert not record["valid"]


def test_a_phase_inside_of_another_is_taken_out_of_it() -> None:
    clock = Clock("cpu")
    with clock.phase("outer"):
        time.sleep(0.02)
        with clock.phase("inner"):
            time.sleep(0.2)
    assert clock.seconds["inner"] == pytest.approx(0.2, abs=0.1)
    assert clock.seconds["outer"] < 0.15


def test_another_accelerator_than_the_declared_one_is_refused() -> None:
    declared = {"name": "NVIDIA A100", "memory_gib": 40}
    check_hardware(declared, "NVIDIA A100-PCIE-40GB", 42_298_834_944)
    with pytest.raises(BadEnvironment, match="with 79"):
        check_hardware(declared, "NVIDIA A100-SXM4-80GB", 85_097_971_712)
    with pytest.raises(BadEnvironment, match=r"stack\.hardware"):
        check_hardware(declared, "NVIDIA H100 PCIe", 42_298_834_944)
