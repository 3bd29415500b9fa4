"""Tool chains: the pinned environments that stages run in, and the interpreter of each.

`envs/<name>.yaml` is the one definition of a tool chain: a conda environment file whose pip section pins every
package exactly. Snakemake deploys it with `--sdm conda`; `fleetcraft env build` makes a virtual environment from the
same pins. Which interpreter a stage gets is decided in `interpreter`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

import yaml

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadEnvironment, BadInput, nearest
from fleetcraft.ground.machine import Architecture, architecture
from fleetcraft.ground.repository import CHECKOUT, ENVIRONMENTS, SCRIPTS, node_copy

_PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)(?:\s*;\s*platform_machine\s*==\s*[\"'](x86_64|aarch64)[\"'])?$"
)

_IMPORTS = {
    "analysis": ("matplotlib", "scipy"),
    "diffusion": ("torch", "diffusers", "transformers", "imageio_ffmpeg"),
    "vbench": ("torch", "cv2", "av", "decord", "vbench"),
}
"""What must be importable in a tool chain that was just built: it tells of missing system libraries at once."""

_WITHOUT = {"decord": ("decord", "vbench")}
"""Package → what can't be imported by itself where it isn't pinned."""

_DROPPED = (
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "DIFFUSERS_",
    "HF_",
    "HUGGINGFACE_",
    "TRANSFORMERS_",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ATEN_CPU_CAPABILITY",
    "DNNL_",
    "ONEDNN_",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
)
"""How the names begin of what a stage doesn't take over from the environment it is started in."""

