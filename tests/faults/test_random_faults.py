"""SIGKILL hits workers, launchers, tasks and controllers at random, under load; nothing is lost and nothing done twice.

Real processes. Half of the deaths come at a system call of the victim's own choosing, the others at any time from
outside. `FLEETCRAFT_FAULTS` says how many there must be (default 250; CI runs 2,000 and more).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from journal_checker import check_exclusive, check_single, entries, trespassers
from spool_audit import audit, state_files
from worker_harness import QUICK, inventory, orphans

from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.machine import host_name
from fleetcraft.ground.processes import adopt_orphans
from fleetcraft.spool import Filesystem, Lease, Liveness, Policy, Producer, Reaper, Request, Spool, TaskSpec, Writer
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.liveness import LocalOracle

FAULTS = int(os.environ.get("FLEETCRAFT_FAULTS", "250"))
TASKS = 60
ROUND_PATIENCE_S = 120.0

SCRIPT = """
echo run >> "$COMMITS/$FLEETCRAFT_TASK.runs"
case $FLEETCRAFT_TASK in *stray*) setsid sleep 1000 & ;; esac
sleep 0.0$((RANDOM % 4))
echo done > "$COMMITS/$FLEETCRAFT_TASK.$$" && mv "$COMMITS/$FLEETCRAFT_TASK.$$" "$COMMITS/$FLEETCRAFT_TASK.out"
"""


class SuicidalFilesystem(Filesystem):
    """Kills its process before the n-th system call on the spool."""

    def __init__(self, crash_at: int | None):
        self._left = crash_at

    def before(self, call: str, path: Path) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


class OneMachineOracle:
    """The local oracle, for workers that only pretend to be on different hosts."""

    def __init__(self) -> None:
        self._oracle = LocalOracle(SystemClock(), grace_s=0.05)

    def __call__(self, worker: str, lease: Lease | None) -> Liveness:
        liveness = self._oracle(worker, replace(lease, host=host_name()) if lease else None)
        # The test knows who did it: it isn't the tasks' doing.
        return replace(liveness, cause="killed by the test") if liveness.cause else liveness


def tasks(commits: Path) -> list[TaskSpec]:
    specs = []
    for number in range(TASKS):
        kind = "timed" if number % 15 == 0 else "stray" if number % 7 == 0 else "plain"
        kind = "gang" if number % 20 == 3 else kind
        request = Request(threads=1 + number % 2) if kind in ("plain", "stray") else Request(access="exclusive")
        request = replace(request, nodes=2) if kind == "gang" else request
        output = str(commits / f"{kind}-{number}.out")
        specs.append(
            TaskSpec(
                f"{kind}-{number}",
                ("/bin/bash", "-c", SCRIPT),
                "/",
                request,
                retries=1000,
                environment={"COMMITS": str(commits), "TEST_SPOOL": str(commits.parent / "spool")},
                outputs=(output,),
            )
        )
    return specs


def worker_life(root: Path, crash_at: int | None, host: str) -> None:
    spool = Spool.open(root, filesystem=SuicidalFilesystem(crash_at))
    settings = replace(QUICK, idle_timeout_s=None, gang="together", gang_patience_s=2.0)
    Agent(spool, inventory(threads=3), settings, host=host, lock_directory=root.parent).run()


def controller_life(root: Path, crash_at: int | None, commits: Path) -> None:
    spool = Spool.open(root, filesystem=SuicidalFilesystem(crash_at))
    with Writer(spool, "controller") as writer:
        Producer(writer).enqueue(tasks(commits))
        reaper = Reaper(writer, OneMachineOracle(), stale_s=0.06)
        while True:
            reaper.step()
            time.sleep(0.02)


def fork(life: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            life()
        except BaseException:  # noqa: BLE001 - the last frame of a process: whatever it is has to be shown
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return pid


@dataclass
class Fleet:
    """Three nodes and a controller, replaced as they die."""

    root: Path
    commits: Path
    chance: random.Random
    living: dict[int, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)

    def reap(self) -> None:
        """See who died, and how. Orphans of the dead end up here as well."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            role, code = self.living.pop(pid, None), os.waitstatus_to_exitcode(status)
            if role is not None and code == -signal.SIGKILL:
                self.faults[role.split()[0]] += 1
            elif role is not None and code not in (0, -signal.SIGTERM):
                # A worker that is told to stop before it handles signals has done nothing yet, and dies of it.
                self.crashes.append(f"{role} ended with {code}")

    def refill(self) -> None:
        """Have one of each."""
        present = set(self.living.values())
        for role in ("worker n1", "worker n2", "worker n3", "controller"):
            if role in present:
                continue
            crash_at = self.chance.randint(1, 250) if self.chance.random() < 0.7 else None
            if role == "controller":
                pid = fork(lambda crash_at=crash_at: controller_life(self.root, crash_at, self.commits))
            else:
                pid = fork(lambda crash_at=crash_at, role=role: worker_life(self.root, crash_at, role.split()[1]))
            self.living[pid] = role

    def strike(self) -> None:
        """Kill something from outside."""
        kind = self.chance.choice(["worker", "worker", "controller", "task", "launcher", "worker and launcher"])
        if kind == "task":
            victims = orphans(self.root)
        elif kind == "controller":
            victims = [pid for pid, role in self.living.items() if role == "controller"]
        else:
            victims = [pid for pid, role in self.living.items() if role.startswith("worker")]
        if not victims:
            return
        victim = self.chance.choice(victims)
        launchers = _children(victim) if "launcher" in kind else []
        targets = [*launchers[:1]] if kind == "launcher" else [victim, *launchers]
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if pid not in self.living:
                self.faults["task" if kind == "task" else "launcher"] += 1

    def finished(self) -> int:
        return len(list((self.root / "done").glob("*/*/*/*")))

    def stop(self) -> None:
        for pid in list(self.living):
            os.kill(pid, signal.SIGTERM if self.living[pid] != "controller" else signal.SIGKILL)
        deadline = time.monotonic() + 20
        while self.living and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.01)
        assert not self.living, f"did not leave: {self.living}"


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def finish_in_peace(root: Path, commits: Path) -> None:
    """A healthy controller and two workers do what is left, and tidy up."""
    spool = Spool.open(root)
    with Writer(spool, "last") as writer:
        Producer(writer).enqueue(tasks(commits))
        reaper = Reaper(writer, OneMachineOracle(), stale_s=0.1)
        pids = [fork(lambda host=host: worker_life(root, None, host)) for host in ("n1", "n2")]
        deadline = time.monotonic() + ROUND_PATIENCE_S
        while True:
            reaper.step()
            states = Counter(places[0][0] for places in state_files(root).values())
            if states["done"] + states["failed"] == TASKS:
                break
            assert time.monotonic() < deadline, f"not finished: {states}"
            time.sleep(0.05)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        for _ in range(20):
            reaper.step()
            time.sleep(0.03)


