"""`fleetcraft schema`: the JSON Schema of experiment files."""

from __future__ import annotations

import argparse

from fleetcraft.cli.common import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "schema",
        help="print the schema of experiment files",
        description="Print the JSON Schema of experiment files. config/schema.json is this output.",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.experiment.schema import schema_text

    print(schema_text(), end="")
    return 0