_QUERY = """
import json, sys
from importlib import metadata
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Toolchain:
    """A named environment and its definition file.

    machine : the processor architecture that it is for, by default this machine's.
    """

    name: str
    machine: Architecture = field(default_factory=architecture)

    def __post_init__(self) -> None:
        if not self.definition.is_file():
            known = sorted(path.stem for path in ENVIRONMENTS.glob("*.yaml"))
            raise BadInput(f"there is no tool chain named {self.name!r}", remedy=nearest(self.name, known))

    @property
    def definition(self) -> Path:
        return ENVIRONMENTS / f"{self.name}.yaml"

    @property
    def home(self) -> Path:
        """The virtual environment that `build` makes."""
        return CHECKOUT / ".envs" / self.name

    @property
    def pins(self) -> dict[str, str]:
        """Package → exact version, as the definition has it for `machine`."""
        return {name: version for name, version, machine in self._lines if machine in (None, self.machine)}

    @cached_property
    def _lines(self) -> list[tuple[str, str, str | None]]:
        """Package, exact version, and the only architecture that the line is for, if there is one."""
        document = yaml.load(self.definition.read_text(), yaml.CSafeLoader)
        lines = next(entry["pip"] for entry in document["dependencies"] if isinstance(entry, dict))
        found = []
        for line in lines:
            match = _PIN.match(line)
            if match is None:
                raise BadInput(
                    "a package is not pinned exactly",
                    file=self.definition,
                    value=line,
                    remedy='Write it as name==version, or name==version; platform_machine == "x86_64"',
                )
            found.append((_canonical(match[1]), match[2], match[3]))
        return found

    def pinned(self, packages: Iterable[str]) -> dict[str, str]:
        """The pins of `packages` alone; each must be in the definition."""
        pins = self.pins
        missing = [name for name in packages if name not in pins]
        if missing:
            raise BadEnvironment(
                f"the definition pins no {', '.join(missing)} for {self.machine}",
                file=self.definition,
                remedy="Add the exact version under `pip`, or correct `stack.machine` in the experiment",
            )
        return {name: pins[name] for name in packages}

    def build(self) -> bool:
        """Make the virtual environment unless it already has this definition; says whether it had to be made."""
        stamp, digest = self.home / "definition.sha256", sha256_file(self.definition)
        if stamp.is_file() and stamp.read_text() == digest and (self.home / "bin/python").exists():
            return False
        shutil.rmtree(self.home, ignore_errors=True)
        venv.create(self.home, with_pip=True, symlinks=True)
        python = str(self.home / "bin/python")
        pins = self.pins
        packages = [f"{name}=={version}" for name, version in pins.items()]
        lacking = {name for name, *_ in self._lines} - set(pins)
        # What isn't pinned here, others may still name among what they need; pip would look for it.
        alone = ["--no-deps"] if lacking else []
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        self._run([*pip, *alone, *packages], "installed")
        without = {module for name in lacking for module in _WITHOUT.get(name, ())}
        modules = [module for module in _IMPORTS[self.name] if module not in without]
        self._run([python, "-c", f"import {', '.join(modules)}"], "imported")
        stamp.write_text(digest)
        return True

    def _run(self, command: list[str], what: str) -> None:
        """Run a step of the build; its output is the user's to read."""
        if subprocess.run(command, env=clean_environment(), check=False).returncode != 0:
            raise BadEnvironment(
                f"the packages of the tool chain {self.name!r} can't be {what} (the reason stands above)",
                file=self.definition,
                remedy="Provide what is missing (a package index that is reached, space, a system library), then again",
            )

    def interpreter(self, named: Mapping[str, str], decisive: Iterable[str]) -> str:
        """The Python that runs this tool chain.

        The current one where it has the pins, as it has under Snakemake's own deployment; else the one that the
        profile names; else the one that `make` built. `decisive` are the packages whose versions must be as pinned.

        Raises
        ------
        BadEnvironment : no such interpreter, or its packages aren't the pinned ones.
        """
        pins = self.pinned(decisive)
        if not _differences(pins, {name: _installed(name) for name in pins}):
            return sys.executable
        if self.name in named:
            python, origin = named[self.name], f"named by the profile as toolchains.{self.name}"
        else:
            python, origin = str(self.home / "bin/python"), "built by `make`"
        python = node_copy(python)
        if not os.access(python, os.X_OK):
            raise BadEnvironment(
                f"the interpreter of the tool chain {self.name!r}, {origin}, isn't there",
                file=python,
                remedy=f"Run `make envs` in {CHECKOUT}, or name another in the profile's `config: toolchains`",
            )
        answer = subprocess.run(
            [python, "-c", _QUERY, json.dumps(list(pins))],
            check=True,
            capture_output=True,
            text=True,
            env=clean_environment(),
        )
        wrong = _differences(pins, json.loads(answer.stdout))
        if wrong:
            raise BadEnvironment(
                f"the tool chain {self.name!r} is not the one that {self.definition.name} declares: {'; '.join(wrong)}",
                file=python,
                remedy="Run `make envs` to build it as declared, or declare what is installed in the definition",
            )
        return python


def clean_environment() -> dict[str, str]:
    """The environment variables of a stage.

    They are this process's with only this repository on the path, offline, and without those by which a user's shell
    could decide pixels: which kernels and instructions the libraries choose belongs to the experiment.

    Models come from the directories that the experiment names. The libraries that would rather fetch them have no cache
    that they could find something in or write to: below /dev/null there is nothing, for root neither.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return kept | {
        "PYTHONPATH": str(SCRIPTS),
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": "/dev/null/huggingface",
    }


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The installed versions of `packages` in this interpreter, local parts included."""
    return {name: _installed(name) for name in packages}


@cache
def _installed(name: str) -> str | None:
    # A look at a package's metadata takes longer than many a video's score, and each record tells of several.
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _differences(pins: Mapping[str, str], found: Mapping[str, str | None]) -> list[str]:
    """What differs, local version parts aside: 2.13.0+cpu is a build of 2.13.0."""
    return [
        f"{name} is {found[name] or 'missing'}, declared {version}"
        for name, version in pins.items()
        if (found[name] or "").partition("+")[0] != version
    ]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
