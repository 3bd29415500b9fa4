"""What a plan says of tokens, FLOPs, weights and memory; with a checkpoint, with a tiny model, and without weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed

from fleetcraft.cli.main import main
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.costs import arm_cost, model_cost
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput, MissingWeights

PlanOf = Callable[[dict[str, Any]], Plan]
Write = Callable[[dict[str, Any]], Path]


@pytest.fixture
def real_size(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The experiment with all families at their real size, on a machine that has none of them."""
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    return root / "config/experiments/real-size.yaml"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What `fleetcraft plan` prints on a terminal of so many columns."""

    def run(*arguments: str, columns: int = 120) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["plan", *arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("columns", [80, 120])
def test_real_models_are_planned_without_their_weights(
    real_size: Path, printed: Callable[..., str], columns: int
) -> None:
    output = printed("--without-weights", str(real_size), columns=columns)
    rows = [line.split() for line in output.splitlines()]
    for row in (
        # latents, tokens of video and text, GiB of decoding and of the whole video
        "wan2.1-1.3b 16×21×60×104 32,760 512 7.70 0.36",
        "wan2.1-14b 16×21×60×104 32,760 512 7.70 0.36",
        "cogvideox-5b 16×21×60×104 32,760 226 35.2 0.36",
        "ltx-2b 128×11×15×26 4,290 128 5.73 0.36",
        "hunyuan-13b 16×21×60×104 32,760 256 30.3 0.36",
        # forwards, TFLOP a forward, PFLOP a sample and in all
        "wan2.1-1.3b 100 283 28.3 10,613",
        "wan2.1-14b 100 1,678 168 62,939",
        "cogvideox-5b 50 of 2 1,751 87.5 32,826",
        "ltx-2b 50 of 2 37.0 1.85 695",
        "hunyuan-13b 50 1,253 62.6 23,484",
        # GiB of transformer, text encoders and VAE
        "wan2.1-1.3b bfloat16 2.64 10.6 0.47",
        "wan2.1-14b bfloat16 26.6 10.6 0.47",
        "cogvideox-5b bfloat16 10.4 8.87 0.80",
        "ltx-2b bfloat16 3.58 8.87 1.56",
        "hunyuan-13b bfloat16 23.9 14.2 0.92",
    ):
        assert row.split() in rows
    assert "no checkpoint was looked at" in output
    assert "hunyuan-13b: HunyuanVideo" in output
    assert max(map(len, output.partition("jobs of")[0].splitlines())) <= columns


def test_a_campaign_cannot_be_planned_to_run_without_its_weights(real_size: Path) -> None:
    with pytest.raises(MissingWeights, match="no such model directory"):
        plan_of_file(real_size)


def test_a_directory_that_no_published_model_is_named_after_is_refused_with_those_known(
    small: dict[str, Any], write: Write
) -> None:
    file = write(changed(small, "models.tiny.source", {"path": "/models/Wan2.1-T2V-14B"}))
    with pytest.raises(BadInput, match=r"'models\.tiny\.source\.path'.*Wan2\.1-T2V-14B-Diffusers") as caught:
        plan_of_file(file, without_weights=True)
    assert "CogVideoX" not in str(caught.value), "of another family"


def test_a_tiny_model_is_planned_before_it_is_built(
    small: dict[str, Any], write: Write, printed: Callable[..., str]
) -> None:
    file = str(write(small))
    rows = [line.split() for line in printed(file).splitlines()]
    assert ["tiny", "16×2×4×4", "8", "512", "4.8e-04", "5.7e-05"] in rows
    assert ["full", "4"] in [row[:2] for row in rows], "two steps of two forwards"
    assert printed("--without-weights", file).count("1.6e-04") == 1


def plan_cost(plan: Plan, arm: str) -> Any:
    settings = plan.experiment.generated[arm]
    return arm_cost(plan, settings, model_cost(plan, settings.model))


@pytest.mark.parametrize(
    ("family", "guidance", "forwards", "rows"),
    [
        ("wan", 5.0, 2, 1),
        ("wan", 1.0, 1, 1),
        ("cogvideox", 5.0, 1, 2),
        ("cogvideox", 1.0, 1, 1),
        ("ltx", 3.0, 1, 2),
        ("hunyuan_video", 6.0, 1, 1),
    ],
)
def test_guidance_costs_what_the_family_makes_of_it(
    small: dict[str, Any], plan_of: PlanOf, family: str, guidance: float, forwards: int, rows: int
) -> None:
    document = changed(changed(small, "models.tiny.family", family), "arms.full.guidance", guidance)
    document = changed(document, "video", {"width": 64, "height": 64, "frames": 9, "fps": 8})
    unguided = plan_cost(plan_of(changed(document, "arms.full.guidance", 0.0)), "full")
    cost = plan_cost(plan_of(document), "full")
    assert (cost.forwards, cost.rows) == (2 * forwards, rows), "two steps"
    assert cost.sample_flops == unguided.sample_flops * forwards * rows


def test_a_batch_shares_forwards_and_costs_each_sample_the_same(small: dict[str, Any], plan_of: PlanOf) -> None:
    alone, batched = (plan_cost(plan_of(changed(small, "arms.full.batch", size)), "full") for size in (1, 4))
    assert (batched.forwards, batched.rows) == (alone.forwards, 4)
    assert batched.forward_flops == 4 * alone.forward_flops
    assert batched.sample_flops == alone.sample_flops


def test_weights_are_counted_in_the_types_that_they_are_loaded_in(small: dict[str, Any], plan_of: PlanOf) -> None:
    whole, half = (plan_cost(plan_of(changed(small, "arms.full.dtype", t)), "full") for t in ("float32", "bfloat16"))
    assert {part: whole.weights[part] / half.weights[part] for part in whole.weights} == {
        "transformer": 2,
        "text_encoder": 2,
        "vae": 1,
    }


def test_an_arm_with_a_scheduler_of_its_own_is_planned_without_weights(small: dict[str, Any], write: Write) -> None:
    """What the checkpoint's own would be isn't known."""
    document = changed(small, "models.tiny.source", {"path": "/models/Wan2.1-T2V-14B-Diffusers"})
    document = changed(document, "arms.full.scheduler", "UniPCMultistepScheduler")
    assert plan_of_file(write(document), without_weights=True).without_weights
