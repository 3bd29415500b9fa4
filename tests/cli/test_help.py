"""Every command says what it and each of its options is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fleetcraft.cli.main import parser


def commands(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from commands(command)


def test_every_command_and_option_has_help() -> None:
    silent = [
        f"{command.prog} {action.metavar or action.dest}"
        for command in commands(parser())
        for action in command._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert silent == []
    assert [command.prog for command in commands(parser()) if not command.description] == []


def test_help_names_a_default_where_there_is_one_and_once() -> None:
    texts = {command.prog: " ".join(command.format_help().split()) for command in commands(parser())}
    assert "longest pause when idle (default: 2.0)" in texts["fleetcraft worker"]
    assert "how often it may fail and be tried again (default: 0)" in texts["fleetcraft enqueue"]
    assert "what nodes must share to be in a gang: an allocation --" in texts["fleetcraft worker"]
    assert texts["fleetcraft worker"].count("$FLEETCRAFT_SPOOL") == 1
