"""What is said of a job that failed: why, where, of which class, what to do, and how its log ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleetcraft.spool import Result
from fleetcraft.worker.explanation import why

TAIL_LINES = 20
_TAIL_BYTES = 1 << 16


def describe_failure(result: Result, root: Path, rule_logs: Iterable[str]) -> str:
    """A paragraph for people.

    Parameters
    ----------
    root : the spool's directory.
    rule_logs : logs of the rule, where a stage writes.
    """
    ending = result.ending
    if ending is None:
        return f"Task {result.id}: {result.problem}. It is kept in quarantine.\n"
    lines = [
        f"Task {result.id}, attempt {result.attempt}: {ending.cause}.",
        *why(ending),
        f"It ran on {ending.host}, worker {ending.worker}.",
    ]
    history = result.record.before(result.attempt) if result.record else ()
    lines += [f"Attempt {a.number} on {a.host}: {a.outcome.value}, {a.cause}." for a in history]
    lines += [f"The rule's log is {log}." for log in rule_logs if Path(log).exists()]
    log = root / ending.log if ending.log else None
    if log is not None:
        tail = _tail(log).splitlines()[-TAIL_LINES:]
        lines.append(f"Its log is {log}" + (", and ends:" if tail else ", and is empty."))
        lines += [f"    {line}" for line in tail]
    return "\n".join(lines) + "\n"


def _tail(path: Path) -> str:
    """The end of a file; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        return ""
