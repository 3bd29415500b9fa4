"""A checkpoint of any family is loaded without its weights: what would be missing, misplaced or unreadable is named."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXTransformer3DModel, HunyuanVideoTransformer3DModel, WanTransformer3DModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel, T5Config, T5EncoderModel

from fleetcraft.ground.errors import BadEnvironment, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.mirror.inspection import inspect
from fleetcraft.pipelines.dry_load import dry_load
from fleetcraft.stages.completeness import finding_of, record_of


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """The family's tiny model, to be damaged."""
    return Path(shutil.copytree(tiny, tmp_path / "check point"))


def findings(directory: Path) -> list[FleetcraftError]:
    inspection = inspect(directory)
    assert not inspection.findings, "damage that is seen without loading is tested elsewhere"
    return dry_load(inspection)


def weights(directory: Path, part: str) -> Path:
    (file,) = (directory / part).glob("*.safetensors")
    return file


def test_what_diffusers_saves_would_load_completely(tiny: Path) -> None:
    assert findings(tiny) == []


def test_missing_unexpected_and_misshapen_tensors_are_named(tiny: Path, copy: Path) -> None:
    expected = {}
    for part in ("text_encoder", "transformer", "vae"):
        tensors = load_file(weights(copy, part))
        lost, bent = sorted(name for name in tensors if name.endswith("weight") and tensors[name].dim() > 1)[:2]
        tensors["stranger.weight"] = tensors.pop(lost)
        tensors[bent] = tensors[bent][:-1].clone()
        save_file(tensors, weights(copy, part), metadata={"format": "pt"})
        expected[str(copy / part)] = {lost, bent, "stranger.weight"}
    found = findings(copy)
    assert len(found) == 9
    for file, names in expected.items():
        missing, unexpected, misshapen = (str(finding) for finding in found if str(finding.file) == file)
        assert all(name in missing + unexpected + misshapen for name in names)
        assert "there is no trace in its weights" in missing
        assert "have no place in" in unexpected
        assert "have another shape than" in misshapen
    assert all(type(finding) is CorruptWeights for finding in found)
    assert findings(tiny) == []


def test_sharded_weights_are_judged_as_a_whole(tiny: Path, copy: Path) -> None:
    for part, base in {"transformer": "diffusion_pytorch_model", "text_encoder": "model"}.items():
        shard(copy / part, base)
    assert findings(copy) == []
    tensors = load_file(copy / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors")
    index = copy / "transformer/diffusion_pytorch_model.safetensors.index.json"
    document, name = json.loads(index.read_text()), min(tensors)
    del tensors[name], document["weight_map"][name]
    save_file(tensors, copy / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors")
    index.write_text(json.dumps(document))
    (finding,) = findings(copy)
    assert name in str(finding)


def shard(folder: Path, base: str) -> None:
    """Split a component's weights into two files with an index, as large ones are saved."""
    single = folder / f"{base}.safetensors"
    names = sorted(tensors := load_file(single))
    single.unlink()
    weight_map = {}
    for number, half in enumerate((names[::2], names[1::2]), 1):
        file = f"{base}-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in half}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(half, file)
    (folder / f"{base}.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_tokenizer_that_knows_no_words_is_named(copy: Path) -> None:
    file = copy / "tokenizer/tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = tokenizer["model"]["vocab"][:3]
    file.write_text(json.dumps(tokenizer))
    (finding,) = findings(copy)
    assert isinstance(finding, MissingWeights)
    assert "nothing but unknown tokens" in str(finding)
    assert str(copy / "tokenizer") in str(finding)


def test_files_that_libraries_refuse_are_named_with_what_they_say(copy: Path) -> None:
    (copy / "tokenizer/tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Unheard"}}')
    config = copy / "transformer/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": "many"}))
    tokenizer, transformer = sorted(findings(copy), key=lambda finding: str(finding.file))
    assert "can't be made of these files (" in str(tokenizer)
    assert str(tokenizer.file) == str(copy / "tokenizer")
    assert "can't be made of these files (TypeError" in str(transformer)


def test_components_and_classes_that_are_missing_are_named(copy: Path) -> None:
    index = json.loads((copy / "model_index.json").read_text())
    del index["vae"]
    index["scheduler"] = ["diffusers", "FlowMatchUnheardScheduler"]
    (copy / "model_index.json").write_text(json.dumps(index))
    missing, unknown = findings(copy)
    assert "needs components that aren't named here: vae" in str(missing)
    assert "'FlowMatchUnheardScheduler', which diffusers" in str(unknown)
    assert isinstance(unknown, BadEnvironment)


def test_names_that_models_of_transformers_had_before_are_known(tmp_path: Path) -> None:
    """Published CLIP encoders have their tensors below `text_model`, and T5's embedding in one of two places."""
    from fleetcraft.pipelines.families import FAMILIES

    FAMILIES["hunyuan_video"].load().build_tiny(tmp_path / "model", 0)
    file = tmp_path / "model/text_encoder_2/model.safetensors"
    tensors = {f"text_model.{name.removeprefix('text_model.')}": value for name, value in load_file(file).items()}
    tensors["text_model.embeddings.position_ids"] = torch.arange(77).unsqueeze(0)
    save_file(tensors, file, metadata={"format": "pt"})
    CLIPTextModel.from_pretrained(file.parent)
    assert findings(tmp_path / "model") == []


@pytest.mark.parametrize(
    ("library", "model_class", "config"),
    [
        ("diffusers", WanTransformer3DModel, {}),
        ("diffusers", HunyuanVideoTransformer3DModel, {}),
        ("diffusers", CogVideoXTransformer3DModel, {"num_attention_heads": 48, "num_layers": 42}),
        (
            "transformers",
            T5EncoderModel,
            {"d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_layers": 24, "num_heads": 64, "vocab_size": 32128},
        ),
    ],
)
def test_models_of_real_size_are_judged_from_headers_alone(
    tmp_path: Path, library: str, model_class: type[torch.nn.Module], config: dict[str, int]
) -> None:
    """Up to 57 GB of weights that aren't there: files of a header and a hole."""
    folder = tmp_path / "part"
    with torch.device("meta"):
        model = model_class(T5Config(**config)) if library == "transformers" else model_class(**config)
    if library == "transformers":
        model.config.save_pretrained(folder)  # type: ignore[union-attr, operator]
    else:
        model.save_config(folder)  # type: ignore[operator]
    tied = {"encoder.embed_tokens.weight"}
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}
    hollow(
        folder / ("model.safetensors" if library == "transformers" else "diffusion_pytorch_model.safetensors"), shapes
    )
    (tmp_path / "model_index.json").write_text(
        json.dumps({"_class_name": "WanPipeline", "part": [library, model_class.__name__]})
    )
    (only_the_missing_parts,) = findings(tmp_path)
    assert "needs components that aren't named here" in str(only_the_missing_parts)


def hollow(file: Path, shapes: dict[str, list[int]]) -> None:
    """A safetensors file whose tensors are a hole."""
    header, place = {}, 0
    for name, shape in shapes.items():
        size = 4 * torch.Size(shape).numel()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + place)


def test_a_finding_passes_from_one_interpreter_to_another(copy: Path) -> None:
    (copy / "tokenizer/tokenizer.json").write_text("{}")
    for finding in findings(copy):
        again = finding_of(json.loads(json.dumps(record_of(finding))))
        assert type(again) is type(finding)
        assert str(again) == str(finding)
