"""Gangs: tasks that take several whole nodes together, or none.

The worker that claims such a task leads. It summons others, which let their tasks finish, hold their nodes empty and
say so in their leases; when all are there, the task is started on the leader's node, and the summons are withdrawn when
it has ended. Only one gang assembles at a time, whoever holds the token: two that wait for each other's nodes would
wait for ever.

    control/gang/token.json                who assembles
    control/gang/<worker>/<id>-a<n>        this worker is summoned for attempt n of a task
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from fleetcraft.ground.digests import canonical_json
from fleetcraft.spool.control import put_order
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Summons:
    """A worker's order to keep its node for an attempt of another worker."""

    task: str
    attempt: int
    leader: str

    @property
    def key(self) -> str:
        """Names the attempt."""
        return f"{self.task}-a{self.attempt}"


def take_token(spool: Spool, leader: str) -> bool:
    """Become the one who assembles a gang; False while somebody else does."""
    layout, filesystem = spool.layout, spool.filesystem
    draft = layout.staging / f"gang-{leader}"
    filesystem.make_directory(layout.gangs)
    filesystem.publish(
        draft, layout.staging / f"gang-{leader}.new", canonical_json({"leader": leader}).encode(), durable=False
    )
    try:
        filesystem.link(draft, layout.gang_token)
    except FileExistsError:
        return token_holder(spool) == leader
    except FileNotFoundError:
        return False
    finally:
        filesystem.remove(draft)
    return True


def token_holder(spool: Spool) -> str | None:
    """Who assembles a gang at present."""
    try:
        return str(json.loads(spool.filesystem.read(spool.layout.gang_token))["leader"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def return_token(spool: Spool, leader: str) -> None:
    """Let others assemble."""
    if token_holder(spool) == leader:
        spool.filesystem.remove(spool.layout.gang_token)


def summon(spool: Spool, leader: str, name: TaskName, members: Iterable[str]) -> None:
    """Ask workers to keep their nodes for an attempt."""
    content = {"leader": leader, "task": name.id, "attempt": name.attempt}
    for member in members:
        put_order(spool, spool.layout.summons_of(member), f"{name.id}-a{name.attempt}", dict(content))


def dismiss(spool: Spool, name: TaskName, members: Iterable[str]) -> None:
    """Let workers have their nodes back."""
    for member in members:
        _remove(spool, member, f"{name.id}-a{name.attempt}")


def summons_of(spool: Spool, worker: str) -> list[Summons]:
    """What a worker is summoned for, in a fixed order."""
    directory = spool.layout.summons_of(worker)
    found = []
    for text in sorted(spool.filesystem.list(directory)):
        summons = _read(spool, worker, text)
        if summons is not None:
            found.append(summons)
    return found


def tidy_gangs(spool: Spool) -> None:
    """Withdraw what leaders left behind that are no more, and what was meant for workers that are no more."""
    filesystem, layout = spool.filesystem, spool.layout
    holder = token_holder(spool)
    if holder is not None and not filesystem.exists(layout.claims_of(holder)):
        filesystem.remove(layout.gang_token)
    for worker in filesystem.list(layout.gangs):
        if worker == layout.gang_token.name:
            continue
        is_gone = not filesystem.exists(layout.claims_of(worker))
        for text in filesystem.list(layout.summons_of(worker)):
            summons = _read(spool, worker, text)
            if is_gone or (summons is not None and not filesystem.exists(layout.claims_of(summons.leader))):
                _remove(spool, worker, text)
        if is_gone:
            filesystem.remove_directory(layout.summons_of(worker))


def _read(spool: Spool, worker: str, text: str) -> Summons | None:
    try:
        value = json.loads(spool.filesystem.read(spool.layout.summons_of(worker) / text))
        return Summons(str(value["task"]), int(value["attempt"]), str(value["leader"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _remove(spool: Spool, worker: str, text: str) -> None:
    spool.filesystem.remove(spool.layout.summons_of(worker) / text)
    spool.filesystem.remove_directory(spool.layout.summons_of(worker))
