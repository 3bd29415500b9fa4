"""An arm of existing videos beside generated ones: nothing is generated for it, and all that follows is the same."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from pathlib import Path

import pytest
from campaigns import Campaign

from fleetcraft.ground.records import read_records


@pytest.fixture
def with_theirs(campaign: Campaign, finished: Campaign, tmp_path: Path) -> Campaign:
    """The finished campaign with an arm whose videos are the view of another campaign's cached arm."""
    views = finished.directory / "scratch/small/views/cached"
    sums = tmp_path / "sums"
    sums.write_text(
        "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in views.iterdir())
    )
    campaign.document["arms"]["theirs"] = {"source": {"videos": str(views), "sha256sums": str(sums)}}
    campaign.write()
    return campaign


def table(campaign: Campaign, name: str) -> list[dict[str, str]]:
    with (campaign.directory / f"work/small/tables/{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_existing_videos_get_the_scores_of_the_arm_that_made_them_and_enter_the_evidence(
    with_theirs: Campaign,
) -> None:
    campaign = with_theirs
    before = campaign.artifacts()
    run = campaign.complete()
    assert {rule: run.jobs[rule] for rule in ("ingest", "score", "views", "contact_sheet")} == {
        **{"ingest": 2, "score": 2, "views": 1, "contact_sheet": 1}
    }
    assert not {"models", "generate", "decode", "encode"} & set(run.jobs)
    after = campaign.artifacts()
    assert {kind: len(after[kind]) - len(before[kind]) for kind in after} == {"latents": 0, "videos": 6, "scores": 6}

    rows = {(row["arm"], row["prompt"], row["seed"]): row for row in table(campaign, "samples")}
    assert Counter(arm for arm, _, _ in rows) == {"full": 6, "cached": 6, "theirs": 6}
    for (arm, prompt, seed), row in rows.items():
        if arm == "theirs":
            ours = rows["cached", prompt, seed]
            assert (row["video_sha256"], row["ssim"]) == (ours["video_sha256"], ours["ssim"])
            assert row["sample"] != ours["sample"]
    (full, cached, theirs) = table(campaign, "encoders")
    assert (full["settings"], cached["settings"], theirs["settings"]) == ("crf 18", "crf 18", "unknown")
    assert [row["arm"] for row in table(campaign, "compute")] == ["full", "cached"]
    (record, *_) = read_records(campaign.directory / "scratch/small/videos/theirs/s0.jsonl")
    assert (record["encoder"], record["probe"]["codec"]) == ("foreign", "h264")

    summary = campaign.fleetcraft("summary", "experiment.yaml").output
    assert "not all encoded alike" in summary
    assert "theirs: h264 yuv420p, settings unknown" in summary
    for command in (["audit", "--digests", "experiment.yaml"], ["verify", "work/small/evidence"]):
        answer = campaign.fleetcraft(*command)
        assert answer.status == 0, answer.output
    assert campaign.snakemake("--dry-run").jobs == {}


def test_existing_videos_alone_are_a_campaign_without_models(with_theirs: Campaign) -> None:
    document = with_theirs.document
    document["arms"] = {"theirs": document["arms"]["theirs"]}
    del document["models"]
    document |= {"name": "alone", "baseline": "theirs", "scoring": {"dimensions": ["temporal_flickering"]}}
    with_theirs.write()
    run = with_theirs.snakemake("--dry-run")
    assert run.status == 0, run.output
    assert run.jobs == with_theirs.plan().jobs
    assert run.jobs["ingest"] == 2
