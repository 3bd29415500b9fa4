"""`fleetcraft audit`: whether scratch still holds what the manifests promise."""

from __future__ import annotations

import argparse

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="find what was purged or damaged",
        description="Compare the manifests of a campaign with the store. Exit status 1 where something is gone or "
        "damaged. "
        "With --repair, the manifests of the shards concerned are removed, so that `snakemake` makes what is "
        "gone, and nothing else, again; so is what killed jobs left behind. Not while a campaign runs on that scratch.",
    )
    add_experiment(parser)
    parser.add_argument("--repair", action="store_true", help="remove what is damaged, so that it is made again")
    parser.add_argument(
        "--digests", action="store_true", help="read every file and compare its SHA-256, not only its size"
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.evidence.audit import audit, repair

    plan = load_plan(chosen)
    findings = audit(plan, digests=chosen.digests)
    for finding in findings:
        print(finding)
    if not findings:
        print(f"{plan.experiment.name}: scratch holds everything that the manifests promise")
        return 0
    if chosen.repair:
        repair(plan, findings)
        print(f"{len(findings)} findings repaired. Start `snakemake` to make again what is gone.")
        return 0
    print(f"{len(findings)} findings. `fleetcraft audit --repair {chosen.experiment}` prepares them for a rerun.")
    return 1
