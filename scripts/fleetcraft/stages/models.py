"""Stage models: a tiny model is built into the store; a checkpoint is verified against its list of digests."""

from __future__ import annotations

from pathlib import Path

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import CorruptWeights, MissingWeights
from fleetcraft.ground.files import new_directory
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import write_records
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance


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
        files = _digests(directory) if wanted["tiny"] else _verified(directory, wanted["files"])
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


def _verified(directory: Path, expected: dict[str, str]) -> dict[str, str]:
    """Every file has the digest of the list. The bytes are read once, here; the plan looks at headers and sizes."""
    for number, (name, digest) in enumerate(expected.items(), 1):
        file = directory / name
        if not file.is_file():
            raise MissingWeights(
                "a file of the list of digests is missing", file=file, remedy="Mirror the checkpoint again"
            )
        print(f"models: {number}/{len(expected)} verifying {name} ({file.stat().st_size / 2**20:.1f} MiB)")
        if sha256_file(file) != digest:
            raise CorruptWeights(
                "the SHA-256 of this file is not the listed one", file=file, remedy="Copy the file again"
            )
    return expected
