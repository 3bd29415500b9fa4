"""`fleetcraft schema`: the JSON Schema of experiment files, or of fleet files."""

from __future__ import annotations

import argparse

from fleetcraft.cli.common import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "schema",
        help="print the schema of experiment or fleet files",
        description="Print the JSON Schema of experiment files (config/schema.json is this output), or of fleet files "
        "(config/fleet.schema.json).",
    )
    parser.add_argument(
        "of", nargs="?", choices=("experiment", "fleet"), default="experiment", help="of which kind of file"
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    if chosen.of == "fleet":
        from fleetcraft.fleet.schema import schema_text
    else:
        from fleetcraft.experiment.schema import schema_text

    print(schema_text(), end="")
    return 0
