"""`fleetcraft env`: build the tool chains as virtual environments."""

from __future__ import annotations

import argparse
import time

from fleetcraft.cli.common import Subparsers


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "env",
        help="build the tool chains",
        description="Build tool chains as virtual environments under .envs, from their definitions under envs/. "
        "One that is built as defined is left alone.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="a tool chain, such as diffusion or vbench")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.ground.toolchain import Toolchain

    for toolchain in [Toolchain(name) for name in chosen.names]:
        start = time.monotonic()
        print(f"tool chain {toolchain.name}: {len(toolchain.pins)} packages …", flush=True)
        made = toolchain.build()
        print(f"tool chain {toolchain.name}: {f'built in {time.monotonic() - start:.0f} s' if made else 'as defined'}")
    return 0
