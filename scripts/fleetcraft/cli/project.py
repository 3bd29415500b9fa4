"""`fleetcraft project`: how a campaign would use a fleet, before it is started."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan

if TYPE_CHECKING:
    from fleetcraft.calibration.projection import Projection


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "project",
        help="how a campaign would use a fleet",
        description="Print what a campaign would make of a fleet, from its batch table: the cycle of a video, hours, "
        "busy fraction and estimated MFU. A profile can refuse campaigns that use their fleet badly.",
    )
    add_experiment(parser)
    parser.add_argument("--devices", type=int, required=True, metavar="N", help="GPUs of the fleet, or its nodes")
    parser.add_argument(
        "--host-lanes", type=int, metavar="N", help="jobs that encode or score at a time (default: four a device)"
    )
    parser.add_argument("--refuse-below", type=float, metavar="SHARE", help="fail where fewer of the hours are busy")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.experiment.config import located_in
    from fleetcraft.experiment.projection import projection_of

    plan = load_plan(chosen)
    with located_in([chosen.experiment]):
        projection = projection_of(plan, chosen.devices, chosen.host_lanes or 4 * chosen.devices)
    print(projection_text(projection))
    if chosen.refuse_below is not None and projection.busy_fraction < chosen.refuse_below:
        print(f"refused: less than {chosen.refuse_below:.0%} of the device hours are busy", file=sys.stderr)
        return 1
    return 0


def projection_text(projection: Projection) -> str:
    """The projection for people."""
    cycle = ", ".join(f"{name} {seconds:.2f}" for name, seconds in projection.cycle_s.items())
    mfu = projection.estimated_mfu
    estimate = "not known: no `stack.hardware`, or no FLOPs in the table" if mfu is None else f"{mfu:.1%}"
    return "\n".join(
        [
            f"{projection.videos:,} videos on {projection.devices} devices (estimated, from the batch table)",
            f"  cycle           {sum(projection.cycle_s.values()):.2f} s a video: {cycle}",
            f"  hours           {projection.hours:.2f}, {projection.device_hours:.1f} of devices",
            f"  busy            {projection.busy_fraction:.1%} of the device hours",
            f"  estimated MFU   {estimate}",
        ]
    )
