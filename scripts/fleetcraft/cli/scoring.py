"""`fleetcraft scoring doctor`: which dimensions can be scored here, and what the others lack."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers
from fleetcraft.ground.errors import BadEnvironment, BadInput, FleetcraftError, MissingWeights, nearest

if TYPE_CHECKING:
    from fleetcraft.experiment.models import Verifier


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "scoring", help="see which dimensions can be scored", description="Look after what scoring needs."
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    doctor = actions.add_parser(
        "doctor",
        help="show which dimensions can be scored here, and what the others lack",
        description="Look for the weights that each dimension needs, and for the packages in its tool chain that `make "
        "envs` built. No weights are read. Without DIR and FILE, the files and where to mirror them from are listed. "
        "Exit status 1 where a named dimension can't be scored, or any where none is named.",
    )
    doctor.add_argument(
        "directory", nargs="?", type=Path, metavar="DIR", help="the directory of weights, `scoring.weights`"
    )
    doctor.add_argument(
        "--dimension", action="append", metavar="NAME", help="only this dimension; may be given several times"
    )
    doctor.add_argument(
        "--experiment",
        type=Path,
        metavar="FILE",
        help="what this experiment scores, verifiers too; its `scoring.weights` where no DIR is given",
    )
    doctor.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.experiment.config import located
    from fleetcraft.experiment.load import parse, validate
    from fleetcraft.scoring.dimensions import DIMENSIONS
    from fleetcraft.scoring.weights import MARK

    files: list[Path] = [] if chosen.experiment is None else [chosen.experiment]
    scoring = validate(parse(files[0]), files).scoring if files else None
    directory: Path | None = chosen.directory
    if directory is None and scoring is not None and scoring.weights is not None:
        directory = Path(scoring.weights)
    verifiers = {} if scoring is None else scoring.verifiers
    for name in chosen.dimension or ():
        if name not in DIMENSIONS and name not in verifiers:
            known = [*DIMENSIONS, *verifiers]
            raise BadInput("there is no such dimension", value=name, remedy=nearest(name, known))
    if chosen.dimension:
        names = chosen.dimension
    elif scoring is not None:
        names = list(dict.fromkeys([*scoring.dimensions, *verifiers]))
    else:
        proxies = directory is not None and (directory / MARK).exists()
        names = [name for name, one in DIMENSIONS.items() if one.weights is None or one.proxy == proxies]
    lacking = {
        name: _verifier_lacks(name, verifiers[name]) if name in verifiers else _lacking(name, directory)
        for name in names
    }
    width = max(map(len, names))
    for name, found in lacking.items():
        verdict = "can't be scored" if found else "can be scored"
        print(f"{name:<{width}}  {verdict}")
    for name, found in lacking.items():
        for error in found:
            print(f"\n{name}: {located(error, files)}")
    return 1 if any(lacking.values()) else 0


def _lacking(name: str, directory: Path | None) -> list[FleetcraftError]:
    """What keeps a dimension from being scored."""
    from fleetcraft.ground.machine import architecture
    from fleetcraft.scoring.dimensions import DIMENSIONS
    from fleetcraft.scoring.weights import needed, problems

    dimension = DIMENSIONS[name]
    found: list[FleetcraftError] = []
    if dimension.weights and directory is None:
        files = "; ".join(f"{file.path} from {file.source}" for file in needed(name))
        found.append(MissingWeights("it needs weights, and no directory was named", remedy=f"Mirror {files}"))
    elif dimension.weights and directory is not None:
        found += problems(directory, name)
    errors = (dimension.unprovided(), _wrong_packages(dimension.toolchain, dimension.packages_on(architecture())))
    return [*found, *(error for error in errors if error is not None)]


def _verifier_lacks(name: str, settings: Verifier) -> list[FleetcraftError]:
    """What keeps a verifier from scoring."""
    from fleetcraft.experiment.verifiers import resolve_verifier

    try:
        dimension = resolve_verifier(name, settings).dimension
    except FleetcraftError as error:
        return [error]
    wrong = _wrong_packages(dimension.toolchain, dimension.packages)
    return [] if wrong is None else [wrong]


@cache
def _wrong_packages(toolchain: str, packages: Sequence[str]) -> BadEnvironment | None:
    """What is wrong with the packages of a tool chain, as far as these go."""
    from fleetcraft.ground.toolchain import Toolchain

    try:
        Toolchain(toolchain).interpreter({}, packages)
    except BadEnvironment as error:
        return error
    return None
