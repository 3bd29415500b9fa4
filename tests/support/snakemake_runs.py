"""Small workflows in directories of their own, run by a real Snakemake through the executor `spool`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.processes import end_processes
from fleetcraft.spool import Result, ResultScanner, Spool, read_leases, survey

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (
    *("--executor", "spool", "--jobs", "50", "--scheduler", "greedy", "--latency-wait", "2"),
    *("--max-jobs-per-timespan", "1000/1s", "--default-resources", "mem_mb=100"),
)
SMALL_FLEET = ("--spool-worker-cores", "4", "--spool-worker-mem-mb", "4000", "--spool-poll", "0.2")


@dataclass
class Workflow:
    """A workflow, its directory, and its spool."""

    directory: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @contextlib.contextmanager
    def ended_afterwards(self) -> Iterator[Workflow]:
        """Ends what a failed test left running: controllers, and workers, which end what they run."""
        try:
            yield self
        finally:
            for process in self.started:
                process.kill()
                process.wait()
            if (self.spool_directory / "spool.json").exists():
                processes = [p for lease in read_leases(self.spool()).values() for p in lease.processes[:1]]
                end_processes(processes, 20.0, 5.0, SystemClock())

    @property
    def spool_directory(self) -> Path:
        return self.directory / "spool"

    def spool(self) -> Spool:
        return Spool.open(self.spool_directory)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
        return path

    def command(self, *arguments: str) -> list[str]:
        snakemake = [sys.executable, "-P", "-m", "snakemake", "--spool-dir", str(self.spool_directory)]
        return [*snakemake, *OPTIONS, *SMALL_FLEET, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}

    def run(
        self, *arguments: str, timeout_s: float = 600, preexec: Callable[[], None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; stdout and stderr together in `stdout`."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
            preexec_fn=preexec,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it, in a session of its own."""
        with (self.directory / "controller.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(*arguments),
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A worker that isn't the executor's."""
        command = [sys.executable, "-P", "-m", "fleetcraft.cli.main", "worker", "--spool", str(self.spool_directory)]
        process = subprocess.Popen([*command, *arguments], env=self.environment, start_new_session=True)
        self.started.append(process)
        return process

    def unlock(self) -> None:
        """What a person does after a controller was killed."""
        subprocess.run(
            [sys.executable, "-P", "-m", "snakemake", "--unlock"],
            cwd=self.directory,
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def lines(self, name: str) -> list[str]:
        """Lines of a file; none where it isn't there."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def results(self) -> dict[str, Result]:
        return {result.id: result for result in ResultScanner(self.spool()).poll()}

    def states(self) -> dict[str, str]:
        return {task: place.state.value for task, place in survey(self.spool()).items()}

    def worker_processes(self) -> list[int]:
        """First processes of the workers that live."""
        leases = read_leases(self.spool()).values()
        return [lease.processes[0][0] for lease in leases if lease.processes]


def wait_until(condition: Callable[[], bool], patience_s: float = 300.0) -> None:
    """Until something becomes true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)
