"""From trials of whole tasks to a frozen batch table that a campaign obeys."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import BIN, Campaign, new_campaign, small_document
from memory_cgroup import memory_cgroup, within

from fleetcraft.experiment.batches import needs
from fleetcraft.ground.records import read_records

TRIAL = """
import sys
from pathlib import Path
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.stages.calibrate import calibrate
calibrate(plan_of_file("experiment.yaml"), "full", int(sys.argv[1]), Path("trial.log"), {})
"""


def document(**changes: Any) -> dict[str, Any]:
    """One arm, tried at two batches."""
    small = small_document()
    small["arms"] = {"full": small["arms"]["full"]}
    small["scoring"] = {"dimensions": ["temporal_flickering"]}
    return small | {"calibration": {"batches": [1, 2]}} | changes


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign whose trials were run and whose table was frozen."""
    campaign = new_campaign(tmp_path_factory.mktemp("calibrated") / "campaign", document())
    run = campaign.snakemake("calibrate")
    assert run.status == 0, run.output
    assert run.jobs == {"models": 1, "trial": 2, "calibrate": 1}
    frozen = campaign.fleetcraft("freeze", "experiment.yaml")
    assert frozen.status == 0, frozen.output
    assert "batch_table: config/batches/small.yaml" in frozen.output
    return campaign


def test_a_trial_is_a_whole_task_and_leaves_nothing_but_its_record(calibrated: Campaign) -> None:
    (record,) = read_records(calibrated.directory / "scratch/small/calibration/full/2.jsonl")
    phases = {"load", "text_encoder", "denoise", "load_decoder", "decode", "encode", "score temporal_flickering"}
    assert phases <= set(record["phases"])
    assert all(record["phases"][name]["seconds"] > 0 for name in phases)
    assert record["phases"]["denoise"]["host_mb"] > 100
    assert record["phases"]["denoise"]["device_mb"] is None, "not measured, where there is no device"
    assert record["flops"] > 0
    assert record["failure"] is None
    assert not (calibrated.directory / "scratch/store/latents").exists()
    assert not list(calibrated.directory.glob("scratch/small/calibration/full/.trial-*"))


def test_the_table_says_why_and_feeds_the_resources_of_jobs(calibrated: Campaign, tmp_path: Path) -> None:
    table = yaml.safe_load((calibrated.directory / "config/batches/small.yaml").read_text())
    (entry,) = table["entries"]
    assert [verdict["batch"] for verdict in entry["verdicts"]] == [1, 2]
    assert sum(verdict["taken"] for verdict in entry["verdicts"]) == 1
    campaign = calibrated.copy_to(tmp_path / "campaign")
    arm = campaign.document["arms"]["full"]
    campaign.write(campaign.document | {"batch_table": "config/batches/small.yaml", "arms": {"full": arm}})
    wanted = needs(campaign.plan(), "generate", "full")
    assert wanted["mem_mb"] >= entry["phases"]["denoise"]["host_mb"]
    shard = next(iter(campaign.plan().shards))
    run = campaign.snakemake(f"scratch/small/latents/full/{shard}.jsonl")
    assert run.status == 0, run.output
    classes = {path.name for path in (campaign.directory / ".snakemake/spool/small/pending").iterdir()}
    assert f"c1-m{wanted['mem_mb']}-g0-v0-r{60 * wanted['runtime']}-n1-shared" in classes


def test_a_batch_that_is_not_the_frozen_one_fails_before_anything_is_asked_for(
    calibrated: Campaign, tmp_path: Path
) -> None:
    campaign = calibrated.copy_to(tmp_path / "campaign")
    arm = campaign.document["arms"]["full"] | {"batch": 4}
    campaign.write(campaign.document | {"arms": {"full": arm}})
    without = campaign.snakemake("--dry-run")
    assert without.status == 1
    assert re.search(r"fleetcraft: \S*experiment\.yaml:\d+, key 'arms\.full\.batch': ", without.output), without.output
    assert "Traceback" not in without.output
    assert "a batch above 1 needs a batch table" in without.output
    assert "snakemake calibrate" in without.output
    campaign.write(campaign.document | {"arms": {"full": arm}, "batch_table": "config/batches/small.yaml"})
    other = campaign.snakemake("--dry-run")
    assert other.status != 0
    assert "config/batches/small.yaml froze batch" in other.output
    assert campaign.snakemake("--dry-run", "calibrate").status == 0, "what would freeze it can be run all the same"
    video = campaign.document["video"] | {"frames": 9}
    campaign.write(campaign.document | {"video": video})
    shape = campaign.snakemake("--dry-run")
    assert shape.status != 0
    assert "was measured with another shape (32x32x5 there, 32x32x9 here)" in shape.output


def test_a_profile_can_refuse_a_fleet_that_would_idle(calibrated: Campaign, tmp_path: Path) -> None:
    campaign = calibrated.copy_to(tmp_path / "campaign")
    campaign.write(campaign.document | {"batch_table": "config/batches/small.yaml"})
    shown = campaign.fleetcraft("project", "experiment.yaml", "--devices", "40")
    assert shown.status == 0, shown.output
    assert "busy" in shown.output
    limits = "projection={devices: 40, refuse_below: 0.5}"
    run = campaign.snakemake("--dry-run", "--config", limits)
    assert run.status == 1
    assert "device hours would be busy" in run.output
    assert "Traceback" not in run.output


def test_a_trial_that_is_killed_for_want_of_memory_is_a_result_and_bounds_the_batch(tmp_path: Path) -> None:
    # Attention computed by torch's formula holds tokens × tokens numbers, so a batch needs a multiple of the memory.
    changes = document(video={"width": 128, "height": 128, "frames": 17, "fps": 8}, calibration={"batches": [1, 512]})
    changes["arms"]["full"] |= {"attention": "math", "steps": 1}
    campaign = new_campaign(tmp_path / "campaign", changes)
    built = campaign.snakemake("scratch/small/models/tiny.jsonl")
    assert built.status == 0, built.output
    with memory_cgroup(1200) as directory:
        for batch in (1, 512):
            ended = subprocess.run(
                [str(BIN / "python"), "-c", TRIAL, str(batch)],
                cwd=campaign.directory,
                env=os.environ | {"PYTHONPATH": str(BIN.parents[1] / "scripts")},
                preexec_fn=within(directory),
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
    (record,) = read_records(campaign.directory / "scratch/small/calibration/full/512.jsonl")
    assert record["failure"]["class"] == "host memory"
    assert record["failure"]["stage"] == "generate"
    frozen = campaign.fleetcraft("freeze", "experiment.yaml", "--headroom", "0.1")
    assert frozen.status == 0, frozen.output
    assert "full: batch 1" in frozen.output
    assert "failed: host memory in generate" in frozen.output
