"""Campaigns of small shell tasks on the tests' own Slurm, controlled from the test's process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from journal_checker import check_exclusive, check_single, entries
from slurm_cluster import SlurmCluster
from spool_audit import audit

from fleetcraft.fleet.controller import FleetController
from fleetcraft.fleet.load import load_fleet
from fleetcraft.fleet.records import Record, Records
from fleetcraft.fleet.script import Software
from fleetcraft.fleet.slurm import CommandRunner, Runner
from fleetcraft.ground.clock import SystemClock
from fleetcraft.spool import Producer, Reaper, Request, Result, ResultScanner, Spool, TaskSpec, Writer
from fleetcraft.worker.liveness import LocalOracle

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.6
HEARTBEAT_S = 0.4


def lane(**changes: Any) -> dict[str, Any]:
    """A lane of the test cluster; `nodes` is the most it may have."""
    nodes = changes.pop("nodes", 4)
    return {
        "partition": "main",
        "account": None,
        "nodes": nodes if isinstance(nodes, dict) else {"min": 1, "max": nodes},
        "walltime_min": 10,
        "node": {"cores": 2, "memory_mb": 4000, "gpus": 1, "gpu_model": "test", "gpu_mem_mb": 1000, "declared": True},
        "gres": "gpu:1",
        "idle_timeout_s": 2,
        "walltime_margin_s": 10,
        "start_up_s": 5,
        "work_per_node_min": 0.01,
        **changes,
    }


def fleet_document(directory: Path, lanes: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """What a fleet file for the test cluster says."""
    site = {
        "nodes": 4,
        "jobs_submitted": 8,
        "jobs_running": 8,
        "poll_s": 10,
        "processes": 100_000,
        "stop_launching_at": 100_000,
        "shared": [str(directory)],
    }
    return {
        "lanes": dict(lanes or {"main": lane()}),
        "site": site | changes.pop("site", {}),
        "workers": {
            "caches": str(directory / "caches"),
            "node_scratch": str(directory / "local"),
            "heartbeat_s": HEARTBEAT_S,
        },
        **changes,
    }


class Campaign:
    """A spool, its fleet, and a loop like the executor's."""

    def __init__(
        self,
        directory: Path,
        cluster: SlurmCluster,
        document: Mapping[str, Any] | None = None,
        *,
        poll_s: float = POLL_S,
    ):
        self.directory, self.cluster = directory, cluster
        self.file = directory / "fleet.yaml"
        self.file.write_text(yaml.safe_dump(document or fleet_document(directory)))
        self.spool = Spool.create(directory / "spool", "test")
        self.said: list[str] = []
        self.writer = Writer(self.spool, "controller")
        self.scanner = ResultScanner(self.spool)
        self.results: dict[str, Result] = {}
        self.poll_s = poll_s
        self.runner: Runner = CommandRunner(os.environ | cluster.environment)
        self.controller = self.new_controller()

    def new_controller(self) -> FleetController:
        """One that begins; an earlier one must have been closed."""
        controller = FleetController(
            self.spool,
            load_fleet(self.file),
            Software(sys.executable, str(ROOT / "scripts"), {"SLURM_CONF": self.cluster.environment["SLURM_CONF"]}),
            LocalOracle(SystemClock()),
            runner=self.runner,
            say=self.said.append,
            poll_s=self.poll_s,
        )
        self.reaper = Reaper(self.writer, controller.oracle, controller.stale_s)
        return controller

    def enqueue(self, tasks: Mapping[str, str], *, request: Request | None = None, **fields: Any) -> None:
        """Shell tasks by their ids."""
        specs = [
            TaskSpec(
                task_id,
                ("/bin/sh", "-c", script),
                str(self.directory),
                request or Request(runtime_s=60, mem_mb=100),
                **fields,
            )
            for task_id, script in tasks.items()
        ]
        Producer(self.writer).enqueue(specs)

    def look(self) -> None:
        """One round of a controller."""
        self.controller.step()
        self.reaper.step()
        for result in self.scanner.poll():
            self.results[result.id] = result
        self.writer.sync()

    def run_until(self, condition: Callable[[], bool], patience_s: float = 60) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            self.look()
            if condition():
                return
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"--- {path}\n{path.read_text()[-2000:]}" for path in (self.spool.root / "fleet").glob("*/*.log")
                )
                raise AssertionError(f"it did not become true\n{self.said}\n{self.cluster.jobs()}\n{logs}")
            time.sleep(0.05)

    def finish(self, count: int, patience_s: float = 90) -> dict[str, Result]:
        """Until so many tasks have ended."""
        self.run_until(lambda: len(self.results) >= count, patience_s)
        return self.results

    def run_dry(self, patience_s: float = 40) -> None:
        """Until every allocation has ended by itself."""
        self.run_until(lambda: not self.controller.living, patience_s)

    def records(self) -> list[Record]:
        return Records(self.spool).read()

    def entries(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in entries(self.spool.root) if entry["event"] == event]

    def running_on(self) -> dict[str, str]:
        """Task → node, of the attempts that were started and haven't ended."""
        ended = {(e["writer"], e["task"], e["attempt"]) for e in self.entries("ended")}
        return {
            e["task"]: e["host"] for e in self.entries("started") if (e["writer"], e["task"], e["attempt"]) not in ended
        }

    def check(self) -> None:
        """What must hold of any campaign: each task once at a time, exclusive ones alone, the spool whole."""
        assert check_single(self.spool.root) == []
        assert check_exclusive(self.spool.root).violations == []
        assert audit(self.spool.root) == []


@contextlib.contextmanager
def campaign(directory: Path, cluster: SlurmCluster, *arguments: Any, **fields: Any) -> Iterator[Campaign]:
    """A campaign whose allocations are gone afterwards."""
    (directory / "local").mkdir()
    running = Campaign(directory, cluster, *arguments, **fields)
    try:
        yield running
    finally:
        with contextlib.suppress(subprocess.SubprocessError):
            running.controller.stop(running.reaper.step)
        running.writer.close()


def codes(results: Sequence[Result]) -> list[str]:
    """How all attempts of some tasks ended."""
    return sorted(
        f"{attempt.outcome.value}: {attempt.cause}"
        for result in results
        if result.record is not None
        for attempt in result.record.attempts
    )
