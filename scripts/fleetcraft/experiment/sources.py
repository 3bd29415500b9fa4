"""Where models come from: the digest of each, and the checks that need no GPU and no loading.

A checkpoint is looked at before anything is asked of a cluster (`fleetcraft.mirror.inspection`): what a plan finds,
`fleetcraft mirror verify` and the rule `models` find in the same way, and more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.experiment.arms import Arm
from fleetcraft.experiment.models import VideoModel
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.mirror.inspection import INDEX, Inspection, inspect
from fleetcraft.mirror.sums import compare, model_digest, read_sums
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.schedulers import refuse_own


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
    directory, sums = Path(source.path), Path(source.sha256sums) if source.sha256sums else None
    inspection = check_checkpoint(name, model.family, directory)
    try:
        files = read_sums(directory, sums)
        findings = compare(directory, sums, files, inspection.sizes)
        if findings:
            raise findings[0]
    except FleetcraftError as finding:
        raise finding.about(f"models.{name}.source.sha256sums") from None
    return ModelSource(model.family, model_digest(files), str(directory), 0, files)


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
    if inspection.findings:
        raise inspection.findings[0].about(key)
    return inspection
