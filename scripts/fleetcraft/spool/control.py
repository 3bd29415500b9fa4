"""Orders: drain a worker or host, abort a run, cancel tasks. Each is a small file that its addressees look for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.files import explained_os_errors
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.settle import Ending, settle
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.survey import is_known, survey
from fleetcraft.spool.task import FINAL_STATES, Attempt, Outcome, State
from fleetcraft.spool.writer import Writer

_ROUNDS = 5
_ADDRESSEE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of tasks that were to be cancelled.

    Parameters
    ----------
    cancelled : those that waited; they are failed now.
    asked : those that run; their workers end them.
    finished : those that had ended already.
    unsettled : those that the spool has and that could not be found: listings lag. Cancel them again.
    unknown : ids that the spool doesn't have.
    """

    cancelled: tuple[str, ...]
    asked: tuple[str, ...]
    finished: tuple[str, ...]
    unsettled: tuple[str, ...]
    unknown: tuple[str, ...]


def cancel(writer: Writer, ids: Iterable[str], *, running: bool = True) -> Cancelled:
    """Cancel tasks: those that wait fail at once, those that run are ended by their workers.

    Parameters
    ----------
    running : False to let those go on that run; nothing is said of them then.
    """
    spool = writer.spool
    wanted = set(ids)
    cancelled: set[str] = set()
    finished: set[str] = set()
    asked: dict[str, str] = {}
    with explained_os_errors(spool.root):
        for _ in range(_ROUNDS):
            # A task can be claimed or given back between the look and the order; the next look finds it.
            changed = False
            waiting = []
            for task_id, place in survey(spool, wanted - cancelled - finished).items():
                owner = asked.get(task_id)
                if owner is not None and owner != place.owner:
                    drop_order(spool, owner, task_id)
                if place.state in FINAL_STATES:
                    finished.add(task_id)
                elif place.state is State.PENDING:
                    changed = True
                    attempt = Attempt(place.name.attempt, Outcome.CANCELLED, "cancelled", writer.name, writer.host)
                    waiting.append(Ending(place.path, place.name, attempt))
                elif running and place.owner is not None and owner != place.owner:
                    changed = True
                    _order_to_cancel(writer, place.owner, place.name)
                    asked[task_id] = place.owner
            cancelled |= {settled.name.id for settled in settle(writer, waiting) if settled is not None}
            writer.sync()
            if not changed:
                break
    left = wanted - cancelled - finished - set(asked) if running else set()
    unsettled = {task_id for task_id in left if is_known(spool, task_id)}
    return Cancelled(
        cancelled=tuple(sorted(cancelled)),
        asked=tuple(sorted(set(asked) - cancelled)),
        finished=tuple(sorted(finished - set(asked))),
        unsettled=tuple(sorted(unsettled)),
        unknown=tuple(sorted(left - unsettled)),
    )


def orders_to_cancel(spool: Spool, worker: str) -> set[str]:
    """Ids of tasks that a worker is asked to end."""
    return set(spool.filesystem.list(spool.layout.cancels_of(worker)))


def drop_order(spool: Spool, worker: str, task_id: str) -> None:
    """Remove an order that was carried out, or came too late."""
    spool.filesystem.remove(spool.layout.cancels_of(worker) / task_id)


def put_order(spool: Spool, directory: Path, name: str, content: dict[str, object]) -> bool:
    """Put an order into a worker's directory for them; False where that vanished again and again."""
    for _ in range(_ROUNDS):
        spool.filesystem.make_directory(directory)
        try:
            _put(spool, directory / name, content)
        except FileNotFoundError:
            # Whoever finds the directory empty removes it.
            continue
        return True
    return False


def _order_to_cancel(writer: Writer, worker: str, name: TaskName) -> None:
    spool = writer.spool
    if put_order(spool, spool.layout.cancels_of(worker), name.id, {"by": writer.name, "attempt": name.attempt}):
        writer.note("cancel asked", task=name.id, attempt=name.attempt, worker=worker)


def drain(spool: Spool, addressee: str, reason: str) -> None:
    """Make a worker, or every worker of a host now and later, claim nothing more, finish what runs, and leave."""
    if not _ADDRESSEE.fullmatch(addressee):
        raise BadInput(
            "this can't be a worker or host", value=addressee, remedy="Take the name from `fleetcraft status`"
        )
    with explained_os_errors(spool.root):
        _put(spool, spool.layout.drains / addressee, {"reason": reason, "wall_s": spool.clock.wall()})


def lift_drain(spool: Spool, addressee: str) -> None:
    """Let workers of a drained host serve again."""
    spool.filesystem.remove(spool.layout.drains / addressee)


def drain_reason(spool: Spool, addressees: Sequence[str]) -> str | None:
    """Why any of these is drained; None if none is."""
    present = set(spool.filesystem.list(spool.layout.drains))
    return next((_reason(spool, spool.layout.drains / name) for name in addressees if name in present), None)


def drained(spool: Spool) -> dict[str, str]:
    """Drained workers and hosts, with the reasons."""
    return {name: _reason(spool, spool.layout.drains / name) for name in spool.filesystem.list(spool.layout.drains)}


def abort(spool: Spool, reason: str) -> None:
    """End the run: all workers finish what runs and leave; what waits goes on waiting until `resume`."""
    with explained_os_errors(spool.root):
        _put(spool, spool.layout.abort, {"reason": reason, "wall_s": spool.clock.wall()})


def resume(spool: Spool) -> None:
    """Take an abort back: workers that start from now on serve again."""
    spool.filesystem.remove(spool.layout.abort)


def aborted(spool: Spool) -> str | None:
    """Why the run was aborted; None if it wasn't."""
    return _reason(spool, spool.layout.abort) if spool.filesystem.exists(spool.layout.abort) else None


def _put(spool: Spool, path: Path, content: dict[str, object]) -> None:
    try:
        spool.filesystem.create(path, canonical_json(content).encode())
    except FileExistsError:
        return
    spool.filesystem.sync_directory(path.parent)


def _reason(spool: Spool, path: Path) -> str:
    """The reason in an order; the order holds even where the reason can't be read."""
    try:
        return str(json.loads(spool.filesystem.read(path))["reason"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "no reason recorded"
