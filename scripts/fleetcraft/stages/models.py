"""Stage models: a tiny model is built into the store; a checkpoint is verified as `fleetcraft mirror verify` does."""

from __future__ import annotations

from pathlib import Path

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.files import new_directory
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import write_records
from fleetcraft.ground.units import bytes_text
from fleetcraft.mirror.digests import verify_digests
from fleetcraft.mirror.inspection import distinct, inspect
from fleetcraft.mirror.memory import Memory, cache_home
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.stages.completeness import DryLoads
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance

READERS = 1
"""The job has asked for one processor."""


def run(job: Job) -> None:
    """Leave the model's directory complete, and a record of every file in it."""
    wanted, ledger = job.settings, Ledger()
    directory = Path(wanted["directory"])
    if wanted["tiny"] and not directory.is_dir():
        from fleetcraft.pipelines import numerics

        numerics.pin("cpu")
        with ledger.phase("build"), new_directory(directory) as temporary:
            FAMILIES[wanted["family"]].load().build_tiny(temporary, wanted["seed"])
    with ledger.phase("verify"):
        files = _digests(directory) if wanted["tiny"] else _verified(job, directory)
    record = {
        "kind": "model",
        "model": wanted["model"],
        "family": wanted["family"],
        "digest": wanted["digest"],
        "files": files,
        "seconds": ledger.seconds,
        "memory": ledger.memory,
        "made": provenance(job.packages),
    }
    write_records(Path(job.output), [record])


def _digests(directory: Path) -> dict[str, str]:
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    return {str(file.relative_to(directory)): sha256_file(file) for file in files}


def _verified(job: Job, directory: Path) -> dict[str, str]:
    """Every file is as listed and every part loads complete; all that isn't is printed, and the first raised."""
    files: dict[str, str] = job.settings["files"]
    memory = Memory(cache_home())
    inspection = inspect(directory)
    digests = verify_digests(directory, files, memory, READERS)
    print(
        f"models: {digests.files} files verified, {digests.remembered} of them before;"
        f" {bytes_text(digests.read)} read in {digests.seconds:.1f} s"
    )
    findings = distinct([*inspection.findings, *digests.findings])
    loads = DryLoads(memory, directory, files, job.packages)
    if not findings and not loads.known:
        from fleetcraft.pipelines.dry_load import dry_load

        findings = dry_load(inspection)
        if not findings:
            loads.remember()
    if memory.trouble:
        print(f"models: what was verified can't be remembered: {memory.trouble}")
    for finding in findings[1:]:
        print(f"models: {finding}")
    if findings:
        raise findings[0]
    return files
