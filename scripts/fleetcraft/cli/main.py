"""The command line. Each command is a module with `register`; its work is imported when it is called."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from fleetcraft import __version__
from fleetcraft.cli import (
    audit,
    environments,
    fleet,
    freeze,
    mirror,
    plan,
    project,
    schema,
    scoring,
    spool,
    stage,
    summary,
    verify,
    videos,
)
from fleetcraft.ground.errors import FleetcraftError

COMMANDS = (
    plan,
    project,
    freeze,
    mirror,
    videos,
    scoring,
    summary,
    audit,
    verify,
    stage,
    environments,
    schema,
    spool,
    fleet,
)


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help names the default of every option that has one, unless it does so in words of its own."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        named = "(default" in (action.help or "")
        nothing = action.default is None or action.default is False or action.default in ("", [])
        return action.help if named or nothing else super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any):
        super().__init__(formatter_class=_Formatter, **settings)


def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    parser = _Parser(
        prog="fleetcraft",
        description="Video-generation campaigns, from an experiment file to evidence. "
        "`snakemake` runs a campaign; these commands look at one, repair it and check it.",
    )
    parser.add_argument("--version", action="version", version=f"fleetcraft {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.register(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    chosen = parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except FleetcraftError as error:
        print(f"fleetcraft: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fleetcraft: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of a pipe has left, as `head` does. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
