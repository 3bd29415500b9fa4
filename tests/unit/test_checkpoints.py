"""A checkpoint is looked at before a GPU is asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import list_digests, safetensors, write_checkpoint
from experiments import changed

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.costs import model_cost
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The files of a Wan checkpoint as far as the plan looks at them."""
    return write_checkpoint(tmp_path / "check point")


@pytest.fixture
def plan(small: dict[str, Any], write: Callable[[dict[str, Any]], Path], checkpoint: Path) -> Callable[[], Plan]:
    return lambda: plan_of_file(write(changed(small, "models.tiny.source", {"path": str(checkpoint)})))


def test_a_whole_checkpoint_is_accepted_and_named_by_its_files(plan: Callable[[], Plan], checkpoint: Path) -> None:
    before = plan().models["tiny"].digest
    (checkpoint / "vae/config.json").write_text('{"changed": true}')
    list_digests(checkpoint)
    assert plan().models["tiny"].digest != before


def test_a_moved_checkpoint_keeps_its_digest(
    small: dict[str, Any], write: Callable[[dict[str, Any]], Path], plan: Callable[[], Plan], checkpoint: Path
) -> None:
    before = plan().models["tiny"].digest
    moved = checkpoint.rename(checkpoint.with_name("moved"))
    after = plan_of_file(write(changed(small, "models.tiny.source", {"path": str(moved)})))
    assert after.models["tiny"].digest == before


def test_a_model_with_a_second_transformer_is_refused(plan: Callable[[], Plan], checkpoint: Path) -> None:
    """As Wan 2.2's A14B has: its pipeline would run both, and caching, kernels and counts would know of one."""
    index = checkpoint / "model_index.json"
    document = json.loads(index.read_text())
    index.write_text(json.dumps(document | {"transformer_2": document["transformer"], "boundary_ratio": 0.875}))
    shutil.copytree(checkpoint / "transformer", checkpoint / "transformer_2")
    list_digests(checkpoint)
    with pytest.raises(BadInput, match="'transformer_2: WanTransformer3DModel'") as caught:
        plan()
    assert caught.value.key == "models.tiny.source.path"


def test_a_component_that_a_checkpoint_names_and_leaves_empty_is_no_component(
    plan: Callable[[], Plan], checkpoint: Path
) -> None:
    index = checkpoint / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"transformer_2": [None, None]}))
    list_digests(checkpoint)
    plan()


@pytest.mark.parametrize(
    ("arm", "key"),
    [
        ({"scheduler": "UniPCMultistepScheduler"}, "scheduler"),
        ({"scheduler": "UniPCMultistepScheduler", "flow_shift": 3.0}, "scheduler"),
        ({"flow_shift": 3.0}, "flow_shift"),
        ({"scheduler": "UniPCMultistepScheduler", "flow_shift": 5.0}, None),
        ({"scheduler": "DPMSolverMultistepScheduler"}, None),
        ({"flow_shift": 5.0}, None),
    ],
)
def test_an_arm_that_names_what_its_checkpoint_has_anyway_is_refused(
    small: dict[str, Any],
    write: Callable[[dict[str, Any]], Path],
    checkpoint: Path,
    arm: dict[str, Any],
    key: str | None,
) -> None:
    config = {"_class_name": "UniPCMultistepScheduler", "flow_shift": 3.0}
    (checkpoint / "scheduler/scheduler_config.json").write_text(json.dumps(config))
    list_digests(checkpoint)
    document = changed(small, "models.tiny.source", {"path": str(checkpoint)})
    document["arms"]["full"] |= arm
    if key is None:
        plan_of_file(write(document))
        return
    with pytest.raises(BadInput, match="this is what the checkpoint has itself") as caught:
        plan_of_file(write(document))
    assert caught.value.key == f"arms.full.{key}"


def test_its_weights_are_counted_from_the_headers_of_its_files(plan: Callable[[], Plan], checkpoint: Path) -> None:
    """Shards add up; a variant of the same tensors beside them does not."""
    (checkpoint / "vae/diffusion_pytorch_model.fp16.safetensors").write_bytes(safetensors(w=10))
    list_digests(checkpoint)
    assert model_cost(plan(), "tiny").parameters == {"transformer": 150, "text_encoder": 150, "vae": 10}


