"""What became of a task, and why it isn't running."""

from __future__ import annotations

from collections.abc import Mapping

from fleetcraft.ground.errors import BadInput, nearest
from fleetcraft.spool import (
    FINAL_STATES,
    Attempt,
    Lease,
    Place,
    Request,
    Spool,
    State,
    TaskRecord,
    UnreadableTask,
    aborted,
    drained,
    read_leases,
    read_task,
    survey,
)
from fleetcraft.spool.survey import known_ids
from fleetcraft.worker.eligibility import why_not
from fleetcraft.worker.gangs import companions

_LOG_LINES = 10


def explain(spool: Spool, task_id: str) -> list[str]:
    """Lines for people.

    Raises
    ------
    BadInput : the spool doesn't have this task.
    """
    place = survey(spool, {task_id}).get(task_id)
    if place is None:
        raise BadInput("this spool has no such task", value=task_id, remedy=nearest(task_id, known_ids(spool)))
    try:
        record = read_task(spool, place)
    except UnreadableTask as error:
        return [f"{task_id} is in {place.state.value}: {error}", f"Its file is {place.path}"]
    lines = [f"{task_id} is {place.state.value}, attempt {place.name.attempt}, priority {place.name.priority}."]
    if record is None:
        return [*lines, "It moves just now; ask again."]
    lines.append(f"It asks for {record.request(place.name.attempt).class_name}.")
    if place.state is State.PENDING:
        lines += _why_it_waits(spool, place, record)
    elif place.state is State.RUNNING:
        lines += _where_it_runs(spool, place)
    lines += _history(record)
    lines += _log_tail(spool, place, record)
    return lines


def _why_it_waits(spool: Spool, place: Place, record: TaskRecord) -> list[str]:
    lines = []
    reason = aborted(spool)
    if reason is not None:
        lines.append(f"It waits because the run is aborted ({reason}); `fleetcraft abort --resume` takes that back.")
    leases = read_leases(spool)
    if not leases:
        return [*lines, "It waits because there is no worker."]
    request = record.request(place.name.attempt)
    if request != record.spec.request:
        lines.append("It runs alone this time, because its worker died under it.")
    if request.nodes > 1:
        lines.append(_why_no_gang(leases, request))
    orders = drained(spool)
    for name, lease in sorted(leases.items()):
        order = orders.get(name, orders.get(lease.host))
        lines.append(f"{name}: {f'it is drained: {order}' if order else why_not(lease, request)}.")
    return lines


def _why_no_gang(leases: Mapping[str, Lease], request: Request) -> str:
    """How many nodes could come together."""
    groups = {(lease.capacity.get("gang"), lease.capacity.get("lane")) for lease in leases.values()}
    most = max(len(companions(leases, request, gang, lane)) for gang, lane in groups)
    return f"It needs {request.nodes} nodes of one allocation together; {most} could be kept for it now."


def _where_it_runs(spool: Spool, place: Place) -> list[str]:
    lease: Lease | None = read_leases(spool).get(place.owner or "")
    if lease is None:
        return [f"{place.owner} has claimed it, and has no lease."]
    for task in lease.running:
        if task["id"] == place.name.id:
            if task.get("waits"):
                return [f"{place.owner} on {lease.host} has claimed it and lets its other tasks finish: it runs alone."]
            return [f"It runs on {task['slot']} of {place.owner} for {spool.clock.wall() - task['since_s']:.0f} s."]
    return [f"{place.owner} on {lease.host} has claimed it and is about to start it."]


def _history(record: TaskRecord) -> list[str]:
    lines = []
    for attempt in record.attempts:
        cause = "" if attempt.cause == attempt.outcome.value else f", {attempt.cause}"
        lines.append(f"Attempt {attempt.number} on {attempt.host}: {attempt.outcome.value}{cause}.")
        lines += [f"    {line}" for line in why(attempt)]
    return lines


def why(attempt: Attempt) -> list[str]:
    """Class, problem and remedy of an attempt that failed, a line each."""
    if not attempt.failure_class:
        return []
    parts = (("What happened", "problem"), ("What to do", "remedy"))
    told = [f"{label}: {attempt.failure[part]}." for label, part in parts if attempt.failure.get(part)]
    return [f"Failure class: {attempt.failure_class}.", *told]


def _log_tail(spool: Spool, place: Place, record: TaskRecord) -> list[str]:
    """The end of the last attempt's log that there is."""
    logs = [attempt.log for attempt in reversed(record.attempts) if attempt.log]
    if place.state not in FINAL_STATES and place.state is not State.PENDING:
        logs.insert(0, str(spool.layout.log(place.name).relative_to(spool.root)))
    for log in logs:
        path = spool.root / log
        if path.is_file():
            tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
            return [f"Its log is {path}" + (", and ends:" if tail else ", and is empty."), *(f"    {t}" for t in tail)]
    return []
