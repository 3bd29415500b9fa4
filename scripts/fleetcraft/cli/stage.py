"""`fleetcraft stage`: run one job again by hand, from the description beside its log."""

from __future__ import annotations

import argparse
from pathlib import Path

from fleetcraft.cli.common import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "stage",
        help="run one job by hand",
        description="Run the stage of one job, in the interpreter of its tool chain, with its output on the terminal. "
        "Every job leaves its description beside its log.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.json", help="the description of a job")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.ground.errors import BadInput
    from fleetcraft.stages.job import Job
    from fleetcraft.stages.launch import hand_over

    if not chosen.job.is_file():
        raise BadInput("there is no such job description", file=chosen.job, remedy="Look beside the job's log")
    hand_over(Job.read(chosen.job), chosen.job, {})