@pytest.mark.parametrize(
    ("file", "config", "said"),
    [
        (
            "transformer/config.json",
            {"patch_size": [1, 4, 4]},
            r"48 is no multiple of 32; use 32 or 64.*its checkpoint",
        ),
        ("vae/config.json", {"scale_factor_spatial": 16}, r"48 is no multiple of 32; use 32 or 64.*its checkpoint"),
        ("vae/config.json", {"scale_factor_temporal": 8}, r"only 8·n \+ 1; use 9"),
        ("transformer/config.json", {"num_layers": "many"}, r"transformer/config\.json.*no config of a transformer"),
        ("transformer/config.json", {"patch_size": None}, r"transformer/config\.json.*no config of a transformer"),
        ("vae/config.json", {"dim_mult": []}, r"vae/config\.json.*no config of a vae"),
        ("vae/config.json", ["a", "list"], r"vae/config\.json.*no JSON object"),
    ],
)
def test_what_its_configs_make_impossible_is_refused(
    small: dict[str, Any],
    write: Callable[[dict[str, Any]], Path],
    checkpoint: Path,
    file: str,
    config: object,
    said: str,
) -> None:
    document = changed(changed(small, "models.tiny.source", {"path": str(checkpoint)}), "video.width", 48)
    assert plan_of_file(write(document)).latent_shape == {"tiny": (16, 2, 4, 6)}
    (checkpoint / file).write_text(json.dumps(config))
    list_digests(checkpoint)
    with pytest.raises(FleetcraftError, match=said):
        plan_of_file(write(document))


def removed(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


def truncated(directory: Path) -> None:
    file = directory / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def cut_in_the_header(directory: Path) -> None:
    file = directory / "vae/diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:20])


def of_another_family(directory: Path) -> None:
    index = json.loads((directory / "model_index.json").read_text())
    (directory / "model_index.json").write_text(json.dumps(index | {"_class_name": "LTXPipeline"}))


def unlisted(directory: Path) -> None:
    (directory / "vae/extra.safetensors").write_bytes(safetensors(w=5))


def without_weights(directory: Path) -> None:
    (directory / "vae/diffusion_pytorch_model.safetensors").unlink()


def garbage_json(directory: Path) -> None:
    (directory / "vae/config.json").write_text('{"half": ')


def garbled_list(directory: Path) -> None:
    (directory / "SHA256SUMS").write_text("not a digest\n")


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (removed("model_index.json"), MissingWeights, "model_index.json"),
        (removed("tokenizer/tokenizer.json"), MissingWeights, "unknown tokens"),
        (removed("tokenizer/tokenizer_config.json"), MissingWeights, "tokenizer_config.json"),
        (
            removed("transformer/diffusion_pytorch_model-00002-of-00002.safetensors"),
            MissingWeights,
            "diffusion_pytorch_model-00002-of-00002.safetensors",
        ),
        (removed("scheduler/scheduler_config.json"), MissingWeights, "scheduler_config.json"),
        (removed("SHA256SUMS"), MissingWeights, "sha256sum > SHA256SUMS"),
        (truncated, CorruptWeights, "diffusion_pytorch_model-00002-of-00002.safetensors.*truncated"),
        (cut_in_the_header, CorruptWeights, "vae.*header of this file is cut"),
        (garbage_json, CorruptWeights, "config.json"),
        (without_weights, MissingWeights, "no safetensors weights"),
        (of_another_family, BadInput, "LTXPipeline.*loads WanPipeline"),
        (unlisted, BadInput, "vae/extra.safetensors is not in the list"),
        (garbled_list, BadInput, "SHA256SUMS:1"),
    ],
)
def test_damage_is_found_without_loading_anything(
    plan: Callable[[], Plan],
    checkpoint: Path,
    damage: Callable[[Path], None],
    error: type[FleetcraftError],
    said: str,
) -> None:
    damage(checkpoint)
    with pytest.raises(error, match=said):
        plan()
