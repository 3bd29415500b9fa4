"""`fleetcraft plan`: what a campaign would compute, and what of it is there already."""

from __future__ import annotations

import argparse
import shutil
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan
from fleetcraft.cli.costs import cost_lines
from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.ground.units import bytes_text, counted

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan

_VIDEO_BYTES_PER_PIXEL = 0.06
"""A rule of thumb for H.264 at CRF 18: half a bit a pixel."""

_RECORD_BYTES = 2_000


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="what a campaign would compute",
        description="Print what a campaign would compute: samples, shards, jobs a stage, what the store already has, "
        "tokens, FLOPs, weights and memory of models and arms, and how many bytes go to which filesystem. Nothing is "
        "run or written.",
    )
    add_experiment(parser)
    parser.add_argument(
        "--without-weights",
        action="store_true",
        help="look at no checkpoint: each is taken for the published model that its directory is named after",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    plan = load_plan(chosen, without_weights=chosen.without_weights)
    print(plan_text(plan))
    return 0


def plan_text(plan: Plan) -> str:
    """The plan for people."""
    video = plan.experiment.video
    sizes = [len(shard) for shard in plan.shards.values()]
    lines = [
        f"{plan.experiment.name}: {counted(plan.sample_count, 'sample')} = {_samples_text(plan)}",
        f"  arms     {', '.join(f'{arm} (baseline)' if arm == plan.baseline else arm for arm in plan.arms)}",
        *_foreign_lines(plan),
        *_search_lines(plan),
        *(f"  {'':<8} {remark}" for remark in plan.remarks),
        f"  video    {video.width}×{video.height}, {video.frames} frames at {video.fps} a second",
        f"  shards   {len(sizes):,} an arm, of {_range_text(sizes)}",
        f"  scores   {', '.join(plan.dimensions)}",
        *_unseen_lines(plan),
        "",
        *cost_lines(plan),
        "jobs of a campaign from nothing",
        *(f"  {rule:<16}{count:>7,}" for rule, count in plan.jobs.items()),
        f"  {'in all':<16}{sum(plan.jobs.values()):>7,}",
        "",
        "already in the store",
        *_store_lines(plan),
        "",
        "estimated bytes",
        *_bytes_lines(plan, max(sizes)),
    ]
    return "\n".join(lines)


def _samples_text(plan: Plan) -> str:
    """How the samples come about."""
    arms = counted(len(plan.arms), "arm")
    base = f"{counted(len(plan.prompts), 'prompt')} × {counted(len(plan.seeds.base), 'seed')}"
    further = [
        f"{sum(dimension in prompt.dimensions for prompt in plan.prompts):,} of {dimension} × {len(seeds)} more"
        for dimension, seeds in plan.seeds.further.items()
    ]
    return f"{arms} × ({' + '.join([base, *further])})" if further else f"{arms} × {base}"


def _range_text(sizes: list[int]) -> str:
    least = "" if min(sizes) == max(sizes) else f"{min(sizes)} to "
    return least + counted(max(sizes), "sample")


def _foreign_lines(plan: Plan) -> list[str]:
    """What of the arms exists already."""
    return [
        f"  {arm:<8} {len(videos.files):,} existing videos, as they are, of {videos.directory}"
        for arm, videos in plan.foreign.items()
    ]


def _search_lines(plan: Plan) -> list[str]:
    """What each search makes, round by round."""
    lines = []
    for arm, search in plan.experiment.searches.items():
        rounds = [f"{count} in {one.arm}" for one, (count, _) in zip(search.rounds, search.counts, strict=True)]
        made = sum(count for count, _ in search.counts) * plan.samples_of_arm
        lines.append(
            f"  {arm:<8} candidates of each video: {', then '.join(rounds)}; chosen by the {search.prefer}"
            f" {search.verifier}, the winner in {search.recommit}; {made:,} candidates in all"
        )
    return lines


def _unseen_lines(plan: Plan) -> list[str]:
    """Which checkpoints the figures are of, where none was looked at."""
    if not plan.without_weights:
        return []
    names = [(name, source.path) for name, source in plan.models.items() if source.path is not None]
    if not names:
        return []
    return [
        "",
        "no checkpoint was looked at; taken for the published models of these names:",
        *(f"  {name}: {Path(path).name}" for name, path in names),
    ]


def _store_lines(plan: Plan) -> list[str]:
    if plan.without_weights:
        return ["  not known: what is in the store is found by the digests of the checkpoints' files"]
    from fleetcraft.store.store import Store

    store = Store(plan.paths.store)
    present = {kind: store.keys(kind) for kind in ("latents", "videos", "scores")}
    # By their keys: searches have samples in common, with each other and with other arms.
    wanted: dict[str, set[str]] = {kind: set() for kind in present}
    undecided = 0
    for arm in [*plan.arms, *plan.searches.hidden]:
        scored = {dimension: set(plan.scored_shards(arm, dimension)) for dimension in plan.scored_dimensions(arm)}
        for shard in plan.shards:
            try:
                samples = plan.samples(arm, shard)
            except (PurgedScratch, Damaged):
                undecided += len(plan.shards[shard])
                continue
            for sample in samples:
                keys = {"latents": sample.sample_id, "videos": plan.video_key(sample)}
                for kind in plan.conditions[plan.searches.made_in(arm)].kinds:
                    wanted[kind].add(keys[kind])
            for dimension, shards in scored.items():
                if shard in shards:
                    members = plan.scored_samples(arm, dimension, shard)
                    wanted["scores"] |= {plan.score_key(sample, dimension) for sample in members}
    lines = [f"  {kind:<9}{len(keys & present[kind]):>9,} of {len(keys):,}" for kind, keys in wanted.items() if keys]
    return [*lines, f"  and {undecided:,} samples that searches have yet to choose"] if undecided else lines


def _bytes_lines(plan: Plan, largest_shard: int) -> list[str]:
    video = plan.experiment.video
    pixels = video.width * video.height * video.frames
    per_arm = plan.samples_of_arm
    # At most: searches have candidates in common.
    latents = sum(prod(plan.latent_shape[plan.settings(arm).model]) * 4 * per_arm for arm in plan.made_arms)
    taken_in = sum(videos.bytes for videos in plan.foreign.values())
    videos = pixels * _VIDEO_BYTES_PER_PIXEL * per_arm * len(plan.made_arms) + taken_in
    frames = pixels * 3 * largest_shard if plan.made_arms else 0
    hidden = sum(2 + len(plan.scored_dimensions(arm)) for arm in plan.searches.hidden)
    records = _RECORD_BYTES * (plan.sample_count * (2 + len(plan.dimensions)) + per_arm * hidden)
    lines = []
    for root, path, size, what in (
        (
            "scratch",
            plan.paths.scratch_root,
            latents + videos + records,
            f"latents {bytes_text(latents)}, videos about {bytes_text(videos)}",
        ),
        ("work", plan.paths.work_root, records, "records, tables, figures; never videos"),
    ):
        existing = next(parent for parent in (Path(path).absolute(), *Path(path).absolute().parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        lines.append(f"  {root:<9}{bytes_text(size):>9}   {bytes_text(free)} free at {path} ({what})")
    if frames:
        lines.append(
            f"  {'':<9}{bytes_text(frames):>9}   more on scratch for each decode that runs, until its shard is encoded"
        )
    return lines
