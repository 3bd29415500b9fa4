"""What a look of the controller for results costs while 100, or 30,000, tasks wait.

    PYTHONPATH=scripts python tests/benchmarks/controller_poll.py [--looks 200]

Prints one JSON object: milliseconds and system calls of a look, the medians. They must not depend on what waits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from fleetcraft.ground.clock import SystemClock
from fleetcraft.spool import Filesystem, Spool, TaskSpec
from fleetcraft.worker.liveness import LocalOracle
from snakemake_executor_plugin_spool.session import Session


class CountingFilesystem(Filesystem):
    """Counts the spool's system calls."""

    def __init__(self) -> None:
        self.calls = 0

    def before(self, call: str, path: Path) -> None:
        self.calls += 1


def measure(root: Path, tasks: int, looks: int) -> dict[str, float]:
    """A session's looks while tasks wait, and what it took to enqueue them."""
    filesystem = CountingFilesystem()
    spool = Spool.create(root, "benchmark", filesystem=filesystem)
    session = Session(spool)
    session.watch_workers(LocalOracle(SystemClock()), 6.0)
    labels = {"maker": "snakemake", "fingerprint": "0" * 32, "members": ["0" * 20]}
    start = time.perf_counter()
    for first in range(0, tasks, 500):
        numbers = range(first, min(first + 500, tasks))
        session.submit([TaskSpec(f"task-{number:06d}", ("true",), "/tmp", labels=labels) for number in numbers], ())
    enqueue_s = time.perf_counter() - start
    ids = {f"task-{number:06d}" for number in range(tasks)}
    times_ms, calls = [], []
    for _ in range(looks):
        filesystem.calls = 0
        start = time.perf_counter()
        session.look()
        session.take(ids)
        times_ms.append(1000 * (time.perf_counter() - start))
        calls.append(filesystem.calls)
    session.close()
    return {
        "look_ms": round(statistics.median(times_ms), 4),
        "slowest_ms": round(max(times_ms), 3),
        "calls": statistics.median(calls),
        "enqueued_per_s": round(tasks / enqueue_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--looks", type=int, default=200)
    looks = parser.parse_args().looks
    with tempfile.TemporaryDirectory(prefix="benchmark-poll-") as directory:
        report = {str(tasks): measure(Path(directory, str(tasks)), tasks, looks) for tasks in (100, 30_000)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
