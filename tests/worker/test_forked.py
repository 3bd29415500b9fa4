"""A task that is a fork of a prepared launcher is a task like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from spool_audit import audit
from worker_harness import QUICK, inventory, orphans, results, wait_for_exit, wait_until

from fleetcraft.spool import Producer, Request, Spool, State, TaskSpec, Writer, read_leases
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.forked import Forked
from fleetcraft.worker.settings import Settings

prepared: list[int] = []


def prepare() -> None:
    prepared.append(os.getpid())


def act(order: dict[str, object]) -> int:
    command = order["command"]
    assert isinstance(command, list)
    name, *rest = command
    print(name, *rest, os.environ["FLEETCRAFT_TASK"], Path.cwd(), len(prepared), os.getppid() == prepared[0])
    if name == "fail":
        return 3
    if name == "raise":
        raise RuntimeError("unexpected")
    if name == "exit":
        sys.exit(4)
    if name == "leave":
        subprocess.Popen(["sleep", "100"], start_new_session=True)
    if name == "sleep":
        time.sleep(100)
    return 0


def start(root: Path, settings: Settings = QUICK) -> int:
    pid = os.fork()
    if pid == 0:
        agent = Agent(
            Spool.open(root),
            inventory(),
            settings,
            starters={"python": Forked(act)},
            prepare={"python": prepare},
            lock_directory=root.parent,
        )
        agent.run()
        os._exit(0)
    return pid


@pytest.fixture
def enqueue(tmp_path: Path) -> Callable[..., Path]:
    root = Spool.create(tmp_path / "spool", "test").root

    def enqueue(*names: str, **fields: object) -> Path:
        environment = {"TEST_SPOOL": str(root)}
        specs = [
            TaskSpec(n, (n, "x"), str(tmp_path), launcher="python", environment=environment, **fields) for n in names
        ]  # type: ignore[arg-type]
        with Writer(Spool.open(root), "test") as writer:
            Producer(writer).enqueue(specs)
        return root

    return enqueue


def log(root: Path, task: str) -> str:
    (path,) = root.glob(f"logs/*/{task}-a1.log")
    return path.read_text()


def test_it_runs_prepared_in_its_directory_with_its_environment_and_log(
    enqueue: Callable[..., Path], tmp_path: Path
) -> None:
    root = enqueue("good", "fail", "raise", "exit", "leave")
    assert wait_for_exit(start(root)) == 0
    found = results(root)
    assert found["good"].state is State.DONE
    assert log(root, "good") == f"good x good {tmp_path} 1 True\n"
    codes = {task: found[task].ending.exit_code for task in ("fail", "raise", "exit")}  # type: ignore[union-attr]
    assert codes == {"fail": 3, "raise": 1, "exit": 4}
    assert "RuntimeError: unexpected" in log(root, "raise")
    assert found["leave"].state is State.DONE
    assert orphans(root) == []
    assert audit(root, at_rest=True) == []


def test_its_time_limit_and_the_workers_stop_hold_for_it(enqueue: Callable[..., Path]) -> None:
    root = enqueue("sleep", request=Request(runtime_s=1))
    assert wait_for_exit(start(root)) == 0
    assert "longer than its runtime" in results(root)["sleep"].problem


@pytest.mark.parametrize("victims", ["worker", "launchers", "all"])
def test_it_does_not_outlive_those_who_started_it(enqueue: Callable[..., Path], victims: str) -> None:
    root = enqueue("sleep")
    pid = start(root, replace(QUICK, idle_timeout_s=None))
    wait_until(lambda: any(lease.running for lease in read_leases(Spool.open(root)).values()))
    wait_until(lambda: any(len(lease.processes) == 3 for lease in read_leases(Spool.open(root)).values()))
    (lease,) = read_leases(Spool.open(root)).values()
    launchers = [other for other, _ in lease.processes if other != pid]
    # The lease tells what was claimed, a moment before it is started.
    wait_until(lambda: any(_children(launcher) for launcher in launchers))
    (task,) = [int(child) for launcher in launchers for child in _children(launcher)]
    for victim in {"worker": [pid], "launchers": launchers, "all": [pid, *launchers]}[victims]:
        os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not _runs(task))
    if victims == "launchers":
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
