"""Encoder presets: what they decide is in the keys of videos, and the old ones stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from experiments import changed
from plans import all_samples

from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import key_of
from fleetcraft.media.presets import encoder_settings, imageio_crf

GOLDEN = {
    "x86_64": "1c2c59ec5fc6d94deac8d52f094c8427",
    "aarch64": "3a91b19da801250796fd42acb1c34b29",
}


def test_the_first_preset_is_still_what_campaigns_were_made_with() -> None:
    keys = {machine: key_of(encoder_settings("h264-crf18", machine).as_json()) for machine in ("x86_64", "aarch64")}
    assert keys == GOLDEN


@pytest.mark.parametrize(("quality", "crf"), [(8, 10), (5, 25), (10, 0), (1, 45), (9.5, 2)])
def test_imageio_s_quality_is_a_factor_of_x264(quality: float, crf: int) -> None:
    assert imageio_crf(quality) == crf
    assert encoder_settings("imageio-quality", "x86_64", quality=quality).crf == crf


def test_whatever_changes_a_video_changes_its_key_and_nothing_else_does(
    small: dict[str, Any], plan_of: Callable[[dict[str, Any]], Plan]
) -> None:
    encoders = [
        {"preset": "h264-crf18"},
        {"preset": "h264-crf18", "crf": 19},
        {"preset": "imageio-quality"},
        {"preset": "imageio-quality", "quality": 8},
        {"preset": "lossless"},
    ]
    plans = [plan_of(changed(small, "encoder", encoder)) for encoder in encoders]
    samples = [next(all_samples(plan)) for plan in plans]
    assert len({sample.sample_id for sample in samples}) == 1
    assert len({plan.video_key(sample) for plan, sample in zip(plans, samples, strict=True)}) == len(encoders)
    same = plan_of(changed(small, "encoder", {"preset": "imageio-quality", "quality": 5.0}))
    assert same.video_key(samples[2]) == plans[2].video_key(samples[2])
