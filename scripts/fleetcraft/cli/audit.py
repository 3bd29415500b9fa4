"""`fleetcraft audit`: whether scratch holds all of a campaign, and still what its manifests promise."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan, snakemake_command
from fleetcraft.cli.layout import wrapped

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="find what was purged or damaged",
        description="Count the manifests of a campaign's plan that are there, and compare them with the store. Exit "
        "status 1 where something is missing, gone or damaged: because it was purged, or because the campaign hasn't "
        "come to its end. Missing manifests are made by `snakemake`. "
        "With --repair, the manifests of the shards concerned are removed, so that `snakemake` makes what is "
        "gone, and nothing else, again; so is what killed jobs left behind; exit status 0 says that `snakemake` can be "
        "started. Not while a campaign runs on that scratch.",
    )
    add_experiment(parser)
    parser.add_argument("--repair", action="store_true", help="remove what is damaged, so that it is made again")
    parser.add_argument(
        "--digests", action="store_true", help="read every file and compare its SHA-256, not only its size"
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.evidence.audit import audit, present, repair

    plan, command = load_plan(chosen), snakemake_command([chosen.experiment])
    findings, manifests = audit(plan, digests=chosen.digests), present(plan)
    for finding in findings:
        print(finding)
    missing = _missing_lines(plan, manifests, command)
    print(*missing, sep="\n", end="\n" * bool(missing))
    if findings and chosen.repair:
        repair(plan, findings)
        print(f"{len(findings)} findings repaired. Start `{command}` to make again what is gone.")
    elif findings:
        print(f"{len(findings)} findings. `fleetcraft audit --repair {chosen.experiment}` prepares them for a rerun.")
    elif not missing:
        count = sum(planned for _, planned in manifests.values())
        print(f"{plan.experiment.name}: scratch holds everything that the {count:,} manifests of its plan promise")
    return 0 if chosen.repair else int(bool(findings or missing))


def _missing_lines(plan: Plan, manifests: Mapping[str, tuple[int, int]], command: str) -> list[str]:
    """How many manifests of the plan are there, and what makes the others; nothing where none is missing."""
    there, planned = (sum(counts) for counts in zip(*manifests.values(), strict=True))
    if there == planned:
        return []
    kinds = ", ".join(f"{kind} {found:,} of {count:,}" for kind, (found, count) in manifests.items())
    unharmed = (
        f" The tables and the evidence in {plan.paths.work} need none of them."
        if Path(plan.paths.evidence_digest).is_file()
        else ""
    )
    return wrapped(
        f"{plan.experiment.name}: {there:,} of the {planned:,} manifests of its plan are there ({kinds}). The others"
        f" were purged, or the campaign hasn't come to its end: `{command}` makes them.{unharmed}"
    )
