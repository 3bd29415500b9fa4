"""The sources of a campaign, copied at its start: editing the checkout during a run can't reach a job of it.

A copy is named by the digest of what is in it, so that a campaign that starts again on unchanged sources finds its
copy, and the tasks that run from it are still its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import key_of, sha256_file
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.files import new_directory

DIRECTORIES = ("rules", "scripts", "resources", "envs", "profiles", "config", "workflow")
"""What is copied beside the Snakefile, with all that is in it."""

FILES = frozenset({".py", ".smk", ".R", ".lock", ".toml", ".yaml", ".yml", ".json", ".rst", ".md"})
"""Suffixes of what else is copied from the Snakefile's own directory."""

_LARGEST_MB = 20
_CONFIG = ".configfiles"
_NOT_SOURCES = frozenset({"__pycache__", ".snakemake", ".git"})


@dataclass(frozen=True, slots=True)
class Sources:
    """A campaign's copy.

    Parameters
    ----------
    digest : of everything in it.
    root : what was copied, and `copy` where to.
    snakefile, configfiles : in the copy; the latter in the order in which they override each other.
    """

    digest: str
    root: Path
    copy: Path
    snakefile: Path
    configfiles: tuple[Path, ...]

    def python_path(self, present: str | None) -> str | None:
        """PYTHONPATH for jobs: the copy in place of what was copied, and its `scripts` first."""
        parts = [part for part in (present or "").split(os.pathsep) if part]
        frozen = [self._frozen(Path(part)) for part in parts]
        scripts = self.snakefile.parent / "scripts"
        if scripts.is_dir() and str(scripts) not in frozen:
            frozen.insert(0, str(scripts))
        return os.pathsep.join(frozen) or None

    def _frozen(self, path: Path) -> str:
        if path.absolute().is_relative_to(self.root):
            inner = self.copy / path.absolute().relative_to(self.root)
            if inner.exists():
                return str(inner)
        return str(path)


def freeze(workflow: Any, directory: Path) -> Sources:
    """Copy a workflow's sources into `directory`, unless this very copy is there.

    Raises
    ------
    BadInput : the main Snakefile isn't a local file.
    """
    snakefile = Path(workflow.main_snakefile).absolute()
    if not snakefile.is_file():
        raise BadInput(
            "the Snakefile of a campaign must be a local file", file=snakefile, remedy="Clone the workflow first"
        )
    named = [snakefile, *_local(workflow.included), *_scripts(workflow)]
    root = Path(os.path.commonpath([file.parent for file in named]))
    files = {file.relative_to(root) for file in [*named, *_beside(snakefile.parent)]}
    configfiles = _configfiles(workflow)
    contents = {str(file): sha256_file(root / file) for file in sorted(files)}
    contents |= {f"{_CONFIG}/{name}": sha256_file(file) for name, file in configfiles.items()}
    digest = key_of(contents)[:24]
    copy = directory / digest
    if not copy.is_dir():
        with new_directory(copy) as temporary:
            for file in files:
                _copy(root / file, temporary / file)
            for name, file in configfiles.items():
                _copy(file, temporary / _CONFIG / name)
    return Sources(
        digest=digest,
        root=root,
        copy=copy,
        snakefile=copy / snakefile.relative_to(root),
        configfiles=tuple(copy / _CONFIG / name for name in configfiles),
    )


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, to)


def _local(included: Iterable[Any]) -> Iterator[Path]:
    for source in included:
        path = Path(source.get_path_or_uri(secret_free=True)).absolute()
        if path.is_file():
            yield path


def _scripts(workflow: Any) -> Iterator[Path]:
    for rule in workflow.rules:
        script = rule.script or rule.notebook
        if script and "{" not in str(script):
            path = Path(str(script) if Path(str(script)).is_absolute() else str(rule.basedir.join(str(script))))
            if path.is_file():
                yield Path(os.path.normpath(path.absolute()))


def _beside(directory: Path) -> Iterator[Path]:
    """What belongs to a workflow in its directory."""
    for file in directory.iterdir():
        if file.is_file() and file.suffix in FILES and file.stat().st_size < _LARGEST_MB << 20:
            yield file
    for name in DIRECTORIES:
        for parent, inner, names in os.walk(directory / name):
            inner[:] = [entry for entry in inner if entry not in _NOT_SOURCES and not entry.endswith(".egg-info")]
            for entry in names:
                file = Path(parent, entry)
                if file.is_file() and file.suffix != ".pyc" and file.stat().st_size < _LARGEST_MB << 20:
                    yield file


def _configfiles(workflow: Any) -> dict[str, Path]:
    """Name in the copy → configuration file. The command line's come last, for they override the Snakefile's."""
    given = [Path(file).absolute() for file in workflow.overwrite_configfiles]
    declared = [path for file in workflow.configfiles if (path := Path(file).absolute()) not in given]
    return {f"{number:02d}-{file.name}": file for number, file in enumerate([*declared, *given])}
