"""Make a campaign's evidence directory.

    plan.json, experiment.yaml     what was to be computed
    records/*.jsonl                every artifact's record: digests, timings, peaks, versions, host
    tables/, figures/              what was concluded
    vbench/*_eval_results.json     the same of VBench's dimensions, an arm each, as VBench writes it
    environment/                   the lock file and the tool chains' definitions
    source.json                    the revision of the source, and the digest of every file of it
    manifest-sha256.txt            the digest of every file above, as `sha256sum --check` reads it

Never the videos: their digests are in the records, and stable seeds on the same stack make them again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from fleetcraft.evidence.source import source_revision
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.files import new_directory, write_text
from fleetcraft.ground.records import Record, iterate_records, write_records
from fleetcraft.ground.repository import CHECKOUT, ENVIRONMENTS, ROOT

MANIFEST = "manifest-sha256.txt"
LOCK = ROOT / "requirements.lock"


def archive(plan: Plan, tables: Iterable[Path], figures: Iterable[Path], vbench: Iterable[Path]) -> None:
    """Gather the evidence of a finished campaign under `plan.paths.evidence`.

    The digest of its manifest, which stands for all of it, is written last, beside the directory.
    """
    evidence = Path(plan.paths.evidence)
    with new_directory(evidence, replace=True) as directory:
        (directory / "plan.json").write_text(json.dumps(plan.document(), indent=1, ensure_ascii=False) + "\n")
        experiment = plan.experiment.model_dump(mode="json")
        (directory / "experiment.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False, allow_unicode=True))
        for kind, manifests in manifests_of(plan).items():
            write_records(directory / f"records/{kind}.jsonl", _all_records(manifests))
        for concluded in (tables, figures, vbench):
            _copy(concluded, Path(plan.paths.work), directory)
        for file in (LOCK, *sorted(ENVIRONMENTS.glob("*.yaml"))):
            _copy([file], file.parent, directory / "environment")
        (directory / "source.json").write_text(json.dumps(source_revision(ROOT, CHECKOUT), indent=1) + "\n")
        lines = [
            f"{sha256_file(file)}  {file.relative_to(directory)}\n"
            for file in sorted(directory.rglob("*"))
            if file.is_file()
        ]
        (directory / MANIFEST).write_text("".join(lines))
    digest = sha256_file(evidence / MANIFEST)
    write_text(Path(plan.paths.evidence_digest), f"{digest}  {evidence.name}/{MANIFEST}\n")


def manifests_of(plan: Plan, *, candidates: bool = True) -> dict[str, list[Path]]:
    """Kind of record → the manifests that hold them; without `candidates`, of the experiment's own arms alone."""
    paths, shards = plan.paths, list(plan.shards)
    arms = [*plan.arms, *(plan.searches.hidden if candidates else [])]
    choices = [plan.searches.manifest(choice, shard) for choice in plan.searches.choices for shard in shards]
    return {
        "models": [Path(paths.model(model)) for model in plan.used_models],
        "latents": [Path(paths.latents(arm, shard)) for arm in plan.made_arms if arm in arms for shard in shards],
        "videos": [Path(paths.videos(arm, shard)) for arm in arms for shard in shards],
        "scores": [
            Path(paths.scores(arm, dimension, shard))
            for arm in arms
            for dimension in plan.scored_dimensions(arm)
            for shard in plan.scored_shards(arm, dimension)
        ],
        **({"choices": choices} if choices else {}),
        **({"timings": [Path(paths.timings)]} if plan.experiment.timing else {}),
    }


def _all_records(manifests: Iterable[Path]) -> Iterator[Record]:
    for manifest in manifests:
        yield from iterate_records(manifest)


def _copy(files: Iterable[Path], root: Path, directory: Path) -> None:
    """Copy files below `root` to the same places below `directory`."""
    for file in files:
        copy = directory / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
