"""How many tasks a second the bare spool takes, durably, and what a task costs in system calls on the file system.

    .venv/bin/python tests/benchmarks/spool_throughput.py --tasks 2000 --slots 4 [--peers]

Prints one JSON object. `protocol` is enqueue, claim and finish in one process without running anything; `workers` runs
shell tasks from the first claim to the last result, with as many slots in all as peers get. With `--peers` the same
tasks go through Parsl's HighThroughputExecutor and through disBatch, where they are installed, for the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fleetcraft.spool import Filesystem, Outcome, Producer, ResultScanner, Spool, State, Station, TaskSpec, Writer
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.inventory import Inventory
from fleetcraft.worker.settings import Settings

METADATA = ("list", "stat", "rename", "link", "mkdir", "rmdir", "unlink", "open")


class CountingFilesystem(Filesystem):
    """Counts the spool's system calls by name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def before(self, call: str, path: Path) -> None:
        self.calls[call] += 1

    def take(self, tasks: int) -> dict[str, float]:
        """Calls per task since the last time."""
        counts = {call: round(number / tasks, 3) for call, number in sorted(self.calls.items())}
        self.calls.clear()
        counts["metadata operations"] = round(sum(counts.get(call, 0) for call in METADATA), 3)
        return counts


def specs(tasks: int) -> list[TaskSpec]:
    return [TaskSpec(f"task-{number:06d}", ("/bin/sh", "-c", "true"), "/tmp") for number in range(tasks)]


def protocol(root: Path, tasks: int) -> dict[str, object]:
    """Enqueue, claim, finish, scan: no task is run."""
    filesystem = CountingFilesystem()
    spool = Spool.create(root, "benchmark", filesystem=filesystem)
    filesystem.calls.clear()
    with Writer(spool, "controller") as writer:
        start = time.perf_counter()
        Producer(writer).enqueue(specs(tasks))
        enqueue_s = time.perf_counter() - start
        enqueue_calls = filesystem.take(tasks)
    station = Station(Writer(spool, "worker"))
    start = time.perf_counter()
    while claims := station.claim(lambda request: True, lambda claim: None, 4):
        station.end([(claim, station.attempt(claim, Outcome.SUCCEEDED, "succeeded")) for claim in claims])
    work_s = time.perf_counter() - start
    work_calls = filesystem.take(tasks)
    start = time.perf_counter()
    found = len(ResultScanner(spool).poll())
    scan_s = time.perf_counter() - start
    assert found == tasks
    station.leave()
    return {
        "enqueued_per_s": round(tasks / enqueue_s),
        "claimed_and_finished_per_s": round(tasks / work_s),
        "results_read_per_s": round(tasks / scan_s),
        "calls_per_task_enqueue": enqueue_calls,
        "calls_per_task_claim_and_finish": work_calls,
    }


def poll_cost(root: Path, waiting: tuple[int, ...] = (100, 30_000)) -> dict[str, object]:
    """What the controller's poll and a worker's claim cost with few and with many tasks waiting."""
    costs: dict[str, object] = {}
    for tasks in waiting:
        filesystem = CountingFilesystem()
        spool = Spool.create(root / str(tasks), "benchmark", filesystem=filesystem)
        with Writer(spool, "controller") as writer:
            Producer(writer).enqueue(specs(tasks))
        scanner, station = ResultScanner(spool), Station(Writer(spool, "worker"))
        filesystem.calls.clear()
        start = time.perf_counter()
        for _ in range(100):
            scanner.poll()
        poll_s = (time.perf_counter() - start) / 100
        poll_calls = filesystem.take(100)
        start = time.perf_counter()
        claims = station.claim(lambda request: True, lambda claim: None, 1)
        claim_s = time.perf_counter() - start
        claim_calls = filesystem.take(1)
        station.give_back(claims, "benchmark")
        station.leave()
        costs[str(tasks)] = {
            "poll_ms": round(1000 * poll_s, 3),
            "poll_calls": poll_calls,
            "claim_ms": round(1000 * claim_s, 3),
            "claim_calls": claim_calls,
        }
    return costs


