"""Who a job is, from one start of the controller to the next."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import key_of

_UNFIT = re.compile(r"[^A-Za-z0-9_.]+")
_NAME_LENGTH = 60


def members_of(job: Any) -> list[str]:
    """What stands for each job of a job or group: rule and wildcards."""
    jobs = job.jobs if job.is_group() else [job]
    return sorted(member_key(single) for single in jobs)


def member_key(job: Any) -> str:
    """What stands for a job."""
    return key_of({"rule": job.rule.name, "wildcards": dict(job.wildcards_dict)})[:20]


def stream_of(members: list[str]) -> str:
    """What seeds the science of a job: told by what it is, never by where it runs."""
    return key_of({"members": members})[:32]


def task_id(job: Any, members: list[str], directory: str) -> str:
    """The id of a job's task: the same whenever and by whomever it is enqueued.

    `directory` is part of it: the same rule with the same wildcards is another job in another working directory.
    """
    name = _UNFIT.sub("_", job.groupid if job.is_group() else job.rule.name).strip("_.")[:_NAME_LENGTH]
    return f"{name or 'job'}-{key_of({'members': members, 'directory': directory})[:16]}"


def fingerprint(job: Any, sources: str, config: Iterable[str]) -> str:
    """What a task does: one that waits or runs already is this job's if it has the same fingerprint."""
    return key_of(
        {
            "inputs": sorted(map(str, job.input)),
            "outputs": sorted(str(output) for output in _outputs(job)),
            "sources": sources,
            "config": list(config),
        }
    )[:32]


def outputs_to_sync(job: Any, unneeded: Iterable[str]) -> tuple[str, ...]:
    """Absolute paths of the files that must be there, and safe, when the job has succeeded.

    Not those that are no files (pipes, services), that lie elsewhere (storage), that the job itself removes again
    (`unneeded`), or that may go while a group still runs.
    """
    removed = set(map(str, unneeded))
    paths = []
    for output in _outputs(job):
        flags = getattr(output, "flags", {})
        if {"pipe", "service", "storage_object"} & flags.keys() or str(output) in removed:
            continue
        if job.is_group() and "temp" in flags:
            continue
        paths.append(str(Path(str(output)).absolute()))
    return tuple(paths)


def _outputs(job: Any) -> list[Any]:
    return list(job.expanded_output if job.is_group() else job.output)
