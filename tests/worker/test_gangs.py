"""Gangs: several whole nodes together or none, and their nodes back whoever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_checker import check_exclusive, check_gangs, entries, intervals, kept_nodes
from spool_audit import audit
from worker_harness import QUICK, inventory, results, shell, start_worker, wait_for_exit, wait_until, worker

from fleetcraft.spool import (
    CRASHED,
    Liveness,
    Producer,
    Reaper,
    Request,
    Spool,
    State,
    TaskSpec,
    Verdict,
    Writer,
    read_leases,
    survey,
)
from fleetcraft.worker.explanation import explain
from fleetcraft.worker.settings import Settings

GANG = replace(QUICK, gang="allocation-1", idle_timeout_s=1.5)
THREE = Request(nodes=3, access="exclusive", runtime_s=60)
HOSTS = ("n1", "n2", "n3", "n4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Spool.create(tmp_path / "spool", "gangs")
    return tmp_path / "spool"


def enqueue(root: Path, *specs: TaskSpec) -> None:
    with Writer(Spool.open(root), "controller") as writer:
        Producer(writer).enqueue(specs)


@contextmanager
def fleet(root: Path, settings: Settings = GANG, hosts: tuple[str, ...] = HOSTS) -> Iterator[dict[str, int]]:
    """Workers on several hosts of one allocation."""
    with ExitStack() as stack:
        yield {host: stack.enter_context(worker(root, settings, host=host)) for host in hosts}


def settled(root: Path, task: str) -> list[dict[str, Any]]:
    return [e for e in entries(root) if e["event"] == "settled" and e["task"] == task]


def reap(root: Path, gone: set[str]) -> None:
    """What a controller does when it knows that workers are gone."""
    with Writer(Spool.open(root), "controller") as writer:
        reaper = Reaper(
            writer, lambda name, lease: Liveness(Verdict.GONE if name in gone else Verdict.ALIVE, CRASHED), 0.0
        )
        wait_until(lambda: gone <= reaper.step().workers.keys(), 30)


def worker_of(root: Path, host: str) -> str:
    return next(name for name, lease in read_leases(Spool.open(root)).items() if lease.host == host)


def test_a_gang_runs_on_its_nodes_alone_while_the_others_go_on(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        *(shell(f"before-{i}", "sleep 0.3", tmp_path, priority=600) for i in range(16)),
        shell("gang", "env > gang.env; sleep 1.5", tmp_path, request=THREE),
        *(shell(f"shared-{i}", "sleep 0.1", tmp_path, priority=400) for i in range(60)),
    )
    with fleet(root) as workers:
        assert [wait_for_exit(pid) for pid in workers.values()] == [0] * 4
    found = results(root)
    assert {result.state for result in found.values()} == {State.DONE}
    assert check_gangs(root) == []
    assert check_exclusive(root).violations == []
    [gang] = [run for run in intervals(root) if run.task == "gang"]
    members = {kept.host for kept in kept_nodes(root)}
    assert len(members) == 2
    [fourth] = set(HOSTS) - members - {gang.host}
    meanwhile = {run.host for run in intervals(root) if run.overlaps(replace(gang, host=run.host))} - {gang.host}
    assert meanwhile == {fourth}, "the node that isn't needed goes on with other work"
    variables = dict(line.split("=", 1) for line in (tmp_path / "gang.env").read_text().splitlines() if "=" in line)
    assert set(variables["FLEETCRAFT_GANG"].split(",")) == members | {gang.host}
    assert variables["MASTER_ADDR"] == gang.host
    assert 0 < int(variables["MASTER_PORT"]) < 65536
    assert audit(root, at_rest=True) == []


def test_two_gangs_that_want_the_same_nodes_run_one_after_the_other(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"gang-{i}", "sleep 0.3", tmp_path, request=THREE) for i in range(2)))
    with fleet(root, replace(GANG, idle_timeout_s=8.0)) as workers:
        wait_until(lambda: {p.state for p in survey(Spool.open(root)).values()} == {State.DONE})
        for pid in workers.values():
            os.kill(pid, signal.SIGTERM)
        assert [wait_for_exit(pid) for pid in workers.values()] == [0] * 4
    assert check_gangs(root) == []
    assert check_exclusive(root).violations == []


def test_a_gang_for_which_there_are_too_few_nodes_waits_and_says_why(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("gang", "true", tmp_path, request=THREE), shell("other", "true", tmp_path))
    with fleet(root, replace(GANG, idle_timeout_s=None), hosts=("n1", "n2")) as workers:
        alone = start_worker(root, replace(QUICK, idle_timeout_s=0.5), inventory(), host="elsewhere")
        assert wait_for_exit(alone) == 0
        wait_until(lambda: survey(Spool.open(root))["other"].state is State.DONE)
        lines = explain(Spool.open(root), "gang")
        assert "It needs 3 nodes of one allocation together; 2 could be kept for it now." in lines
        third = start_worker(root, GANG, host="n3")
        assert wait_for_exit(third) == 0
        wait_until(lambda: survey(Spool.open(root))["gang"].state is State.DONE)
        for pid in workers.values():
            os.kill(pid, signal.SIGTERM)
            assert wait_for_exit(pid) == 0


def test_a_gang_that_does_not_come_together_in_time_is_given_back_uncounted(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"long-{i}", "sleep 60", tmp_path, priority=900) for i in range(16)))
    settings = replace(GANG, gang_patience_s=0.5, avoid_s=60.0)
    with fleet(root, settings) as workers:
        wait_until(lambda: len([run for run in intervals(root) if run.task.startswith("long")]) == 16)
        # Room for a gang's leader, whose companions stay busy for longer than it waits.
        enqueue(root, shell("gang", "true", tmp_path, request=THREE))
        late = "its gang did not come together in time"
        wait_until(lambda: late in [e["cause"] for e in settled(root, "gang")])
        # One that wanted to lead while another did has given it back before.
        assert {(e["outcome"], e["to"]) for e in settled(root, "gang")} == {("returned", "pending")}
        for pid in workers.values():
            os.kill(pid, signal.SIGTERM)
            assert wait_for_exit(pid) == 0
    assert list((root / "control/gang").rglob("*-a*")) == []


@pytest.mark.parametrize("who", ["leader", "member"])
def test_when_a_node_of_a_running_gang_dies_the_gang_runs_again_and_nothing_is_left(
    root: Path, tmp_path: Path, who: str
) -> None:
    enqueue(root, shell("gang", "echo >> started; while [ ! -e go ]; do sleep 0.05; done", tmp_path, request=THREE))
    with fleet(root, replace(GANG, idle_timeout_s=None)) as workers:
        wait_until(lambda: (tmp_path / "started").exists())
        [run] = intervals(root)
        host = run.host if who == "leader" else next(kept.host for kept in kept_nodes(root))
        name = worker_of(root, host)
        os.kill(workers[host], signal.SIGKILL)
        wait_for_exit(workers[host])
        reap(root, {name})
        if who == "member":
            # What was started with a node that is lost can't succeed: its program ends, and that isn't its fault.
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and f"FLEETCRAFT_ATTEMPT=gang-a{run.attempt}\0" in _environment(entry):
                    os.kill(int(entry.name), signal.SIGKILL)
        (tmp_path / "go").touch()
        wait_until(lambda: survey(Spool.open(root))["gang"].state is State.DONE)
        for left in set(workers) - {host}:
            os.kill(workers[left], signal.SIGTERM)
            assert wait_for_exit(workers[left]) == 0
    record = results(root)["gang"].record
    assert record is not None
    # A claim that is given back before it began (its companions have not said yet that they are free) counts nothing.
    outcomes = [a.outcome.value for a in record.attempts if a.outcome.value != "returned"]
    assert outcomes == ["lost" if who == "leader" else "interrupted", "succeeded"]
    # A member that died was no longer there for the attempt that it cost.
    assert {problem.split()[0] for problem in check_gangs(root)} <= (
        set() if who == "leader" else {f"gang-a{run.attempt}"}
    )
    assert list((root / "control/gang").rglob("*")) == []


def test_a_gang_that_fails_by_itself_is_failed_by_itself(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("gang", "sleep 0.2; exit 7", tmp_path, request=THREE))
    with fleet(root, replace(GANG, idle_timeout_s=3.0)) as workers:
        assert [wait_for_exit(pid) for pid in workers.values()] == [0] * 4
    ending = results(root)["gang"].ending
    assert ending is not None
    assert (ending.outcome.value, ending.cause) == ("failed", "exit code 7")


def _environment(entry: Path) -> str:
    try:
        return (entry / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
