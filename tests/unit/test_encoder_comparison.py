"""A comparison of encoders: two plans that differ in the encoder alone, and tables that tell what is not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed
from plans import all_samples

from fleetcraft.analysis.encoder_comparison import Compared, comparison_figure, make_tables
from fleetcraft.analysis.tables import Results
from fleetcraft.experiment.encoder_comparison import Comparison
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput

PlanOf = Callable[[dict[str, Any]], Plan]
OTHER = {"preset": "imageio-quality", "quality": 5}


def test_it_changes_no_key_of_the_campaign(small: dict[str, Any], plan_of: PlanOf) -> None:
    plain, asked = plan_of(small), plan_of(changed(small, "encoder_comparison", OTHER))
    assert asked.digest == plain.digest
    assert asked.jobs == plain.jobs


def test_both_sides_have_the_campaign_s_samples_and_each_its_encoder_s_videos(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    plan = plan_of(changed(small, "encoder_comparison", OTHER))
    comparison = Comparison(plan)
    ours = {plan.video_key(sample) for sample in all_samples(plan) if sample.arm == "full"}
    keys = {side: [part.video_key(sample) for sample in all_samples(part)] for side, part in comparison.plans.items()}
    assert set(keys["declared"]) == ours, "what the campaign made serves the comparison"
    assert not ours & set(keys["compared"])
    other = plan_of(changed(small, "encoder", OTHER))
    assert set(keys["compared"]) == {other.video_key(s) for s in all_samples(other) if s.arm == "full"}
    assert comparison.declared.arms == ["full"]
    assert comparison.declared.dimensions == [], "nothing to compare the baseline with"


def test_an_arm_brings_its_baseline_along_for_dimensions_that_compare_with_it(
    small: dict[str, Any], plan_of: PlanOf
) -> None:
    plan = Comparison(plan_of(changed(small, "encoder_comparison", OTHER | {"arm": "cached"}))).compared
    assert plan.arms == ["full", "cached"]
    assert plan.dimensions == ["ssim"]
    sample = next(sample for sample in all_samples(plan) if sample.arm == "cached")
    alone = plan_of(changed(small, "encoder", OTHER))
    assert plan.score_key(sample, "ssim") in {
        alone.score_key(s, "ssim") for s in all_samples(alone) if s.arm == "cached"
    }, "both videos of a pair are encoded alike"


def test_the_limit_counts_prompts(small: dict[str, Any], plan_of: PlanOf) -> None:
    comparison = Comparison(plan_of(changed(small, "encoder_comparison", OTHER | {"limit": 2})))
    assert {sample.prompt.text for sample in all_samples(comparison.compared)} == {"a red bicycle", "a blue boat"}
    assert comparison.compared.sample_count == 4


def test_what_it_measures_depends_on_both_encoders(small: dict[str, Any], plan_of: PlanOf) -> None:
    def keys(document: dict[str, Any]) -> set[str]:
        comparison = Comparison(plan_of(document))
        return {comparison.fidelity_key(sample) for sample in all_samples(comparison.declared)}

    base = changed(small, "encoder_comparison", OTHER)
    assert not keys(base) & keys(changed(base, "encoder_comparison.quality", 6))
    assert not keys(base) & keys(changed(base, "encoder", {"preset": "lossless"}))
    assert keys(base) == keys(changed(base, "encoder_comparison.arm", "full"))


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        ({"preset": "h264-crf18"}, ["'encoder_comparison'", "encoder of the experiment itself"]),
        ({"preset": "h264-crf18", "crf": 18}, ["'encoder_comparison'", "encoder of the experiment itself"]),
        ({"preset": "losless"}, ["'encoder_comparison.preset'", "Did you mean 'lossless'"]),
        ({"preset": "lossless", "crf": 3}, ["'encoder_comparison.crf'", "loses nothing"]),
        ({"preset": "h264-crf18", "quality": 3}, ["'encoder_comparison.quality'", "`crf`"]),
        ({"preset": "lossless", "arm": "cachd"}, ["'encoder_comparison.arm'", "Did you mean 'cached'"]),
        ({"preset": "lossless", "limit": 0}, ["'encoder_comparison.limit'"]),
        ({"crf": 3}, ["'encoder_comparison.preset'"]),
    ],
)
def test_a_mistake_is_named(
    small: dict[str, Any], plan_of: PlanOf, comparison: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(BadInput) as caught:
        plan_of(changed(small, "encoder_comparison", comparison))
    assert all(part in str(caught.value) for part in said), caught.value
    assert "experiment.yaml" in str(caught.value)


def test_an_experiment_without_it_says_what_to_add(small: dict[str, Any], plan_of: PlanOf) -> None:
    with pytest.raises(BadInput, match=r"'encoder_comparison'.*Add the key, such as"):
        Comparison(plan_of(small))


def compared(vmaf: float | None = 90.0, mse: float = 65.025) -> Compared:
    """Two prompts, one seed: flickering rises by 0.02 and 0.04."""
    plan = {
        "conditions": {"full": {}},
        "scorers": {"temporal_flickering": {}},
        "prompts": [{"text": text, "dimensions": []} for text in "ab"],
        "seeds": [0],
    }
    sides = {}
    for side, scores in (("declared", (0.9, 0.8)), ("compared", (0.92, 0.84))):
        sides[side] = Results(plan)
        for prompt, score in zip("ab", scores, strict=True):
            about = {"arm": "full", "prompt": prompt, "seed": 0, "sample": "", "video": ""}
            sides[side].add([about | {"kind": "scores", "dimension": "temporal_flickering", "value": score}])
    measures = [
        {"of": of, "against": against, "mse": mse, "ssim": 0.5, "vmaf": vmaf}
        for of, against in (("declared", "frames"), ("compared", "frames"), ("compared", "declared"))
    ]
    return Compared.of(
        sides,
        [
            {"arm": "full", "prompt": prompt, "seed": 0, "bytes": {"declared": 9, "compared": 5}, "measures": measures}
            for prompt in "ab"
        ],
    )


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_shifts_are_paired_and_have_intervals() -> None:
    (row,) = rows(make_tables(compared())["shifts"])
    assert row["pairs"] == "2"
    means = [float(row[name]) for name in ("mean_declared", "mean_compared", "mean_shift", "low", "high")]
    assert means == pytest.approx([0.85, 0.88, 0.03, 0.02, 0.04])


def test_what_was_not_measured_says_so_and_is_never_a_number() -> None:
    table = rows(make_tables(compared(vmaf=None))["fidelity"])
    assert [row["vmaf"] for row in table] == ["not measured"] * 3
    assert [float(row["psnr_db"]) for row in table] == pytest.approx([30.0] * 3)
    assert [row["bytes_a_video"] for row in table] == ["9", "5", "5"]


def test_the_same_pixels_have_no_finite_ratio_and_the_figure_is_drawn_all_the_same(tmp_path: Path) -> None:
    same = compared(mse=0.0)
    assert {row["psnr_db"] for row in rows(make_tables(same)["fidelity"])} == {"inf"}
    comparison_figure(same, {"full": "C0"}, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0
