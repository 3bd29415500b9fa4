"""The comparison of encoders, on real frames, with both scorers."""

from __future__ import annotations

import csv
from pathlib import Path

from campaigns import Campaign, new_campaign, small_document


def table(campaign: Campaign, name: str) -> list[dict[str, str]]:
    with (campaign.directory / f"work/small/encoder_comparison/{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_heavier_compression_makes_videos_seem_steadier_and_its_shift_is_measured(tmp_path: Path) -> None:
    document = small_document() | {
        "seeds": [0],
        "encoder": {"preset": "h264-crf18", "crf": 5},
        "encoder_comparison": {"preset": "h264-crf18", "crf": 38, "arm": "cached", "limit": 2},
        "scoring": {"dimensions": ["temporal_flickering", "ssim"]},
    }
    campaign = new_campaign(tmp_path / "campaign", document)
    run = campaign.snakemake("encoder_comparison")
    assert run.status == 0, run.output

    shifts = {(row["arm"], row["dimension"]): row for row in table(campaign, "shifts")}
    assert set(shifts) == {("full", "temporal_flickering"), ("cached", "temporal_flickering"), ("cached", "ssim")}
    for arm in ("full", "cached"):
        row = shifts[arm, "temporal_flickering"]
        assert row["pairs"] == "2"
        assert float(row["mean_compared"]) > float(row["mean_declared"])
        assert float(row["low"]) > 0

    fidelity = {(row["arm"], row["of"], row["against"]): row for row in table(campaign, "fidelity")}
    assert len(fidelity) == 6
    for arm in ("full", "cached"):
        close, far = (fidelity[arm, side, "frames"] for side in ("declared", "compared"))
        for name in ("psnr_db", "ssim", "bytes_a_video"):
            assert float(close[name]) > float(far[name]), name
        assert 0 <= float(fidelity[arm, "compared", "declared"]["vmaf"]) <= 100

    videos = campaign.artifacts()["videos"]
    assert len(videos) == 8
    assert not list((campaign.directory / "scratch").rglob("*.npy")), "the frames have gone"
    again = campaign.snakemake("encoder_comparison", "--dry-run")
    assert again.jobs == {}, again.output

    # The campaign itself knows nothing of it, and finds its videos there.
    whole = campaign.snakemake("--dry-run", "--quiet", "reason")
    assert not {rule for rule in whole.jobs if rule.startswith("compared") or rule == "fidelity"}
    plan = campaign.plan()
    assert {plan.video_key(s) for s in plan.all_samples() if s.prompt.text != "a green kite"} <= set(videos)


def test_without_its_key_the_target_says_what_to_add(tmp_path: Path) -> None:
    run = new_campaign(tmp_path / "campaign").snakemake("encoder_comparison", "--dry-run")
    assert run.status != 0
    assert "Add the key, such as `encoder_comparison: {preset: imageio-quality" in run.output
    assert "Traceback" not in run.output
