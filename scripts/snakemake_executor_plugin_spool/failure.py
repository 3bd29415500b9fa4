"""What is said of a job that failed: why, where, of which class, and how its log ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fleetcraft.spool import Attempt, Result

TAIL_LINES = 20
_TAIL_BYTES = 1 << 16
_CLASS = re.compile(r"^failed \(([a-z ]+)\):", re.MULTILINE)


def describe_failure(result: Result, root: Path, rule_logs: Iterable[str]) -> str:
    """A paragraph for people.

    Parameters
    ----------
    root : the spool's directory.
    rule_logs : logs of the rule, where a stage writes what class its failure is of.
    """
    ending = result.ending
    if ending is None:
        return f"Task {result.id}: {result.problem}. It is kept in quarantine.\n"
    log = root / ending.log if ending.log else None
    texts = [_tail(Path(path)) for path in rule_logs] + ([_tail(log)] if log else [])
    lines = [
        f"Task {result.id}, attempt {result.attempt}: {ending.cause}.",
        f"Failure class: {failure_class(ending, texts)}. It ran on {ending.host}, worker {ending.worker}.",
    ]
    history = result.record.before(result.attempt) if result.record else ()
    lines += [f"Attempt {a.number} on {a.host}: {a.outcome.value}, {a.cause}." for a in history]
    if log is not None:
        tail = _tail(log).splitlines()[-TAIL_LINES:]
        lines.append(f"Its log is {log}" + (", and ends:" if tail else ", and is empty."))
        lines += [f"    {line}" for line in tail]
    return "\n".join(lines) + "\n"


def failure_class(ending: Attempt, texts: Iterable[str]) -> str:
    """What the stage called its failure; else what its end tells."""
    for text in texts:
        found = _CLASS.findall(text)
        if found:
            return str(found[-1])
    if "SIGKILL" in ending.cause:
        return "host memory"
    if "runtime" in ending.cause:
        return "time limit"
    if ending.exit_code is None:
        return "node"
    return "unclassified"


def _tail(path: Path) -> str:
    """The end of a file; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        return ""
