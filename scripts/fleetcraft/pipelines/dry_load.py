"""Loading a checkpoint without its weights: would every part come out complete, and the tokenizers know words?

Every model is built on the `meta` device from its configuration, as its library builds it to load it, and compared with
the headers of its weights. Of tensors that a checkpoint lacks, diffusers leaves the model's own on `meta`, and
transformers fills them with random numbers: neither says so in a way that stops a run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from transformers.utils import logging as transformers_logging

from fleetcraft.ground.errors import BadEnvironment, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.mirror.inspection import INDEX, Inspection, Part, named
from fleetcraft.pipelines.prompts import Reader

PROBE = "A red bicycle leans against a wall, seen from above."
_REVISION = "Mirror configuration and weights again, from one revision"
_LIBRARIES = {"diffusers": diffusers, "transformers": transformers}


def dry_load(inspection: Inspection) -> list[FleetcraftError]:
    """What loading the checkpoint would leave incomplete. Takes seconds and little memory, whatever its size."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    findings = list(_missing_parts(inspection))
    for part in inspection.parts.values():
        folder = inspection.directory / part.name
        if part.library in _LIBRARIES:
            try:
                part_class = _class_of(part, inspection.directory)
                if part.kind == "model":
                    findings += _compare(part_class, part, folder)
                elif part.kind == "tokenizer":
                    Reader(part_class.from_pretrained(folder, local_files_only=True), limit=len(PROBE)).read(PROBE)
                elif part.kind == "scheduler":
                    part_class.from_pretrained(folder, local_files_only=True)
            except FleetcraftError as finding:
                findings.append(finding)
            except Exception as error:  # noqa: BLE001 - whatever libraries and their Rust parts raise on damaged files
                findings.append(
                    CorruptWeights(
                        f"{part.class_name} can't be made of these files ({type(error).__name__}: {_one_line(error)})",
                        file=folder,
                        remedy=_REVISION,
                    )
                )
    return findings


def _missing_parts(inspection: Inspection) -> Iterator[FleetcraftError]:
    """Components that the pipeline can't do without and model_index.json doesn't name."""
    pipeline = getattr(diffusers, inspection.pipeline, None)
    if pipeline is None:
        yield BadEnvironment(
            f"diffusers {diffusers.__version__} has no pipeline {inspection.pipeline!r}",
            file=inspection.directory / INDEX,
            remedy="Take a checkpoint of a pipeline that it has, or pin another diffusers",
        )
        return
    parameters = inspect.signature(pipeline.__init__).parameters.values()
    needed = {
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    missing = needed - {"self"} - set(pipeline._optional_components) - inspection.parts.keys()
    if missing:
        yield MissingWeights(
            f"{inspection.pipeline} needs components that aren't named here: {named(sorted(missing))}",
            file=inspection.directory / INDEX,
            remedy="Mirror the whole checkpoint",
        )


def _class_of(part: Part, directory: Path) -> Any:
    found = getattr(_LIBRARIES[part.library], part.class_name, None)
    if found is None:
        version = _LIBRARIES[part.library].__version__
        raise BadEnvironment(
            f"the component {part.name!r} is of the class {part.class_name!r}, which {part.library} {version} hasn't",
            file=directory / INDEX,
            remedy="Take a checkpoint made for it, or pin another version",
        )
    return found


def _compare(model_class: Any, part: Part, folder: Path) -> Iterator[FleetcraftError]:
    """Names and shapes of the model's own tensors against those in the headers."""
    if not part.tensors:
        return  # its weights are missing or unreadable, which was found without building it
    found = {name: torch.empty(tensor.shape, device="meta") for name, tensor in part.tensors.items()}
    load = _of_diffusers if part.library == "diffusers" else _of_transformers
    missing, unexpected, shapes = load(model_class, folder, found)
    for names, what in (
        (missing, "of {count} tensors of {model} there is no trace in its weights"),
        (unexpected, "{count} tensors of its weights have no place in {model} as it is configured"),
        (shapes, "{count} tensors of its weights have another shape than {model} has by its configuration"),
    ):
        if names:
            said = what.format(count=f"{len(names):,}", model=part.class_name)
            yield CorruptWeights(f"{said}: {named(sorted(names))}", file=folder, remedy=_REVISION)


Differences = tuple[Collection[str], Collection[str], Collection[str]]
"""Missing tensors, unexpected ones, and misshapen ones with their shapes."""


def _of_diffusers(model_class: Any, folder: Path, found: dict[str, torch.Tensor]) -> Differences:
    with torch.device("meta"):
        model = model_class.from_config(model_class.load_config(folder, local_files_only=True))
    if not any(folder.glob("*.safetensors.index.json")):
        model._fix_state_dict_keys_on_load(found)  # as loading does with the names of old checkpoints
    expected = model.state_dict()
    ignored = model_class._keys_to_ignore_on_load_unexpected or []
    return (
        expected.keys() - found.keys(),
        [name for name in found.keys() - expected.keys() if not any(re.search(pattern, name) for pattern in ignored)],
        [
            _shapes(name, found[name].shape, expected[name].shape)
            for name in expected.keys() & found.keys()
            if found[name].shape != expected[name].shape
        ],
    )


def _of_transformers(model_class: Any, folder: Path, found: dict[str, torch.Tensor]) -> Differences:
    # Loaded by transformers itself, which knows of tied tensors and of the names that its models had before.
    _, report = model_class.from_pretrained(
        None,
        config=model_class.config_class.from_pretrained(folder, local_files_only=True),
        state_dict=found,
        device_map="meta",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        local_files_only=True,
    )
    return (
        report["missing_keys"],
        report["unexpected_keys"],
        [_shapes(*mismatch) for mismatch in report["mismatched_keys"]],
    )


def _shapes(name: str, found: Iterable[int], expected: Iterable[int]) -> str:
    return f"{name} {list(found)} instead of {list(expected)}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
