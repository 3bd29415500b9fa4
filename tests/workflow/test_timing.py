"""Latencies in a campaign: from passes of their own to the evidence."""

from __future__ import annotations

import csv
from pathlib import Path

from campaigns import Campaign

from fleetcraft.ground.records import read_records

PHASES = {"text_encode", "denoise", "decode", "transfer", "encode", "write"}


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_campaign_that_is_to_be_timed_runs_nothing_else_again_and_its_evidence_has_the_passes(
    campaign: Campaign,
) -> None:
    campaign.write(campaign.document | {"timing": {"prompts": 1, "warmup": 1, "repeats": 2}})
    run = campaign.complete()
    assert set(run.jobs) == {"plan", "timing", "latency", "tables", "archive"}
    surroundings, *passes = read_records(campaign.directory / "scratch/small/timings.jsonl")
    assert [(one["arm"], one["warmup"], one["round"]) for one in passes] == [
        ("full", True, 0),
        ("cached", True, 0),
        ("cached", False, 0),
        ("full", False, 0),
        ("full", False, 1),
        ("cached", False, 1),
    ]
    assert surroundings["node"]["access"] == "exclusive", "the worker gave it the node alone"
    assert set(surroundings["load_s"]) == {"full", "cached"}
    assert all(set(one["seconds"]) == PHASES | {"total"} for one in passes)
    assert all(one["valid"] == (not one["disturbances"]) for one in passes)
    # The timed pipelines are those of the campaign: they make the same videos, byte for byte.
    videos = {
        (one["arm"], one["prompt"], one["seed"]): one["sha256"]
        for manifest in sorted((campaign.directory / "scratch/small/videos").rglob("*.jsonl"))
        for one in read_records(manifest)
    }
    assert {one["video_sha256"] for one in passes} <= set(videos.values())
    assert all(videos[one["arm"], one["prompt"], one["seed"]] == one["video_sha256"] for one in passes)

    latency = rows(campaign.directory / "work/small/tables/latency.csv")
    counted = sum(one["valid"] and not one["warmup"] for one in passes)
    totals = [row for row in latency if row["phase"] == "total"]
    assert sum(int(row["passes"]) for row in totals) == counted
    assert sum(int(row["passes"]) + int(row["invalid"]) for row in totals) == 4
    for name in ("latency", "phases"):
        assert (campaign.directory / f"work/small/figures/{name}.png").stat().st_size > 5_000

    verified = campaign.fleetcraft("verify", "work/small/evidence")
    assert verified.status == 0, verified.output
    assert (campaign.directory / "work/small/evidence/records/timings.jsonl").is_file()
    shown = campaign.fleetcraft("summary", "experiment.yaml")
    assert "latency, prompt to frames, alone on the node" in shown.output
    again = campaign.complete()
    assert again.jobs == {}
