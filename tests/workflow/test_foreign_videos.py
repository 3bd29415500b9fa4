"""An arm of existing videos beside generated ones: nothing is generated for it, and all that follows is the same."""

from __future__ import annotations

import csv
import hashlib
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, new_campaign, small_document

from fleetcraft.ground.records import read_records


@pytest.fixture
def with_theirs(campaign: Campaign, finished: Campaign, tmp_path: Path) -> Campaign:
    """The finished campaign with an arm whose videos are the view of another campaign's cached arm."""
    views = finished.directory / "scratch/small/views/cached"
    sums = tmp_path / "sums"
    sums.write_text(
        "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in views.iterdir())
    )
    source = {"videos": str(views), "sha256sums": str(sums), "same_encoder": True}
    campaign.document["arms"]["theirs"] = {"source": source}
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
    assert (full["settings"], cached["settings"], theirs["settings"]) == ("crf 18", "crf 18", "vouched for")
    assert [row["arm"] for row in table(campaign, "compute")] == ["full", "cached"]
    (record, *_) = read_records(campaign.directory / "scratch/small/videos/theirs/s0.jsonl")
    assert (record["encoder"], record["probe"]["codec"]) == ("foreign", "h264")

    assert "theirs was encoded as the others are by the experiment's own word" in run.output
    summary = campaign.fleetcraft("summary", "experiment.yaml").output
    assert "theirs: h264 yuv420p, encoded as the others are by the experiment's own word" in summary
    for command in (["audit", "--digests", "experiment.yaml"], ["verify", "work/small/evidence"]):
        answer = campaign.fleetcraft(*command)
        assert answer.status == 0, answer.output
    assert campaign.snakemake("--dry-run").jobs == {}


@pytest.fixture
def light_and_heavy(tmp_path: Path) -> Campaign:
    """The same moving, noisy clips in two arms of existing videos, compressed lightly and heavily."""
    ffmpeg = subprocess.run(
        [ROOT / ".envs/diffusion/bin/python", "-c", "import imageio_ffmpeg as x; print(x.get_ffmpeg_exe())"],
        **{"capture_output": True, "text": True, "check": True},
    ).stdout.strip()
    arms = {}
    for arm, crf in (("light", "5"), ("heavy", "32")):
        directory = tmp_path / arm
        directory.mkdir()
        lines = []
        for number, prompt in enumerate(("a red bicycle", "a blue boat", "a green kite")):
            source = f"mandelbrot=size=160x96:rate=8:start_scale={3 - number},noise=alls=24:allf=t:all_seed={number}"
            file = directory / f"{prompt}-0.mp4"
            coding = ("-frames:v", "16", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", crf)
            subprocess.run([ffmpeg, "-v", "error", "-f", "lavfi", "-i", source, *coding, file], check=True)
            lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
        (directory / "SHA256SUMS").write_text("".join(lines))
        arms[arm] = {"source": {"videos": str(directory)}}
    document = small_document() | {
        **{"arms": arms, "baseline": "light", "seeds": [0]},
        **{"video": {"width": 160, "height": 96, "frames": 16, "fps": 8}},
        **{"scoring": {"dimensions": ["temporal_flickering"]}},
    }
    del document["models"]
    return new_campaign(tmp_path / "campaign", document)


def test_arms_that_differ_in_compression_are_scored_and_not_compared(light_and_heavy: Campaign) -> None:
    campaign = light_and_heavy
    run = campaign.snakemake("--until", "ingest")
    assert run.status == 0, run.output
    assert run.jobs == {"ingest": 2}
    assert "heavy is not compared with light: how the videos of the baseline 'light' were encoded is unknown" in (
        run.output
    )

    # What happens to a video after it was taken in keeps no other from its score, and the tables from being made.
    (cut, *_) = read_records(campaign.directory / "scratch/small/videos/heavy/s0.jsonl")
    file = campaign.directory / f"scratch/store/videos/{cut['key'][:2]}/{cut['key']}.mp4"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    run = campaign.snakemake("--keep-going")
    assert run.status != 0
    log = (campaign.directory / "scratch/small/logs/score/heavy/temporal_flickering/s0.log").read_text()
    assert f"{cut['key']}.mp4: this file is truncated" in log
    assert len(campaign.artifacts()["scores"]) == 5
    assert not (campaign.directory / "work/small/tables").exists()
    assert campaign.fleetcraft("audit", "--repair", "experiment.yaml").status == 0
    run = campaign.complete()
    assert (run.jobs["ingest"], run.jobs["score"]) == (1, 1)
    assert file.read_bytes() == whole

    light, heavy = table(campaign, "scores")
    assert float(heavy["mean"]) > float(light["mean"]) + 0.005, "heavier compression passes for steadier"
    assert table(campaign, "paired") == []
    light, heavy = table(campaign, "encoders")
    assert (light["compared"], light["settings"]) == ("baseline", "unknown")
    assert heavy["compared"] == "no: how the videos of the baseline 'light' were encoded is unknown"
    assert {row["difference"] for row in table(campaign, "vbench")} == {""}
    log = (campaign.directory / "scratch/small/logs/tables.log").read_text()
    assert "warning: heavy is not compared with light" in log
    summary = campaign.fleetcraft("summary", "experiment.yaml").output
    assert "heavy: h264 yuv420p, not compared with light" in summary

    for arm in campaign.document["arms"].values():
        arm["source"]["same_encoder"] = True
    campaign.write()
    jobs = campaign.snakemake("--dry-run").jobs
    assert jobs == {"plan": 1, "tables": 1, "score_figure": 1, "archive": 1}, "no video and no score is made again"
