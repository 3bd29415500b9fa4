"""What a task is told about its place: environment variables, and a small file.

The three identities are never mixed: where it runs (`FLEETCRAFT_SLOT`: host and physical device), what it calls its
device (`FLEETCRAFT_DEVICE`: always the first that it sees), and what seeds the science (`FLEETCRAFT_STREAM`: comes with
the task, so that it is the same wherever it runs).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.failures import FAILURE_FILE
from fleetcraft.spool import Claim
from fleetcraft.worker.packing import Share

NODE_SCRATCH = "FLEETCRAFT_NODE_SCRATCH"
"""Set for a worker that has a directory on its node's own disk for what its tasks don't share."""


def slot_name(host: str, share: Share) -> str:
    """Host and physical devices of a task."""
    if not share.gpus:
        return f"{host}/node"
    return ",".join(f"{host}/{gpu.uuid}" for gpu in share.gpus)


def task_environment(claim: Claim, share: Share, host: str, worker: str, node_file: Path) -> dict[str, str]:
    """Variables for a task; those that it brings itself can't replace them."""
    spec = claim.record.spec
    threads = str(share.request.threads)
    return {
        "OMP_NUM_THREADS": threads,
        **scratch_variables(attempt_key(claim)),
        **spec.environment,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in share.gpus),
        "FLEETCRAFT_ATTEMPT": attempt_key(claim),
        "FLEETCRAFT_DEVICE": "cuda:0" if share.gpus else "cpu",
        FAILURE_FILE: str(failure_file(node_file)),
        "FLEETCRAFT_NODE_FILE": str(node_file),
        "FLEETCRAFT_SLOT": slot_name(host, share),
        "FLEETCRAFT_STREAM": spec.stream or spec.id,
        "FLEETCRAFT_TASK": spec.id,
        "FLEETCRAFT_THREADS": threads,
        "FLEETCRAFT_WORKER": worker,
    }


def failure_file(node_file: Path) -> Path:
    """Where an attempt leaves why it failed: in the memory of this machine, which a full disk doesn't concern."""
    return node_file.with_suffix(".failure")


def attempt_scratch(key: str) -> Path | None:
    """The directory of one attempt on the node's own disk; None where the worker was given no such place."""
    node = os.environ.get(NODE_SCRATCH)
    return Path(node) / "attempts" / key if node else None


def scratch_variables(key: str) -> dict[str, str]:
    """Where an attempt has its temporary files, and compilers what they generate.

    Sources that are generated in one place by several compilers at once damage each other.
    """
    scratch = attempt_scratch(key)
    if scratch is None:
        return {}
    return {
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
    }


def attempt_key(claim: Claim) -> str:
    """Names an execution: task and attempt."""
    return f"{claim.name.id}-a{claim.name.attempt}"


def write_node_file(path: Path, claim: Claim, share: Share, host: str, observed: dict[str, Any]) -> None:
    """What a stage may want to know of its node: who else is there, which devices it has, what was seen before it."""
    content = {
        "task": claim.name.id,
        "attempt": claim.name.attempt,
        "host": host,
        "slot": slot_name(host, share),
        "threads": share.request.threads,
        "mem_mb": share.request.mem_mb,
        "access": share.request.access,
        "gpus": [
            {"uuid": gpu.uuid, "index": gpu.index, "mem_mb": gpu.mem_mb, "model": gpu.model} for gpu in share.gpus
        ],
        "observed": observed,
    }
    path.write_text(canonical_json(content), encoding="utf-8")
