"""Compare what manifests promise with what scratch holds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.evidence.archive import manifests_of
from fleetcraft.experiment.encoder_comparison import Comparison
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.ground.records import read_records
from fleetcraft.stages.describe import model_directory
from fleetcraft.store.store import Store


@dataclass(frozen=True)
class Finding:
    """Something that is gone or damaged.

    remove : what to remove: the manifest whose job has to run again, or what a killed job left behind.
    artifact : (kind, key) of the artifact in the store, where the finding is about one.
    """

    problem: str
    remove: Path
    artifact: tuple[str, str] | None = None

    def __str__(self) -> str:
        return self.problem


_ASKED_FOR = ("videos", "scores", "choices")
"""The kinds of manifests that a campaign asks for by name, so that Snakemake makes a missing one again.

The others it makes where these need them: latents, for example, have done their work when their videos are there.
"""


def present(plan: Plan) -> dict[str, tuple[int, int]]:
    """Kind → how many of the manifests of the plan are there, and how many there are to be, of those asked for."""
    manifests = manifests_of(plan)
    return {
        kind: (sum(file.is_file() for file in manifests[kind]), len(manifests[kind]))
        for kind in _ASKED_FOR
        if kind in manifests
    }


def audit(plan: Plan, *, digests: bool = False) -> list[Finding]:
    """Everything that is gone, damaged or left behind; with `digests`, every file is read.

    What a missing manifest would promise is not looked for: `present` tells of those.

    Latents whose video is there have done their work: that they are gone is no finding.
    """
    leftovers = [Finding(f"left behind: {path}", path) for path in Store(plan.paths.store).leftovers()]
    return [*_models(plan), *_artifacts(plan, [plan], digests), *_compared(plan, digests), *leftovers]


def repair(plan: Plan, findings: Sequence[Finding]) -> None:
    """Remove the manifests concerned and the damaged artifacts, so that Snakemake makes them again, and what was left.

    Not while a campaign runs on the same scratch: what a job is just writing looks like what a killed one left.
    """
    store = Store(plan.paths.store)
    for finding in findings:
        if finding.artifact is not None:
            store.discard(*finding.artifact)
        if finding.remove.is_dir():
            shutil.rmtree(finding.remove)
        else:
            finding.remove.unlink(missing_ok=True)


def _models(plan: Plan) -> Iterator[Finding]:
    for name, source in plan.models.items():
        record, directory = Path(plan.paths.model(name)), Path(model_directory(plan, name))
        if source.path is None and record.is_file() and not directory.is_dir():
            yield Finding(f"gone: {directory} (the model {name!r})", record)


def _compared(plan: Plan, digests: bool) -> Iterator[Finding]:
    """What a comparison of encoders has made: both sides decode the same latents."""
    if plan.experiment.encoder_comparison is not None:
        sides = list(Comparison(plan).plans.values())
        for side in sides:
            yield from _artifacts(side, sides, digests)


def _artifacts(plan: Plan, decoding: Sequence[Plan], digests: bool) -> Iterator[Finding]:
    """Of one plan; `decoding` are the plans that encode the frames of its latents."""
    store = Store(plan.paths.store)
    for choice in plan.searches.choices:
        for shard in plan.shards:
            yield from _choice(plan.searches.manifest(choice, shard))
    for arm in [*plan.arms, *plan.searches.hidden]:
        for shard in plan.shards:
            try:
                samples = plan.samples(arm, shard)
            except (PurgedScratch, Damaged):
                continue  # nothing was chosen yet, or its record has gone: Snakemake makes it, and then these again
            needed = {
                sample.sample_id
                for sample in samples
                if any(store.find("videos", other.video_key(sample)) is None for other in decoding)
            }
            yield from _manifest(store, "videos", Path(plan.paths.videos(arm, shard)), digests)
            for finding in _manifest(store, "latents", Path(plan.paths.latents(arm, shard)), digests):
                if finding.artifact is None or finding.artifact[1] in needed:
                    yield finding
            for dimension in plan.scored_dimensions(arm):
                manifest = Path(plan.paths.scores(arm, dimension, shard))
                yield from _manifest(store, "scores", manifest, digests)


def _choice(manifest: Path) -> Iterator[Finding]:
    if manifest.is_file():
        try:
            read_records(manifest)
        except Damaged as error:
            yield Finding(f"damaged: {error}", manifest)


def _manifest(store: Store, kind: str, manifest: Path, digests: bool) -> Iterator[Finding]:
    if not manifest.is_file():
        return  # not made yet, or gone: `present` counts those
    try:
        records = read_records(manifest)
    except Damaged as error:
        yield Finding(f"damaged: {error}", manifest)
        return
    for record in records:
        key = record["key"]
        about = f"arm {record['arm']!r}, prompt {record['prompt']!r}, seed {record['seed']}"
        if store.find(kind, key) is None:
            yield Finding(f"gone: {store.record_file(kind, key)} or its file ({kind}, {about})", manifest, (kind, key))
        elif digests and kind != "scores":
            try:
                store.verified(kind, key)
            except (Damaged, PurgedScratch) as error:
                yield Finding(f"damaged: {error.file} ({error.problem}; {about})", manifest, (kind, key))