def test_random_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    adopt_orphans()
    seed = int(os.environ.get("FLEETCRAFT_SEED", random.randrange(1 << 30)))
    print(f"FLEETCRAFT_SEED={seed}")
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    executions = rounds = 0
    begin = time.monotonic()
    while sum(total.values()) < FAULTS:
        rounds += 1
        base = tmp_path / f"round-{rounds}"
        commits = base / "commits"
        commits.mkdir(parents=True)
        root = Spool.create(base / "spool", "faults", Policy(failing_hosts=1000, crashes=1000)).root
        fleet = Fleet(root, commits, chance)
        deadline = time.monotonic() + ROUND_PATIENCE_S
        while fleet.finished() < TASKS * 0.9 and time.monotonic() < deadline:
            fleet.reap()
            fleet.refill()
            if chance.random() < 0.5:
                fleet.strike()
            time.sleep(0.02)
        fleet.stop()
        finish_in_peace(root, commits)
        fleet.reap()
        total += fleet.faults
        assert fleet.crashes == [], "a survivor stumbled over what the dead left"
        assert audit(root, at_rest=True) == []
        assert {places[0][0] for places in state_files(root).values()} == {"done"}
        assert len(state_files(root)) == TASKS
        assert len(list(commits.glob("*.out"))) == TASKS
        assert orphans(root) == [], "a process outlived its task"
        assert check_exclusive(root).violations == []
        assert check_single(root) == []
        assert trespassers(root) == []
        executions += sum(entry["event"] == "started" for entry in entries(root))
    print(
        f"{sum(total.values())} faults {dict(total)} in {rounds} rounds: {rounds * TASKS} tasks, {executions} runs, "
        f"{time.monotonic() - begin:.0f} s"
    )
