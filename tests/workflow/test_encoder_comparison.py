"""The comparison of encoders, on real frames, with both scorers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from campaigns import Campaign, new_campaign, small_document
from plans import all_samples

PAIRS = (("declared", "frames"), ("compared", "frames"), ("compared", "declared"))


def table(campaign: Campaign, name: str) -> list[dict[str, str]]:
    with (campaign.directory / f"work/small/encoder_comparison/{name}.csv").open() as file:
        return list(csv.DictReader(file))


def document(**comparison: object) -> dict[str, Any]:
    """A small experiment that compares a light compression with a heavy one."""
    return small_document() | {
        "seeds": [0],
        "encoder": {"preset": "h264-crf18", "crf": 5},
        "encoder_comparison": {"preset": "h264-crf18", "crf": 38, "limit": 2, **comparison},
        "scoring": {"dimensions": ["temporal_flickering", "ssim"]},
    }


def test_heavier_compression_makes_videos_seem_steadier_and_its_shift_is_measured(tmp_path: Path) -> None:
    campaign = new_campaign(tmp_path / "campaign", document())
    run = campaign.snakemake("encoder_comparison")
    assert run.status == 0, run.output

    (shift,) = table(campaign, "shifts")
    assert (shift["arm"], shift["dimension"], shift["pairs"]) == ("full", "temporal_flickering", "2")
    assert float(shift["mean_compared"]) > float(shift["mean_declared"])
    assert float(shift["low"]) > 0

    close, far, apart = table(campaign, "fidelity")
    assert [(row["of"], row["against"]) for row in (close, far, apart)] == list(PAIRS)
    for name in ("psnr_db", "ssim", "bytes_a_video"):
        assert float(close[name]) > float(far[name]), name
    assert 0 <= float(apart["vmaf"]) <= 100

    videos = campaign.artifacts()["videos"]
    assert len(videos) == 4
    assert not list((campaign.directory / "scratch").rglob("*.npy")), "the frames have gone"
    assert campaign.snakemake("encoder_comparison", "--dry-run").jobs == {}
    plan = campaign.plan()
    ours = {plan.video_key(s) for s in all_samples(plan) if s.arm == "full" and s.prompt.text != "a green kite"}
    assert ours < set(videos), "the campaign finds its videos there"

    audited = campaign.fleetcraft("audit", str(campaign.experiment)).output
    assert "findings" not in audited
    assert "0 of the 5 manifests of its plan are there" in audited, "the campaign itself hasn't run"
    (other, *_) = set(videos) - ours
    next((campaign.directory / "scratch/store/videos").rglob(f"{other}.mp4")).unlink()
    assert other in campaign.fleetcraft("audit", str(campaign.experiment)).output


def test_an_arm_and_its_baseline_are_both_encoded_twice_and_the_campaign_has_no_such_job(tmp_path: Path) -> None:
    campaign = new_campaign(tmp_path / "campaign", document(arm="cached"))
    jobs = campaign.snakemake("encoder_comparison", "--dry-run").jobs
    assert jobs == {
        "models": 1,
        "compared_generate": 2,
        "compared_decode": 2,
        "compared_encode": 4,
        "fidelity": 2,
        "compared_score": 6,
        "encoder_comparison": 1,
    }
    assert campaign.snakemake("--dry-run").jobs == campaign.plan().jobs


def test_without_its_key_the_target_says_what_to_add(tmp_path: Path) -> None:
    run = new_campaign(tmp_path / "campaign").snakemake("encoder_comparison", "--dry-run")
    assert run.status != 0
    assert "Add the key, such as `encoder_comparison: {preset: imageio-quality" in run.output
    assert "most recent call last" not in run.output
