"""Where everything lies in a spool: the one place that knows its paths."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.spool.names import TaskName
from fleetcraft.spool.task import State

BUCKET_SIZE = 500
"""Entries after which the next directory is begun; half of what a directory may hold, for the races at its edge."""

_WRITER = re.compile(r"(\d{3})-([A-Za-z0-9_.]{1,80})-([a-z0-9]{12})")


@dataclass(frozen=True, slots=True)
class WriterName:
    """Who writes: a worker, a controller, an operator's command. Never used twice.

    Parameters
    ----------
    crew : number of the group of writers whose journals and results lie together.
    title : host or role, for people.
    token : random.
    """

    crew: int
    title: str
    token: str

    def __str__(self) -> str:
        return f"{self.crew:03d}-{self.title}-{self.token}"

    @staticmethod
    def parse(text: str) -> WriterName | None:
        """The parts of a writer's name; None for something else."""
        match = _WRITER.fullmatch(text)
        return WriterName(int(match[1]), match[2], match[3]) if match else None


class Layout:
    """The paths of a spool."""

    def __init__(self, root: Path):
        self.root = root
        self.description = root / "spool.json"
        self.pending = root / "pending"
        self.running = root / "running"
        self.tasks = root / "tasks"
        self.staging = root / "staging"
        self.leases = root / "leases"
        self.control = root / "control"
        self.drains = root / "control" / "drain"
        self.cancels = root / "control" / "cancel"
        self.gangs = root / "control" / "gang"
        self.gang_token = root / "control" / "gang" / "token.json"
        self.abort = root / "control" / "abort.json"
        self.controller = root / "control" / "controller.json"
        self.journals = root / "journal"
        self.logs = root / "logs"

    def directories(self) -> list[Path]:
        """What a new spool starts with, parents first."""
        finals = [self.final(state) for state in (State.DONE, State.FAILED, State.QUARANTINE)]
        top = [self.pending, self.running, *finals, self.tasks, self.staging, self.leases, self.control]
        return [*top, self.drains, self.cancels, self.journals, self.logs]

    def final(self, state: State) -> Path:
        """The directory of a final state."""
        return self.root / state.value

    def finals_of(self, state: State, writer: WriterName) -> Path:
        """Where a writer puts what it finishes."""
        return self.final(state) / f"{writer.crew:03d}" / str(writer)

    def claims_of(self, worker: str) -> Path:
        """The directory that a worker claims into."""
        return self.running / worker

    def lease(self, worker: str) -> Path:
        """A worker's heartbeat."""
        return self.leases / f"{worker}.json"

    def journal(self, writer: WriterName) -> Path:
        """A writer's own journal."""
        return self.journals / f"{writer.crew:03d}" / f"{writer}.jsonl"

    def staging_of(self, writer: str) -> Path:
        """Where a writer prepares files that aren't part of any state."""
        return self.staging / writer

    def cancels_of(self, worker: str) -> Path:
        """Markers for a worker to end tasks it runs."""
        return self.cancels / worker

    def summons_of(self, worker: str) -> Path:
        """What a worker is to keep its node for."""
        return self.gangs / worker

    def index(self, task_id: str) -> Path:
        """The second name of a task's file, by its id alone: a hard link, which also makes ids unique."""
        return self.tasks / _shard(task_id) / task_id

    def log(self, name: TaskName) -> Path:
        """The log of an attempt."""
        return self.logs / _shard(name.id) / f"{name.id}-a{name.attempt}.log"


def _shard(task_id: str) -> str:
    return hashlib.sha256(task_id.encode()).hexdigest()[:2]
