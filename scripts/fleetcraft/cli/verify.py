"""`fleetcraft verify`: whether an evidence directory is whole and its tables follow from its records."""

from __future__ import annotations

import argparse
from pathlib import Path

from fleetcraft.cli.common import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="check an evidence directory",
        description="Recompute every digest of an evidence directory, the id of every sample and, from the records, "
        "every table and what VBench would write; hold the records to the plan, score by score. Needs nothing but the "
        "directory. Exit status 1 where something doesn't hold.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="an evidence directory")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.evidence.verify import verify

    findings = list(verify(chosen.directory))
    for finding in findings:
        print(finding)
    if findings:
        print(f"{chosen.directory}: {len(findings)} findings")
        return 1
    print(f"{chosen.directory}: every digest holds, and every table follows from the records")
    return 0
