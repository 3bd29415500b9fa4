"""Names on disk: a state is a directory, and what must be known without opening a file is in its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from fleetcraft.ground.errors import BadInput

TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+@,-]{0,159}")
HIGHEST_PRIORITY = 999
DEFAULT_PRIORITY = 500
_TASK_NAME = re.compile(rf"(\d{{3}})-({TASK_ID.pattern})-a(\d{{1,5}})")
_CLASS_NAME = re.compile(r"c(\d+)-m(\d+)-g(\d+)-v(\d+)-r(\d+)-n(\d+)-(shared|exclusive)(?:-([A-Za-z0-9_.]{1,40}))?")
_LANE = re.compile(r"[A-Za-z0-9_.]{1,40}")
_BUCKET_NAME = re.compile(r"(\d{3})-(\d{6})-([A-Za-z0-9]{1,16})")

Access = Literal["shared", "exclusive"]


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task's file name: `500-<id>-a1` is the first attempt of a task of priority 500 (the highest is 999)."""

    priority: int
    id: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.priority:03d}-{self.id}-a{self.attempt}"

    @staticmethod
    def parse(text: str) -> TaskName | None:
        """The parts of a file name; None for one that isn't a task's."""
        match = _TASK_NAME.fullmatch(text)
        return TaskName(int(match[1]), match[2], int(match[3])) if match else None

    def next(self) -> TaskName:
        """The name of the next attempt."""
        return replace(self, attempt=self.attempt + 1)


@dataclass(frozen=True, slots=True)
class Request:
    """What a task needs of a node: threads, host memory [MB], GPUs, memory of each GPU [MB], longest run [s].

    An `exclusive` task has its node to itself. `nodes` above 1 makes a gang, which takes whole nodes and needs all
    that is said here of each of them. A `lane`
    restricts the task to the workers of that lane.
    """

    threads: int = 1
    mem_mb: int = 0
    gpus: int = 0
    gpu_mem_mb: int = 0
    runtime_s: int = 3600
    nodes: int = 1
    access: Access = "shared"
    lane: str | None = None

    def __post_init__(self) -> None:
        for key, least in (
            ("threads", 1),
            ("mem_mb", 0),
            ("gpus", 0),
            ("gpu_mem_mb", 0),
            ("runtime_s", 1),
            ("nodes", 1),
        ):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadInput(
                    "a task's request is a whole number",
                    key=key,
                    value=value,
                    remedy=f"Give a number of at least {least}",
                )
        if self.access not in ("shared", "exclusive"):
            raise BadInput("this access is unknown", key="access", value=self.access, remedy="Use shared or exclusive")
        if self.nodes > 1 and self.access != "exclusive":
            raise BadInput(
                "a gang has its nodes to itself",
                key="access",
                value=self.access,
                remedy="Use exclusive where nodes > 1",
            )
        if self.lane is not None and not _LANE.fullmatch(self.lane):
            raise BadInput(
                "this can't be a lane's name",
                key="lane",
                value=self.lane,
                remedy="Use at most 40 letters, digits, points and underscores",
            )

    @property
    def class_name(self) -> str:
        """The directory under `pending/` in which tasks with this request wait."""
        lane = f"-{self.lane}" if self.lane else ""
        return (
            f"c{self.threads}-m{self.mem_mb}-g{self.gpus}-v{self.gpu_mem_mb}-r{self.runtime_s}-n{self.nodes}"
            f"-{self.access}{lane}"
        )

    @staticmethod
    def of_class(name: str) -> Request | None:
        """The request that a class directory stands for; None for a stray directory."""
        match = _CLASS_NAME.fullmatch(name)
        if not match:
            return None
        threads, mem_mb, gpus, gpu_mem_mb, runtime_s, nodes = (int(match[index]) for index in range(1, 7))
        if threads < 1 or runtime_s < 1 or nodes < 1:
            return None
        access: Access = "exclusive" if match[7] == "exclusive" else "shared"
        if nodes > 1 and access == "shared":
            return None
        return Request(threads, mem_mb, gpus, gpu_mem_mb, runtime_s, nodes, access, match[8])

    @property
    def weight(self) -> tuple[int, ...]:
        """Orders requests of one priority: what is hardest to place goes first, so that it can't be starved."""
        return (self.nodes, int(self.access == "exclusive"), self.gpus, self.threads, self.mem_mb)


@dataclass(frozen=True, slots=True)
class BucketName:
    """A directory of at most a few hundred pending tasks of one class: `500-000007-<writer's token>`."""

    priority: int
    number: int
    token: str

    def __str__(self) -> str:
        return f"{self.priority:03d}-{self.number:06d}-{self.token}"

    @staticmethod
    def parse(text: str) -> BucketName | None:
        """The parts of a bucket's name; None for a stray."""
        match = _BUCKET_NAME.fullmatch(text)
        return BucketName(int(match[1]), int(match[2]), match[3]) if match else None


def checked_task_id(task_id: str) -> str:
    """A task id that can be part of a file name."""
    if not isinstance(task_id, str) or not TASK_ID.fullmatch(task_id):
        raise BadInput(
            "this can't be a task's id",
            key="id",
            value=task_id,
            remedy="Use at most 160 letters, digits and . _ = + @ , - and start with a letter or digit",
        )
    return task_id
