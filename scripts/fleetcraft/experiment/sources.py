"""Where models come from: the digest of each, and the checks that need no GPU and no loading.

A checkpoint is looked at before anything is asked of a cluster: the directory, the pipeline's class, every component's
files, the headers of the weights against their sizes, the tokenizer. Reading is limited to a few kilobytes a file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetcraft.experiment.models import VideoModel
from fleetcraft.ground.digests import canonical_json, key_of, sha256_text
from fleetcraft.ground.errors import BadInput, CorruptWeights, MissingWeights
from fleetcraft.pipelines.families import FAMILIES

_TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "vocab.json")


@dataclass(frozen=True)
class ModelSource:
    """A model as the plan knows it.

    digest : names the bytes of its files, or the recipe and seed that they are built from.
    path : directory of the checkpoint; None for a tiny model, which is built into the store.
    files : SHA-256 of each file of the checkpoint, by path relative to it.
    """

    family: str
    digest: str
    path: str | None
    seed: int
    files: dict[str, str]


def resolve(name: str, model: VideoModel) -> ModelSource:
    """The source of the model `name`, checked as far as that is cheap."""
    source = model.source
    if source.path is None:
        seed = source.seed or 0
        recipe = {"tiny": model.family, "recipe": FAMILIES[model.family].recipe, "seed": seed}
        return ModelSource(model.family, key_of(recipe), None, seed, {})
    directory = Path(source.path)
    check_checkpoint(name, model.family, directory)
    files = _read_sums(name, directory, Path(source.sha256sums) if source.sha256sums else directory / "SHA256SUMS")
    digest = key_of({"files": sha256_text(canonical_json(files))})
    return ModelSource(model.family, digest, str(directory), 0, files)


def check_checkpoint(name: str, family: str, directory: Path) -> None:
    """Refuse a checkpoint that a pipeline would fail on, or, worse, load in silence with parts missing."""
    key = f"models.{name}.source.path"
    if not directory.is_dir():
        raise MissingWeights(
            "there is no such model directory",
            file=directory,
            key=key,
            remedy="Mirror the checkpoint there, or correct the path",
        )
    index = _read_json(directory / "model_index.json", key)
    expected = FAMILIES[family].pipeline
    if index.get("_class_name") != expected:
        raise BadInput(
            f"this checkpoint is of {index.get('_class_name')}, but the family {family!r} loads {expected}",
            file=directory / "model_index.json",
            key=f"models.{name}.family",
            remedy="Choose the family of the checkpoint, or another checkpoint",
        )
    components = {part: value for part, value in index.items() if isinstance(value, list) and value[0] is not None}
    for component, (library, class_name) in components.items():
        part = directory / component
        if not part.is_dir():
            raise MissingWeights(
                f"the component {component!r} is missing", file=part, key=key, remedy="Mirror it again"
            )
        if "Tokenizer" in class_name:
            _check_tokenizer(part, key)
        elif "Scheduler" in class_name:
            _read_json(part / "scheduler_config.json", key)
        elif library in {"diffusers", "transformers"}:
            _read_json(part / "config.json", key)
            _check_weights(part, key)


def _check_tokenizer(part: Path, key: str) -> None:
    """Without its files a tokenizer loads all the same, and turns every prompt into unknown tokens."""
    _read_json(part / "tokenizer_config.json", key)
    if not any((part / file).is_file() for file in _TOKENIZER_FILES):
        raise MissingWeights(
            f"the tokenizer has none of {', '.join(_TOKENIZER_FILES)}: every prompt would become unknown tokens",
            file=part,
            key=key,
            remedy="Mirror the tokenizer's files again",
        )


def _check_weights(part: Path, key: str) -> None:
    for index in part.glob("*.safetensors.index.json"):
        for shard in sorted(set(_read_json(index, key)["weight_map"].values())):
            if not (part / shard).is_file():
                raise MissingWeights(
                    f"the shard is missing that {index.name} lists",
                    file=part / shard,
                    key=key,
                    remedy="Mirror it again",
                )
    weights = sorted(part.glob("*.safetensors"))
    if not weights:
        raise MissingWeights("there are no safetensors weights here", file=part, key=key, remedy="Mirror them again")
    for file in weights:
        _check_safetensors(file, key)


def _check_safetensors(file: Path, key: str) -> None:
    """The header says where the last tensor ends: a file that was cut while it was copied is shorter than that."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(length)) if 8 + length <= size else None
        except ValueError:
            header = None
    if header is None:
        raise CorruptWeights(
            "the header of this file is cut or unreadable", file=file, key=key, remedy="Copy the file again"
        )
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    if 8 + length + end != size:
        raise CorruptWeights(
            f"this file is truncated: its header describes {8 + length + end:,} bytes, it has {size:,}",
            file=file,
            key=key,
            remedy="Copy the file again",
        )


def _read_sums(name: str, directory: Path, sums: Path) -> dict[str, str]:
    """The list of SHA-256 digests, which must cover every file of the checkpoint."""
    key = f"models.{name}.source.sha256sums"
    if not sums.is_file():
        raise MissingWeights(
            "the list of this checkpoint's SHA-256 digests is missing: no number could be traced to the weights",
            file=sums,
            key=key,
            remedy=f"Make it once: (cd {directory} && find . -type f ! -name SHA256SUMS | sort"
            " | xargs -d '\\n' sha256sum > SHA256SUMS)",
        )
    files = read_sums(sums, key)
    for folder, _, names in os.walk(directory, followlinks=True):
        for file in names:
            relative = os.path.relpath(os.path.join(folder, file), directory)  # noqa: PTH118
            if relative not in files and relative != "SHA256SUMS" and not relative.startswith("."):
                raise BadInput(
                    f"{relative} is not in the list of digests", file=sums, key=key, remedy="Make the list again"
                )
    return dict(sorted(files.items()))


def read_sums(sums: Path, key: str) -> dict[str, str]:
    """Path → SHA-256, as the list `sums` of the key `key` has them."""
    files = {}
    for number, line in enumerate(sums.read_text(encoding="utf-8").splitlines(), 1):
        digest, _, path = line.partition(" ")
        path = os.path.normpath(path.strip().removeprefix("*"))
        if len(digest) != 64 or not path:
            raise BadInput(
                "this line is not `SHA256  FILE`",
                file=f"{sums}:{number}",
                key=key,
                value=line,
                remedy="Make the list again",
            )
        files[path] = digest
    return files


def _read_json(file: Path, key: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingWeights(
            "this file of the checkpoint is missing", file=file, key=key, remedy="Mirror it again"
        ) from None
    except ValueError:
        raise CorruptWeights(
            "this file is not JSON: it is cut or damaged", file=file, key=key, remedy="Copy it again"
        ) from None
    return document
