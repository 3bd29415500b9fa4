"""How much work there is: what waits in the spool, and what runs, by class."""

from __future__ import annotations

from collections import Counter

from fleetcraft.fleet.decision import Work, estimated_s
from fleetcraft.fleet.history import History
from fleetcraft.spool import Request, Spool

_MOST = 20_000
"""Tasks of a class that are counted at most: no fleet is so large that more would matter."""


def waiting(spool: Spool) -> Counter[str]:
    """Number of waiting tasks by class, from directories alone."""
    counts: Counter[str] = Counter()
    for class_name in spool.filesystem.list(spool.layout.pending):
        for bucket in spool.filesystem.list(spool.layout.pending / class_name):
            counts[class_name] += len(spool.filesystem.list(spool.layout.pending / class_name / bucket))
            if counts[class_name] >= _MOST:
                break
    return counts


def work(spool: Spool, history: History) -> list[Work]:
    """All work that waits or runs."""
    counts = waiting(spool) + history.running()
    found = []
    for class_name, count in sorted(counts.items()):
        request = Request.of_class(class_name)
        if request is not None and count > 0:
            found.append(Work(request, count, estimated_s(request, history.task_s(class_name))))
    return found
