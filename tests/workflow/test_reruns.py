"""Only what was invalidated runs again, and only what is new is computed."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from campaigns import Campaign

ANALYSIS = {"tables": 1, "score_figure": 1, "archive": 1}
REST = {"plan": 1, **ANALYSIS, "views": 2, "contact_sheet": 2}


def set_crf(campaign: Campaign) -> None:
    campaign.document["encoder"] = {"crf": 30}


def put_crf_back(campaign: Campaign) -> None:
    del campaign.document["encoder"]


def add_dimension(campaign: Campaign) -> None:
    campaign.document["scoring"]["dimensions"].append("temporal_flickering")


def add_prompt(campaign: Campaign) -> None:
    file = campaign.directory / "prompts.txt"
    file.write_text("a yellow balloon\n" + file.read_text())


def add_seed(campaign: Campaign) -> None:
    campaign.document["seeds"].append(2)


def change_threshold(campaign: Campaign) -> None:
    campaign.document["arms"]["cached"]["cache"]["threshold"] = 0.1


def add_arm(campaign: Campaign) -> None:
    arm = copy.deepcopy(campaign.document["arms"]["cached"])
    arm["cache"]["threshold"] = 0.6
    campaign.document["arms"]["bolder"] = arm


def nothing(campaign: Campaign) -> None:
    pass


def touch(campaign: Campaign) -> None:
    os.utime(campaign.experiment)
    os.utime(campaign.directory / "prompts.txt")


@dataclass
class Edit:
    """An edit, the jobs that Snakemake then runs, and what is newly in the store."""

    name: str
    edit: Callable[[Campaign], None]
    jobs: dict[str, int] = field(default_factory=dict)
    latents: int = 0
    videos: int = 0
    scores: int = 0


def shard(arms_and_shards: int, scores: int) -> dict[str, int]:
    return {"generate": arms_and_shards, "decode": arms_and_shards, "encode": arms_and_shards, "score": scores}


CRF = {"decode": 4, "encode": 4, "score": 2, **REST}
ONE_ARM = {**shard(2, 2), **REST, "views": 1, "contact_sheet": 1}

# Each history has a campaign of its own; its edits follow each other.
HISTORIES = [
    [Edit("nothing is changed", nothing), Edit("files are touched", touch)],
    [Edit("the encoder's crf", set_crf, CRF, videos=12, scores=6), Edit("the crf is put back", put_crf_back, CRF)],
    [Edit("a dimension is added", add_dimension, {"plan": 1, "score": 4, **ANALYSIS}, scores=12)],
    [Edit("a prompt is added", add_prompt, {**shard(4, 2), **REST}, latents=4, videos=4, scores=2)],
    [Edit("a seed is added", add_seed, {**shard(2, 1), **REST}, latents=6, videos=6, scores=3)],
    [Edit("one arm's threshold", change_threshold, ONE_ARM, latents=6, videos=6, scores=6)],
    [Edit("an arm is added", add_arm, ONE_ARM, latents=6, videos=6, scores=6)],
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: ", then ".join(case.name for case in history))
def test_an_edit_runs_and_computes_exactly(campaign: Campaign, history: list[Edit]) -> None:
    for case in history:
        case.edit(campaign)
        campaign.write()
        before = campaign.artifacts()
        run = campaign.complete()
        after = campaign.artifacts()
        new = {kind: sum(before[kind].get(key) != made for key, made in after[kind].items()) for kind in after}
        # A dimension more has a figure more.
        assert run.jobs == case.jobs, run.output
        assert new == {"latents": case.latents, "videos": case.videos, "scores": case.scores}
        assert campaign.snakemake("--dry-run").jobs == {}, "afterwards nothing is left to do"
        assert campaign.fleetcraft("verify", "work/small/evidence").status == 0


def test_comments_and_formatting_change_nothing(campaign: Campaign) -> None:
    text = campaign.experiment.read_text()
    campaign.experiment.write_text("# A comment.\n" + text.replace("steps: 4", "steps:   4  # few"))
    assert campaign.snakemake("--dry-run").jobs == {}


def test_a_video_deleted_from_the_store_is_found_and_redone(campaign: Campaign) -> None:
    plan = campaign.plan()
    sample = plan.samples("cached", "s1")[1]
    video = campaign.directory / "scratch/store/videos" / plan.video_key(sample)[:2] / f"{plan.video_key(sample)}.mp4"
    digest = video.read_bytes()
    video.unlink()

    found = campaign.fleetcraft("audit", "experiment.yaml")
    assert found.status == 1
    assert "1 findings" in found.output
    assert sample.prompt.text in found.output
    assert campaign.snakemake("--dry-run").jobs == {}, "without a repair Snakemake can't know"

    assert campaign.fleetcraft("audit", "--repair", "experiment.yaml").status == 0
    before = campaign.artifacts()
    run = campaign.complete()
    after = campaign.artifacts()
    assert run.jobs["decode"] == run.jobs["encode"] == 1
    assert "generate" not in run.jobs
    assert sum(before["videos"].get(key) != made for key, made in after["videos"].items()) == 1
    assert before["latents"] == after["latents"]
    assert video.read_bytes() == digest, "the same bytes as before"
    assert campaign.fleetcraft("audit", "experiment.yaml").status == 0


def test_damaged_bytes_are_found_by_digest_and_redone(campaign: Campaign) -> None:
    video = next((campaign.directory / "scratch/store/videos").rglob("*.mp4"))
    data = video.read_bytes()
    video.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert campaign.fleetcraft("audit", "experiment.yaml").status == 0, "sizes alone don't tell"
    found = campaign.fleetcraft("audit", "--digests", "--repair", "experiment.yaml")
    assert video.name in found.output
    campaign.complete()
    assert video.read_bytes() == data


def tables_of(campaign: Campaign) -> dict[str, bytes]:
    """The tables of what was computed. That of memory is of the machine, as it was while it computed."""
    directory = campaign.directory / "work/small/tables"
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.name != "memory.csv"}


def test_a_purged_scratch_is_redone_from_nothing(campaign: Campaign, tmp_path: Path) -> None:
    import shutil

    tables = tables_of(campaign)
    shutil.rmtree(campaign.directory / "scratch/store")
    assert campaign.fleetcraft("audit", "--repair", "experiment.yaml").status == 0
    shutil.rmtree(campaign.directory / "scratch")
    audited = campaign.fleetcraft("audit", "experiment.yaml")
    assert (audited.status, "0 of the 6 manifests of its plan are there" in audited.output) == (1, True)
    shown = campaign.fleetcraft("summary", "experiment.yaml").output
    assert "isn't finished" not in shown, "the numbers and their evidence are in work"
    run = campaign.complete()
    assert run.jobs["models"] == 1
    assert run.jobs["generate"] == 4
    assert tables_of(campaign) == tables
    assert campaign.fleetcraft("audit", "experiment.yaml").status == 0