def workers(root: Path, tasks: int, slots: int, processes: int) -> tuple[float, float]:
    """Shell tasks a second through real workers, and the processor time of a task, all processes together [ms]."""
    spool = Spool.create(root, "benchmark")
    with Writer(spool, "controller") as writer:
        Producer(writer).enqueue(specs(tasks))
    start = time.perf_counter()
    pids = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            settings = Settings(idle_timeout_s=1.0, failing_tasks=0)
            Agent(spool, Inventory(slots // processes, 1000), settings).run()
            os._exit(0)
        pids.append(pid)
    scanner, done = ResultScanner(spool), 0
    while done < tasks:
        results = scanner.poll()
        assert all(result.state is State.DONE for result in results)
        done += len(results)
        time.sleep(0.05)
    elapsed_s = time.perf_counter() - start
    usages = [os.wait4(pid, 0)[2] for pid in pids]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return tasks / elapsed_s, 1000 * cpu_s / tasks


PARSL = """
import sys, time, parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
tasks, slots = int(sys.argv[1]), int(sys.argv[2])
executor = HighThroughputExecutor(address='127.0.0.1', max_workers_per_node=slots, cores_per_worker=0.01,
                                  provider=LocalProvider(init_blocks=1, max_blocks=1))
parsl.load(Config(executors=[executor], run_dir=sys.argv[3]))
@parsl.bash_app
def app(n):
    return 'true'
[app(n).result() for n in range(slots)]
start = time.perf_counter()
[future.result() for future in [app(n) for n in range(tasks)]]
print(tasks / (time.perf_counter() - start))
parsl.dfk().cleanup()
"""


def parsl(base: Path, tasks: int, slots: int) -> float | None:
    """The same tasks as bash apps of a warm HighThroughputExecutor; None where Parsl isn't installed."""
    if subprocess.run([sys.executable, "-c", "import parsl"], capture_output=True).returncode != 0:
        return None
    command = [sys.executable, "-c", PARSL, str(tasks), str(slots), str(base / "parsl")]
    # Parsl finds its worker program by PATH.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=base, env=environment)
    return float(answer.stdout.split()[-1])


def disbatch(base: Path, tasks: int, slots: int) -> float | None:
    """The same tasks through disBatch; None where it isn't installed."""
    program = shutil.which("disBatch")
    if program is None:
        return None
    (base / "tasks").write_text("true\n" * tasks)
    start = time.perf_counter()
    command = [program, "-s", f"localhost:{slots}", "-p", str(base / "disbatch"), str(base / "tasks")]
    subprocess.run(command, capture_output=True, check=True, cwd=base)
    return tasks / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1, help="worker processes that share the slots")
    parser.add_argument("--peers", action="store_true", help="run Parsl and disBatch as well")
    parser.add_argument("--directory", type=Path, help="on the file system to measure (default: the temporary one)")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="spool-benchmark-", dir=arguments.directory))
    try:
        rate, cpu_ms = workers(base / "workers", arguments.tasks, arguments.slots, arguments.workers)
        figures: dict[str, object] = {
            "tasks": arguments.tasks,
            "slots": arguments.slots,
            "worker_processes": arguments.workers,
            "shell_tasks_per_s": round(rate, 1),
            "cpu_ms_per_task": round(cpu_ms, 2),
            "protocol": protocol(base / "protocol", arguments.tasks),
            "poll": poll_cost(base / "poll"),
        }
        if arguments.peers:
            for name, peer in (("parsl", parsl), ("disbatch", disbatch)):
                count = arguments.tasks if name == "parsl" else min(arguments.tasks, 200)
                peer_rate = peer(base, count, arguments.slots)
                figures[name] = None if peer_rate is None else round(peer_rate, 1)
                figures[f"ratio_to_{name}"] = None if peer_rate is None else round(rate / peer_rate, 2)
        print(json.dumps(figures, indent=2))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
