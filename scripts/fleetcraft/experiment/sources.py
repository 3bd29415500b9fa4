"""Where models come from: the digest of each, and the checks that need no GPU and no loading.

A checkpoint is looked at before anything is asked of a cluster (`fleetcraft.mirror.inspection`): what a plan finds,
`fleetcraft mirror verify` and the rule `models` find in the same way, and more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetcraft.experiment.arms import Arm
from fleetcraft.experiment.models import VideoModel
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError
from fleetcraft.mirror.inspection import INDEX, Inspection, inspect
from fleetcraft.mirror.reading import read_json
from fleetcraft.mirror.sums import compare, model_digest, read_sums
from fleetcraft.pipelines.configs import Architecture, Config, published, tiny
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.schedulers import refuse_own


@dataclass(frozen=True)
class ModelSource:
    """A model as the plan knows it.

    digest : names the bytes of its files, or the recipe and seed that they are built from.
    path : directory of the checkpoint; None for a tiny model, which is built into the store.
    files : SHA-256 of each file of the checkpoint, by path relative to it.
    transformer, vae : configs of the two, which decide shapes and costs.
    parameters : numbers in the weights of `transformer`, `text_encoder` (of all, where there are two) and `vae`.
    """

    family: str
    digest: str
    path: str | None
    seed: int
    files: dict[str, str]
    transformer: Config
    vae: Config
    parameters: Mapping[str, int]


def resolve(name: str, model: VideoModel) -> ModelSource:
    """The source of the model `name`, checked as far as that is cheap."""
    source = model.source
    if source.path is None:
        seed = source.seed or 0
        recipe = {"tiny": model.family, "recipe": FAMILIES[model.family].recipe, "seed": seed}
        return _known(tiny(model.family), key_of(recipe), None, seed)
    directory, sums = Path(source.path), Path(source.sha256sums) if source.sha256sums else None
    inspection = check_checkpoint(name, model.family, directory)
    files = listed_files(inspection, sums, f"models.{name}.source.sha256sums")
    transformer, vae = (_config(name, model.family, directory, part) for part in ("transformer", "vae"))
    digest = model_digest(files)
    return ModelSource(model.family, digest, str(directory), 0, files, transformer, vae, _stored(inspection))


def listed_files(inspection: Inspection, sums: Path | None, key: str) -> dict[str, str]:
    """SHA-256 of each file of a model, whose list and directory have the same files.

    sums : the list; by default the one in the directory. key : of the list in the experiment.
    """
    try:
        files = read_sums(inspection.directory, sums)
        findings = compare(inspection.directory, sums, files, inspection.sizes)
        if findings:
            raise findings[0]
    except FleetcraftError as finding:
        raise finding.about(key) from None
    return files


def resolve_without_weights(name: str, model: VideoModel) -> ModelSource:
    """The source of the model `name` by the name of its directory, which isn't looked at.

    Its digest stands for the published model and not for any files: keys that are made with it find nothing.

    Raises BadInput where no published model of this family has the name.
    """
    path = model.source.path
    if path is None:
        return resolve(name, model)
    known = {name: entry for name, entry in published().items() if entry.family == model.family}
    directory = Path(path).name
    if directory not in known:
        raise BadInput(
            f"no published model of the family {model.family!r} has the name of this directory",
            key=f"models.{name}.source.path",
            value=path,
            remedy=f"Known are {', '.join(sorted(known))}; another model is planned from its checkpoint",
        )
    return _known(known[directory], key_of({"published": directory}), path, 0)


def _known(architecture: Architecture, digest: str, path: str | None, seed: int) -> ModelSource:
    """A model of which nothing has been read."""
    transformer = FAMILIES[architecture.family].transformer_of(architecture.transformer)
    parameters = {"transformer": transformer.parameters, **architecture.parameters}
    return ModelSource(
        architecture.family, digest, path, seed, {}, architecture.transformer, architecture.vae, parameters
    )


def _config(name: str, family: str, directory: Path, part: Literal["transformer", "vae"]) -> Config:
    """A config that the family can make something of."""
    file, key = directory / part / "config.json", f"models.{name}.source.path"
    known = FAMILIES[family]
    try:
        config = read_json(file)
        known.transformer_of(config).parameters if part == "transformer" else known.vae_of(config).held(256, 256, 9)
    except FleetcraftError as finding:
        raise finding.about(key) from None
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        raise CorruptWeights(
            f"this is no config of a {part} of the family {family!r}", file=file, key=key, remedy="Mirror it again"
        ) from None
    return config


def _stored(inspection: Inspection) -> dict[str, int]:
    """Numbers in a checkpoint's weights, as the headers of its files say."""
    stored = dict.fromkeys(("transformer", "text_encoder", "vae"), 0)
    for name, part in inspection.parts.items():
        kind = "text_encoder" if name.startswith("text_encoder") else name
        if kind in stored:
            stored[kind] += sum(tensor.elements for tensor in part.tensors.values())
    return stored


def refuse_own_scheduler(name: str, arm: Arm, source: ModelSource) -> None:
    """Refuse an arm that names the scheduler, or the shift, that its checkpoint has anyway.

    A tiny model has no files yet: there its pipeline refuses it as it is loaded.
    """
    if source.path is None or (arm.scheduler is None and arm.flow_shift is None):
        return
    # That the file is there and holds an object was seen as the checkpoint was inspected.
    config = json.loads((Path(source.path) / "scheduler/scheduler_config.json").read_text(encoding="utf-8"))
    try:
        refuse_own(config, config.get("_class_name"), arm.scheduler, arm.flow_shift)
    except BadInput as error:
        raise error.below(f"arms.{name}") from None


def check_checkpoint(name: str, family: str, directory: Path) -> Inspection:
    """Refuse a checkpoint that a pipeline would fail on, or, worse, load in silence with parts missing."""
    key = f"models.{name}.source.path"
    try:
        inspection = inspect(directory)
    except FleetcraftError as finding:
        raise finding.about(key) from None
    expected = FAMILIES[family].pipeline
    if inspection.pipeline != expected:
        raise BadInput(
            f"this checkpoint is of {inspection.pipeline}, but the family {family!r} loads {expected}",
            file=directory / INDEX,
            key=f"models.{name}.family",
            remedy="Choose the family of the checkpoint, or another checkpoint",
        )
    if findings := [*left_out(family, inspection), *inspection.findings]:
        raise findings[0].about(key)
    return inspection


def left_out(family: str, inspection: Inspection) -> list[FleetcraftError]:
    """The components of a checkpoint with weights that its family would not run, although its pipeline does."""
    return [
        BadInput(
            f"this checkpoint has a component that the family {family!r} doesn't run: without it, videos would not be"
            " this model's",
            file=inspection.directory / INDEX,
            value=f"{part.name}: {part.class_name}",
            remedy="Take a checkpoint without it; config/README.md says which layouts the families have",
        )
        for part in inspection.parts.values()
        if part.kind == "model" and part.name not in FAMILIES[family].models
    ]
