"""Whether a checkpoint would load completely: asked of the tool chain, or known from before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetcraft.ground import errors
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.records import Record
from fleetcraft.ground.repository import SCRIPTS
from fleetcraft.ground.toolchain import Toolchain
from fleetcraft.mirror.memory import Memory
from fleetcraft.mirror.sums import model_digest
from fleetcraft.stages.job import Job
from fleetcraft.stages.launch import answer_of

_CODE = SCRIPTS / "fleetcraft/pipelines/dry_load.py"


def findings_beside(directory: Path, packages: tuple[str, ...]) -> list[FleetcraftError]:
    """What a dry load of the checkpoint finds, in the interpreter of the tool chain.

    Raises
    ------
    BadEnvironment : the tool chain isn't there, so nothing was found out.
    """
    job = Job("dry_load", "diffusion", packages, "", "", settings={"directory": str(directory)})
    return [finding_of(record) for record in answer_of(job, {})]


class DryLoads:
    """Which checkpoints were found complete, by what decides that: their files, the tool chain and this code."""

    def __init__(self, memory: Memory, directory: Path, files: dict[str, str], packages: tuple[str, ...]):
        self._memory, self._subject = memory, f"dry load of {directory.resolve()}"
        self._facts: dict[str, object] = {
            "files": model_digest(files),
            "packages": Toolchain("diffusion").pinned(packages),
            "code": sha256_file(_CODE),
        }

    @property
    def known(self) -> bool:
        """Whether the checkpoint was found complete before."""
        return self._memory.recall(self._subject, self._facts)

    def remember(self) -> None:
        """The checkpoint was found complete, and its files are those of its list."""
        self._memory.remember(self._subject, self._facts)


def record_of(finding: FleetcraftError) -> Record:
    """A finding as it passes from one interpreter to another."""
    file = None if finding.file is None else str(finding.file)
    return {
        "error": type(finding).__name__,
        "problem": finding.problem,
        "file": file,
        "remedy": finding.remedy,
    } | ({"value": finding.value} if finding.has_value else {})


def finding_of(record: Record) -> FleetcraftError:
    """The finding that was recorded."""
    known: dict[str, Any] = {key: record[key] for key in ("file", "value", "remedy") if key in record}
    error: type[FleetcraftError] = getattr(errors, record["error"])
    return error(record["problem"], **known)
