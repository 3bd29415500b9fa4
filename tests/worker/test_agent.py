"""A worker runs what fits, as it was asked to, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from journal_checker import check_exclusive, intervals
from spool_audit import audit
from worker_harness import (
    QUICK,
    inventory,
    orphans,
    results,
    run_to_end,
    shell,
    start_worker,
    wait_for_exit,
    wait_until,
    worker,
)

from fleetcraft.spool import (
    Filesystem,
    Outcome,
    Producer,
    Request,
    Spool,
    State,
    TaskSpec,
    Writer,
    abort,
    cancel,
    drain,
    drained,
    read_leases,
    resume,
    survey,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Spool.create(tmp_path / "spool", "test").root


def enqueue(root: Path, *specs: TaskSpec) -> None:
    with Writer(Spool.open(root), "test") as writer:
        environment = {"TEST_SPOOL": str(root)}
        Producer(writer).enqueue(replace(spec, environment={**environment, **spec.environment}) for spec in specs)


def log(root: Path, task: str, attempt: int = 1) -> str:
    (path,) = root.glob(f"logs/*/{task}-a{attempt}.log")
    return path.read_text()


def test_a_task_runs_in_its_directory_with_its_environment_and_its_output_is_in_its_log(
    root: Path, tmp_path: Path
) -> None:
    enqueue(root, shell("t", "pwd; echo $GREETING; echo problem >&2", tmp_path, environment={"GREETING": "hello"}))
    result = run_to_end(root)["t"]
    assert result.state is State.DONE
    assert result.ending is not None
    assert result.ending.exit_code == 0
    assert log(root, "t").split() == [str(tmp_path), "hello", "problem"]
    assert audit(root, at_rest=True) == []


def test_a_task_that_fails_is_tried_as_often_as_its_retries_allow_and_not_more(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", f"echo x >> {tmp_path}/runs; exit 3", tmp_path, retries=2))
    result = run_to_end(root)["t"]
    assert result.state is State.FAILED
    assert (tmp_path / "runs").read_text().count("x") == 3
    assert result.ending is not None
    assert result.ending.exit_code == 3
    assert [log(root, "t", attempt) for attempt in (1, 2, 3)] == ["", "", ""]


def test_a_task_that_fails_on_two_nodes_is_failed_whatever_retries_are_left(root: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, avoid_s=60, idle_timeout_s=2.0)
    pids = [start_worker(root, settings, host=host) for host in ("n1", "n2")]
    wait_until(lambda: len(read_leases(Spool.open(root))) == 2)
    enqueue(root, shell("t", f"echo x >> {tmp_path}/runs; exit 1", tmp_path, retries=9))
    assert [wait_for_exit(pid) for pid in pids] == [0, 0]
    result = results(root)["t"]
    assert result.state is State.FAILED
    assert "it failed on 2 nodes (n1, n2)" in result.problem
    assert (tmp_path / "runs").read_text().count("x") == 2, "a worker left a task that failed on it to the other one"


def test_a_full_disk_is_waited_out_and_no_result_is_lost(root: Path, tmp_path: Path) -> None:
    flag = tmp_path / "full"
    flag.touch()

    class Full(Filesystem):
        def before(self, call: str, path: Path) -> None:
            if call == "write" and flag.exists() and "running" in path.parts:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    enqueue(root, *(shell(f"t-{i}", f"echo x >> {tmp_path}/runs-{i}", tmp_path) for i in range(8)))
    pid = start_worker(root, replace(QUICK, idle_timeout_s=2.0), filesystem=Full)
    wait_until(lambda: len(list(tmp_path.glob("runs-*"))) >= 4)
    assert results(root) == {}
    flag.unlink()
    assert wait_for_exit(pid) == 0
    assert {result.state for result in results(root).values()} == {State.DONE}
    assert [(tmp_path / f"runs-{i}").read_text() for i in range(8)] == ["x\n"] * 8, "a task was run again"
    assert audit(root, at_rest=True) == []


def test_a_command_that_does_not_exist_fails_and_says_so(root: Path, tmp_path: Path) -> None:
    enqueue(root, TaskSpec("t", ("/no/such/command",), str(tmp_path)))
    result = run_to_end(root)["t"]
    assert result.state is State.FAILED
    assert "can't be started" in result.problem
    assert "No such file" in log(root, "t")


def test_a_log_that_cant_be_written_fails_the_task_and_says_so(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", "true", tmp_path))
    (root / "logs").rmdir()
    (root / "logs").write_text("in the way")
    assert "its log can't be written" in run_to_end(root)["t"].problem


def test_a_missing_output_is_a_failure(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        shell("t", "true", tmp_path, outputs=("never.txt",)),
        shell("u", "echo > there", tmp_path, outputs=("there",)),
    )
    found = run_to_end(root)
    assert found["t"].problem == "its output never.txt is missing"
    assert found["u"].state is State.DONE


def test_an_unreadable_task_is_quarantined_and_named_and_the_rest_goes_on(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("bad", "true", tmp_path), shell("good", "true", tmp_path))
    survey(Spool.open(root))["bad"].path.write_bytes(b"{torn")
    found = run_to_end(root)
    assert found["bad"].state is State.QUARANTINE
    assert found["good"].state is State.DONE


def test_a_task_that_runs_too_long_gets_term_then_kill_within_its_grace(root: Path, tmp_path: Path) -> None:
    stubborn = "trap 'echo got term' TERM; while :; do sleep 0.05; done"
    enqueue(root, shell("t", stubborn, tmp_path, request=Request(runtime_s=1)))
    start = time.monotonic()
    result = run_to_end(root)["t"]
    assert "longer than its runtime of 1 s" in result.problem
    assert "got term" in log(root, "t")
    assert time.monotonic() - start < 10
    assert orphans(root) == []


def test_what_a_task_leaves_behind_is_ended_with_it_even_outside_its_process_group(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        shell("group", "sleep 100 &", tmp_path),
        shell("session", "setsid sleep 100 & sleep 0.1", tmp_path),
        shell("daemon", "(setsid sh -c 'sleep 100 & sleep 100' &) ; sleep 0.1", tmp_path),
        shell("hidden", "setsid env -i /bin/sleep 12345 & sleep 0.1", tmp_path),
    )
    found = run_to_end(root)
    assert all(found[task].state is State.DONE for task in ("group", "session", "daemon", "hidden"))
    assert orphans(root) == []
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"12345" in _bytes(p)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_what_a_task_leaves_behind_is_gone_when_its_result_is_there(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", "setsid sleep 100 & sleep 0.1", tmp_path))
    with worker(root, replace(QUICK, idle_timeout_s=None)) as pid:
        wait_until(lambda: "t" in results(root))
        assert orphans(root) == []
        assert results(root)["t"].ending.measured["strays"] >= 1  # type: ignore[union-attr]
        os.kill(pid, signal.SIGTERM)
        assert wait_for_exit(pid) == 0


def test_tasks_are_packed_by_threads_memory_and_devices(root: Path, tmp_path: Path) -> None:
    record = "echo $FLEETCRAFT_SLOT $CUDA_VISIBLE_DEVICES; sleep 0.2"
    enqueue(
        root,
        *(shell(f"cpu-{i}", record, tmp_path, request=Request(threads=2, mem_mb=100)) for i in range(4)),
        *(shell(f"mem-{i}", record, tmp_path, request=Request(mem_mb=3000)) for i in range(2)),
        *(shell(f"gpu-{i}", record, tmp_path, request=Request(gpus=1)) for i in range(4)),
    )
    found = run_to_end(root, node=inventory(threads=4, mem_mb=4000, gpus=2), host="n1")
    assert {result.state for result in found.values()} == {State.DONE}
    runs = intervals(root)
    for run in runs:
        together = [other for other in runs if other.overlaps(run) and other.start_s <= run.start_s]
        assert sum(other.threads for other in together) <= 4
        assert sum(other.task.startswith("mem") for other in together) <= 1
        devices = [other.slot for other in together if other.task.startswith("gpu")]
        assert len(devices) == len(set(devices)) <= 2
    assert {log(root, f"gpu-{i}").split()[0] for i in range(4)} <= {"n1/GPU-test-0", "n1/GPU-test-1"}
    assert log(root, "cpu-0").split() == ["n1/node"], "a task without devices sees none"


def test_two_workers_on_one_host_never_share_a_physical_slot(root: Path, tmp_path: Path) -> None:
    record = "echo $FLEETCRAFT_SLOT $FLEETCRAFT_DEVICE $FLEETCRAFT_STREAM; sleep 0.05"
    enqueue(
        root, *(shell(f"t-{i}", record, tmp_path, request=Request(gpus=1), stream=f"stream-{i}") for i in range(16))
    )
    four = inventory(gpus=4).gpus
    pids = [start_worker(root, node=replace(inventory(), gpus=part), host="n1") for part in (four[:2], four[2:])]
    assert [wait_for_exit(pid) for pid in pids] == [0, 0]
    runs = intervals(root)
    assert len(runs) == 16
    for run in runs:
        assert not [other for other in runs if other is not run and other.slot == run.slot and other.overlaps(run)]
    for i in range(16):
        slot, device, stream = log(root, f"t-{i}").split()
        assert slot.startswith("n1/GPU-test-")
        assert (device, stream) == ("cuda:0", f"stream-{i}"), "its device is its first one, its stream its own"


def test_an_exclusive_task_runs_alone_and_shared_ones_run_together(root: Path, tmp_path: Path) -> None:
    timed = Request(access="exclusive", threads=2)
    enqueue(
        root,
        *(shell(f"shared-{i}", "sleep 0.1", tmp_path) for i in range(12)),
        *(shell(f"timed-{i}", "cat $FLEETCRAFT_NODE_FILE; sleep 0.05", tmp_path, request=timed) for i in range(3)),
        *(shell(f"later-{i}", "sleep 0.05", tmp_path, priority=400) for i in range(6)),
    )
    pids = [start_worker(root, host=host) for host in ("n1", "n2")]
    assert [wait_for_exit(pid) for pid in pids] == [0, 0]
    found = results(root)
    assert len(found) == 21
    assert {result.state for result in found.values()} == {State.DONE}
    proof = check_exclusive(root)
    assert proof.violations == []
    assert (proof.exclusive, proof.shared) == (3, 18)
    assert proof.overlapping_shared > 0
    for i in range(3):
        ending = found[f"timed-{i}"].ending
        assert ending is not None
        assert ending.observed["neighbours_at_start"] == []
        assert json.loads(log(root, f"timed-{i}"))["observed"]["before"]["gpu_processes"] == []


def test_a_worker_told_to_stop_gives_its_tasks_back_and_nothing_counts(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"t-{i}", "echo > started-$FLEETCRAFT_TASK; exec sleep 100", tmp_path) for i in range(6)))
    with worker(root) as pid:
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 4)
        os.kill(pid, signal.SIGTERM)
        assert wait_for_exit(pid) == 0
    places = survey(Spool.open(root))
    assert {place.state for place in places.values()} == {State.PENDING}
    assert sorted(place.name.attempt for place in places.values()) == [1, 1, 2, 2, 2, 2]
    assert orphans(root) == []


def test_before_its_walltime_a_worker_gives_back_what_runs_and_claims_nothing_it_cant_finish(
    root: Path, tmp_path: Path
) -> None:
    enqueue(
        root,
        shell("long", "sleep 100", tmp_path, request=Request(runtime_s=1000)),
        shell("short", "sleep 0.05", tmp_path, request=Request(runtime_s=1)),
    )
    settings = replace(QUICK, idle_timeout_s=None, walltime_s=3.0, walltime_margin_s=1.0)
    start = time.monotonic()
    found = run_to_end(root, settings)
    assert 1.5 < time.monotonic() - start < 3.0, "it left before its walltime"
    assert set(found) == {"short"}
    assert survey(Spool.open(root))["long"].name.attempt == 1, "it was never claimed"


def test_an_exclusive_task_that_waited_too_long_for_its_neighbours_goes_back_uncounted(
    root: Path, tmp_path: Path
) -> None:
    enqueue(root, shell("neighbour", "sleep 1", tmp_path, priority=900, request=Request(runtime_s=2)))
    enqueue(root, shell("timed", "sleep 0.1", tmp_path, request=Request(runtime_s=2, access="exclusive")))
    run_to_end(root, replace(QUICK, idle_timeout_s=None, walltime_s=3.2, walltime_margin_s=0.8))
    place = survey(Spool.open(root))["timed"]
    assert place.state is State.PENDING
    ending = json.loads(place.path.read_text().splitlines()[-1])["attempt"]
    assert ending["outcome"] == Outcome.RETURNED.value
    assert not list(root.glob("logs/*/timed-*"))


def test_cancelling_ends_what_runs_and_fails_what_waits(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"t-{i}", "echo > started-$FLEETCRAFT_TASK; sleep 100", tmp_path) for i in range(6)))
    with worker(root, replace(QUICK, idle_timeout_s=1.0)) as pid:
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 4)
        with Writer(Spool.open(root), "operator") as writer:
            report = cancel(writer, [f"t-{i}" for i in range(6)] + ["nobody"])
        # Those that run are asked of the worker, and so is one that it claimed ahead and hasn't started.
        assert len(report.asked) >= 4
        assert len({*report.cancelled, *report.asked}) == 6
        assert report.unknown == ("nobody",)
        assert wait_for_exit(pid) == 0
    found = results(root)
    assert {(result.state, result.problem) for result in found.values()} == {(State.FAILED, "cancelled")}
    assert len(found) == 6
    assert audit(root, at_rest=True) == []
    assert orphans(root) == []


def test_an_aborted_run_finishes_what_runs_and_leaves_the_rest_waiting(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"t-{i}", "echo > started-$FLEETCRAFT_TASK; sleep 0.5", tmp_path) for i in range(6)))
    with worker(root, replace(QUICK, idle_timeout_s=None)) as pid:
        wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 4)
        abort(Spool.open(root), "enough")
        assert wait_for_exit(pid) == 0
    assert len(results(root)) == 4
    assert len(run_to_end(root, replace(QUICK, idle_timeout_s=None))) == 4, "a new worker serves an aborted run"
    resume(Spool.open(root))
    assert len(run_to_end(root)) == 6


def test_a_node_on_which_several_different_tasks_fail_drains_itself(root: Path, tmp_path: Path) -> None:
    enqueue(root, *(shell(f"t-{i}", "exit 1", tmp_path, request=Request(threads=4)) for i in range(10)))
    found = run_to_end(root, replace(QUICK, failing_tasks=3), host="bad")
    assert len(found) == 3, "a broken node was fed on"
    assert "3 different tasks failed here in a row" in drained(Spool.open(root))["bad"]
    assert len(run_to_end(root, host="bad")) == 3, "a new worker of a drained node serves"
    assert len(run_to_end(root, host="good")) == 10


def test_a_drained_worker_leaves_and_its_lease_says_what_it_does_meanwhile(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", "sleep 1", tmp_path, group="generate"))
    with worker(root, replace(QUICK, idle_timeout_s=None), host="n1") as pid:
        wait_until(lambda: any(lease.running for lease in read_leases(Spool.open(root)).values()))
        (lease,) = read_leases(Spool.open(root)).values()
        assert lease.running[0]["group"] == "generate"
        assert lease.free["threads"] == 3
        drain(Spool.open(root), lease.worker, "maintenance")
        assert wait_for_exit(pid) == 0
    assert results(root)["t"].state is State.DONE
    assert read_leases(Spool.open(root)) == {}
    assert drained(Spool.open(root)) == {}, "the order to one worker goes with it"


def test_tasks_are_the_first_to_go_when_memory_runs_out(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", "cat /proc/self/oom_score_adj", tmp_path))
    run_to_end(root)
    assert int(log(root, "t")) > int(Path("/proc/self/oom_score_adj").read_text())


def test_a_worker_whose_launcher_is_killed_ends_its_tasks_and_goes_on(root: Path, tmp_path: Path) -> None:
    enqueue(
        root, shell("t", "echo > started; test -e again || { touch again; setsid sleep 100; }", tmp_path, retries=0)
    )
    with worker(root, replace(QUICK, idle_timeout_s=1.0)) as pid:
        wait_until(lambda: (tmp_path / "started").exists())
        wait_until(lambda: any(lease.running for lease in read_leases(Spool.open(root)).values()))
        (lease,) = read_leases(Spool.open(root)).values()
        (launcher,) = (other for other, _ in lease.processes if other != pid)
        os.kill(launcher, signal.SIGKILL)
        assert wait_for_exit(pid) == 0
    result = results(root)["t"]
    assert result.state is State.DONE, "the launcher's death counted against the task"
    assert result.attempt == 2
    assert orphans(root) == []


def test_a_task_that_kills_its_worker_twice_is_failed_and_its_log_is_kept(root: Path, tmp_path: Path) -> None:
    from fleetcraft.ground.clock import SystemClock
    from fleetcraft.spool import Reaper
    from fleetcraft.worker.liveness import LocalOracle

    spool = Spool.open(root)
    killer = "echo my last words; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; sleep 100"
    enqueue(root, shell("killer", killer, tmp_path, retries=9), shell("innocent", "sleep 100", tmp_path))
    with Writer(spool, "controller") as writer:
        reaper = Reaper(writer, LocalOracle(SystemClock(), grace_s=0.2), stale_s=0.5)
        for attempt in (1, 2):
            pid = start_worker(root, replace(QUICK, idle_timeout_s=None))
            os.waitpid(pid, 0)
            wait_until(lambda: bool(reaper.step().workers))
            assert orphans(root) == []
            if attempt == 1:
                cancel(writer, ["innocent"])
    result = results(root)["killer"]
    assert result.state is State.FAILED
    assert "died" in result.problem or "crashed" in result.problem
    assert log(root, "killer", 2) == "my last words\n"
