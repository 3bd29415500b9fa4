"""Verifiers in an experiment: what is looked at before anything runs, and what their scores depend on."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkpoints import list_digests, write_verifier_files
from experiments import changed

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.encoder_comparison import Comparison
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.stages.calibrate import miniature
from fleetcraft.stages.describe import describe

PlanOf = Callable[[dict[str, Any]], Plan]


@pytest.fixture
def verified(small: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """An experiment that scores with a verifier."""
    model = write_verifier_files(tmp_path / "xclip")
    small["scoring"] = {
        "verifiers": {"alignment": {"type": "xclip", "path": str(model)}},
        "dimensions": ["ssim", "alignment"],
    }
    return small


def score_keys(plan: Plan, dimension: str) -> set[str]:
    return {
        plan.score_key(sample, dimension)
        for arm in plan.arms
        for shard in plan.scored_shards(arm, dimension)
        for sample in plan.scored_samples(arm, dimension, shard)
    }


def test_a_verifier_scores_every_video_of_every_arm(verified: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(verified)
    assert len(score_keys(plan, "alignment")) == plan.sample_count
    assert plan.known["alignment"].label.startswith("alignment: X-CLIP similarity")
    verified["prompts"] = {"suite": "vbench", "dimensions": ["temporal_flickering"]}
    plan = plan_of(verified)
    assert len(score_keys(plan, "alignment")) == plan.sample_count, "whatever a suite has the prompts for"


def test_its_weights_and_their_type_decide_its_scores_and_no_others(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    first = plan_of(verified)
    rounded = plan_of(changed(verified, "scoring.verifiers.alignment.dtype", "bfloat16"))
    write_verifier_files(tmp_path / "xclip", weights=11)
    other = plan_of(verified)
    shard = next(iter(first.shards))
    for plan in (rounded, other):
        assert score_keys(plan, "ssim") == score_keys(first, "ssim")
        assert not score_keys(plan, "alignment") & score_keys(first, "alignment")
        assert plan.score_digest("full", "alignment", shard) != first.score_digest("full", "alignment", shard)


def test_its_jobs_know_what_its_weights_take_in_the_type_that_they_are_loaded_in(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    write_verifier_files(tmp_path / "xclip", weights=3 * 2**20)
    taken = {
        dtype: plan_of(changed(verified, "scoring.verifiers.alignment.dtype", dtype)).known["alignment"].verifier_mb
        for dtype in ("float32", "bfloat16")
    }
    assert taken == {"float32": 12, "bfloat16": 6}


def test_one_that_no_dimension_names_scores_nothing_and_the_plan_says_so(
    verified: dict[str, Any], plan_of: PlanOf
) -> None:
    assert plan_of(verified).remarks == []
    idle = plan_of(changed(verified, "scoring.dimensions", ["temporal_flickering"]))
    assert idle.remarks == ["the verifier alignment scores nothing: `scoring.dimensions` doesn't have it"]


def test_where_it_lies_decides_nothing(verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path) -> None:
    first = plan_of(verified)
    shutil.move(tmp_path / "xclip", tmp_path / "elsewhere")
    moved = plan_of(changed(verified, "scoring.verifiers.alignment.path", str(tmp_path / "elsewhere")))
    assert moved.digest == first.digest
    assert score_keys(moved, "alignment") == score_keys(first, "alignment")


def test_its_job_knows_the_model_the_device_and_how_videos_are_read(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(verified)
    job = describe(plan, "score", {"arm": "full", "dimension": "alignment", "shard": next(iter(plan.shards))})
    assert (job.toolchain, job.settings["scorer"], job.settings["device"]) == ("diffusion", "xclip", "cpu")
    assert job.settings["weights"]["directory"] == str(tmp_path / "xclip")
    assert "model.safetensors" in job.settings["weights"]["files"]
    assert (job.settings["frames"], job.settings["of_frames"]) == (4, 5)


def test_comparisons_of_encoders_and_trials_score_with_it_too(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    plan = plan_of(verified | {"encoder_comparison": {"preset": "imageio-quality"}})
    assert all("alignment" in side.dimensions for side in Comparison(plan).plans.values())
    assert miniature(plan, "full", 1, 2, str(tmp_path)).dimensions == ["alignment"]


def test_its_path_may_have_variables_and_without_weights_it_is_not_looked_at(
    verified: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR", str(tmp_path))
    verified["scoring"]["verifiers"]["alignment"]["path"] = "${MIRROR}/xclip"
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(verified))
    assert plan_of_file(file).verifiers["alignment"].settings.path == str(tmp_path / "xclip")
    shutil.rmtree(tmp_path / "xclip")
    assert plan_of_file(file, without_weights=True).dimensions == ["ssim", "alignment"]


def test_frames_are_the_model_s_own_or_as_many_as_the_experiment_says(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    with pytest.raises(FleetcraftError, match=r"alignment\.frames': by its config this model reads 4 frames"):
        plan_of(changed(verified, "scoring.verifiers.alignment.frames", 5))
    assert plan_of(changed(verified, "scoring.verifiers.alignment.frames", 4)).digest == plan_of(verified).digest
    path = write_verifier_files(tmp_path / "qwen", model="Qwen2_5_VLForConditionalGeneration")
    asked = changed(verified, "scoring.verifiers.alignment", {"type": "vqascore", "path": str(path), "frames": 4})
    fewer = changed(asked, "scoring.verifiers.alignment.frames", 2)
    assert not score_keys(plan_of(asked), "alignment") & score_keys(plan_of(fewer), "alignment")
    with pytest.raises(FleetcraftError, match=r"alignment\.frames'.*2 at a time.*found 3.*multiple of 2"):
        plan_of(changed(asked, "scoring.verifiers.alignment.frames", 3))
    del asked["scoring"]["verifiers"]["alignment"]["frames"]
    with pytest.raises(FleetcraftError, match=r"video\.frames.*alignment needs 8 at least"):
        plan_of(asked)


def _lose(name: str) -> Callable[[Path], None]:
    return lambda model: (model / name).unlink()


def _configure(**keys: Any) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        config = json.loads((model / "config.json").read_text()) | keys
        (model / "config.json").write_text(json.dumps(config))
        list_digests(model)

    return change


def _cut(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


BROKEN: list[tuple[str, Callable[[Path], None], str]] = [
    (
        "no directory",
        shutil.rmtree,
        r"experiment\.yaml:43, key '.*\.path': \S*/xclip: there is no such model directory",
    ),
    ("no config", _lose("config.json"), r"path': \S*/config\.json: this file of the checkpoint is missing"),
    ("no processor", _lose("preprocessor_config.json"), r"preprocessor_config\.json.*is missing"),
    ("no words", _lose("tokenizer.json"), r"the tokenizer has none of"),
    ("no weights", _lose("model.safetensors"), r"no safetensors weights here"),
    (
        "no list",
        _lose("SHA256SUMS"),
        r"sha256sums': \S*/SHA256SUMS: the list of this checkpoint's SHA-256 digests is missing",
    ),
    ("cut weights", _cut, r"path': \S*/model\.safetensors: this file is truncated"),
    (
        "another model",
        _configure(architectures=["CLIPModel"]),
        r"key 'architectures': this isn't a model of the class XCLIPModel",
    ),
    ("an odd config", _configure(vision_config=7), r"doesn't say how many frames a xclip reads"),
    ("more frames than there are", _configure(vision_config={"num_frames": 8}), r"video\.frames.*alignment needs 8"),
]


@pytest.mark.parametrize(("damage", "said"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_could_not_be_scored_with_is_refused_by_the_plan(
    verified: dict[str, Any], plan_of: PlanOf, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(tmp_path / "xclip")
    with pytest.raises(FleetcraftError, match=said):
        plan_of(verified)


@pytest.mark.parametrize(
    ("scoring", "said"),
    [
        ({"verifiers": {"ssim": {"type": "xclip", "path": "x"}}}, "'scoring.verifiers'.*the name of a dimension"),
        ({"verifiers": {"proxy-mine": {"type": "xclip", "path": "x"}}}, "the name of a dimension"),
        ({"verifiers": {"a": {"type": "clip", "path": "x"}}}, "'scoring.verifiers.a.type'.*Did you mean 'xclip'"),
        ({"verifiers": {"a": {"type": "xclip"}}}, "'scoring.verifiers.a.path'.*missing"),
        ({"dimensions": ["alignmant"]}, "'scoring.dimensions.*Did you mean 'alignment'"),
    ],
)
def test_what_is_no_verifier_is_refused_with_its_key(
    verified: dict[str, Any], tmp_path: Path, scoring: dict[str, Any], said: str
) -> None:
    document = copy.deepcopy(verified)
    document["scoring"] |= scoring
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(FleetcraftError, match=said):
        plan_of_file(file)
