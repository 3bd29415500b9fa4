"""Why an attempt failed stands in its result: by its own word, or by what its end, its log and its cgroup tell.

The kills are real ones: in a memory cgroup that is too small for what the tasks take.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from memory_cgroup import ALLOCATE, enter, memory_cgroup
from worker_harness import QUICK, results, run_to_end, shell, start_worker, wait_for_exit

from fleetcraft.ground.cgroup import KillCounter, Kills
from fleetcraft.ground.failures import Failure
from fleetcraft.spool import Attempt, Outcome, Producer, Request, Result, Spool, State, TaskSpec, Writer, drained
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.task import encode_attempt, encode_task, parse_record
from fleetcraft.worker.evidence import Evidence, explain_end
from fleetcraft.worker.explanation import explain
from fleetcraft.worker.overview import Observer
from fleetcraft.worker.settings import Settings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Spool.create(tmp_path / "spool", "test").root


def enqueue(root: Path, *specs: TaskSpec) -> None:
    with Writer(Spool.open(root), "test") as writer:
        Producer(writer).enqueue(specs)


def run_within(directory: Path, root: Path, settings: Settings = QUICK) -> dict[str, Result]:
    """Let a worker in a cgroup do all it can."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            enter(directory)
            code = wait_for_exit(start_worker(root, settings))
        finally:
            os._exit(code)
    assert wait_for_exit(pid) == 0
    return results(root)


def failure(result: Result) -> dict[str, str]:
    assert result.state is State.FAILED
    assert result.ending is not None
    return result.ending.failure


def left(failure_class: str, problem: str = "it was so", remedy: str = "Do it better") -> str:
    """A shell command that fails and tells why."""
    text = json.dumps({"class": failure_class, "problem": problem, "remedy": remedy})
    return f"printf %s '{text}' > $FLEETCRAFT_FAILURE_FILE; exit 1"


# ------------------------------------------------------------------ memory that ran out


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"exec {ALLOCATE}", id="the task itself is killed"),
        pytest.param(f"{ALLOCATE}; echo $? > status; exit 1", id="a process of it is killed, and it fails in silence"),
        pytest.param(f"{ALLOCATE} || {left('bug', 'BrokenPipeError')}", id="and it takes that for a bug"),
    ],
)
def test_a_kill_for_want_of_memory_is_known_by_the_counters_of_the_cgroup(
    script: str, root: Path, tmp_path: Path
) -> None:
    with memory_cgroup(200) as directory:
        enqueue(root, shell("t", script, tmp_path, request=Request(mem_mb=150)))
        found = failure(run_within(directory, root)["t"])
        assert found["class"] == "host memory", found
        assert str(directory) in found["problem"]
        assert "limit 200 MB" in found["problem"]
        assert "highest use 200 MB" in found["problem"]
        assert "mem_mb=150" in found["problem"]
        assert "mem_mb" in found["remedy"]


def test_of_tasks_that_share_a_cgroup_the_one_that_was_killed_is_meant(root: Path, tmp_path: Path) -> None:
    with memory_cgroup(200) as directory:
        enqueue(
            root,
            shell("greedy", f"touch began; {ALLOCATE}; exit $?", tmp_path),
            shell("unlucky", "while [ ! -e began ]; do sleep 0.01; done; sleep 2; exit 3", tmp_path),
        )
        found = run_within(directory, root)
        assert failure(found["greedy"])["class"] == "host memory"
        assert failure(found["unlucky"])["class"] == "unclassified"


def test_a_cgroup_within_the_workers_counts_as_well(tmp_path: Path) -> None:
    with memory_cgroup(200) as directory:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                enter(directory)
                counter = KillCounter()
                before = counter.count()
                inner = directory / "inner"
                inner.mkdir()
                killed = subprocess.run(
                    ["sh", "-c", f"echo $$ > {inner}/cgroup.procs && exec {ALLOCATE}"], check=False
                ).returncode
                code = 0 if killed and counter.count() == before + 1 else 2
                inner.rmdir()
            finally:
                os._exit(code)
        assert wait_for_exit(pid) == 0


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        (
            "0::/slurm/job/step\n",
            {
                "sys/fs/cgroup/slurm/job/step/memory.events": "low 0\nmax 12\noom 1\noom_kill 3\n",
                "sys/fs/cgroup/slurm/job/step/memory.max": "max\n",
                "sys/fs/cgroup/slurm/job/step/memory.peak": f"{900 << 20}\n",
                "sys/fs/cgroup/slurm/job/memory.max": f"{1000 << 20}\n",
            },
            (3, 1000, 900),
        ),
        (
            "4:memory:/a\n0::/\n",
            {
                "sys/fs/cgroup/memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "sys/fs/cgroup/memory/a/b/memory.oom_control": "oom_kill 5\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{50 << 20}\n",
            },
            (7, 50, None),
        ),
        # In a container: the path is the host's.
        ("0::/hosts/path\n", {"sys/fs/cgroup/memory.events": "oom_kill 4\n"}, (4, None, None)),
        # The root of all cgroups counts nothing; the machine does.
        ("0::/\n", {"proc/vmstat": "pgfault 7\noom_kill 9\n"}, (9, None, None)),
    ],
)
def test_both_versions_of_cgroups_are_read(
    cgroup: str, files: dict[str, str], expected: tuple[int, int | None, int | None], tmp_path: Path
) -> None:
    for name, content in {"proc/self/cgroup": cgroup, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = KillCounter(tmp_path).kills()
    assert found is not None
    assert (found.count, found.limit_mb, found.peak_mb) == expected


# ------------------------------------------------------------------ other ends


def test_a_kill_without_such_evidence_is_said_to_be_one(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("t", "kill -9 $$", tmp_path))
    found = failure(run_to_end(root)["t"])
    assert found["class"] == "killed"
    assert "it was killed by SIGKILL, and no out-of-memory event was seen in its " in found["problem"]


def test_a_crash_names_its_signal_even_through_a_shell(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("a", "kill -SEGV $$", tmp_path), shell("b", "sh -c 'kill -BUS $$'", tmp_path))
    found = run_to_end(root)
    assert (failure(found["a"])["class"], failure(found["a"])["problem"]) == ("crash", "it was killed by SIGSEGV")
    assert (failure(found["b"])["class"], failure(found["b"])["problem"]) == ("crash", "it was killed by SIGBUS")


def test_what_the_worker_sees_itself_has_a_class_too(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        shell("late", "sleep 60", tmp_path, request=Request(runtime_s=1)),
        shell("missing", "true", tmp_path, outputs=("never.txt",)),
        shell("full", "cat /proc/version > /dev/full", tmp_path),
        TaskSpec("unknown", ("/no/such/command",), str(tmp_path)),
        shell("silent", "exit 7", tmp_path),
    )
    found = {task: failure(result)["class"] for task, result in run_to_end(root).items()}
    assert found == {
        "late": "time limit",
        "missing": "bad result",
        "full": "disk full",
        "unknown": "wrong environment",
        "silent": "unclassified",
    }


def test_success_and_what_a_node_or_an_operator_ends_have_no_class(root: Path, tmp_path: Path) -> None:
    enqueue(root, shell("good", f"( {left('bug')} ) ; true", tmp_path))
    ending = run_to_end(root)["good"].ending
    assert ending is not None
    assert (ending.outcome, ending.failure) == (Outcome.SUCCEEDED, {})
    assert b"failure" not in encode_attempt(ending)


def evidence(**changes: object) -> Evidence:
    after = Kills("memory cgroup /x", 1, 100, 90)
    usual = Evidence({"exit_code": 1, "timed_out": False}, None, 1, after, alone=True, log=Path("/none"))
    return replace(usual, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "failure_class", "ended"),
    [
        ("Command 'python x.py' died with <Signals.SIGSEGV: 11>.", "crash", "it was killed by SIGSEGV"),
        ("Command 'sh -c x; true' returned non-zero exit status 134.", "crash", "it was killed by SIGABRT"),
        ("Command 'python x.py' died with <Signals.SIGKILL: 9>.", "killed", "it was killed by SIGKILL"),
        ("Command 'python x.py' returned non-zero exit status 1.", "unclassified", "exit code 1"),
    ],
)
def test_a_signal_that_ended_a_process_deeper_down_is_found_in_the_log(
    line: str, failure_class: str, ended: str, tmp_path: Path
) -> None:
    """As Snakemake shows it, with the words of Python's own error."""
    (tmp_path / "log").write_text(f"rule a:\n{line}\n[Mon Nov 30 15:00:00 2026]\nError in rule a:\n")
    found = explain_end(Outcome.FAILED, "exit code 1", Request(), evidence(log=tmp_path / "log"))
    assert found is not None
    assert found.failure_class == failure_class
    assert found.problem.startswith(ended)


@pytest.mark.parametrize(
    ("outcome", "changes", "expected"),
    [
        (Outcome.INTERRUPTED, {}, None),
        (Outcome.CANCELLED, {}, None),
        (Outcome.LOST, {"event": {}}, None),
        (Outcome.LOST, {"event": {}, "after": Kills("memory cgroup /x", 2, 100, 100)}, "host memory"),
        (Outcome.FAILED, {"left": Failure("disk full", "p", "r")}, "disk full"),
        # A stage that could tell of itself wasn't killed: what was, was something else.
        (
            Outcome.FAILED,
            {"left": Failure("disk full", "p", "r"), "after": Kills("memory cgroup /x", 2, 100, 100)},
            "disk full",
        ),
        (Outcome.FAILED, {"after": Kills("memory cgroup /x", 2, 100, 100), "alone": False}, "unclassified"),
        (Outcome.FAILED, {"after": None, "event": {"exit_code": -9, "timed_out": False}}, "killed"),
        (Outcome.FAILED, {"event": {"exit_code": None, "timed_out": False}}, "node"),
    ],
)
def test_what_weighs_more_than_what(outcome: Outcome, changes: dict[str, object], expected: str | None) -> None:
    found = explain_end(outcome, "it ended", Request(), evidence(**changes))
    assert (found.failure_class if found else None) == expected


# ------------------------------------------------------------------ what follows


def test_what_a_task_tells_of_its_failure_reaches_whoever_asks(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        shell("a", left("device memory", "no room for 20 GiB", "Use a smaller batch"), tmp_path),
        shell("b", left("disk full"), tmp_path),
        shell("c", left("disk full"), tmp_path),
    )
    result = run_to_end(root)["a"]
    assert failure(result) == {
        "class": "device memory",
        "problem": "no room for 20 GiB",
        "remedy": "Use a smaller batch",
    }
    spool = Spool.open(root)
    text = "\n".join(explain(spool, "a"))
    assert (
        "Failure class: device memory.\n    What happened: no room for 20 GiB.\n    What to do: Use a smaller" in text
    )
    overview = Observer(spool).look()
    assert overview.failures == {"device memory": 1, "disk full": 2}
    assert "3 tasks are in failed (2 disk full, 1 device memory)." in overview.warnings


def test_bad_input_is_not_tried_again_and_is_not_held_against_the_node(root: Path, tmp_path: Path) -> None:
    enqueue(
        root,
        *(shell(f"bad-{i}", f"echo x >> runs; {left('bad input')}", tmp_path, retries=5) for i in range(4)),
        shell("full", f"echo x >> full; {left('disk full')}", tmp_path, retries=1),
        shell("good", "sleep 1", tmp_path, priority=1),
    )
    found = run_to_end(root, replace(QUICK, failing_tasks=2))
    assert (tmp_path / "runs").read_text().count("x") == 4
    assert (tmp_path / "full").read_text().count("x") == 2
    assert "bad input, which another attempt won't change" in found["bad-0"].problem
    assert found["good"].state is State.DONE
    assert drained(Spool.open(root)) == {}


def test_a_result_without_a_failure_is_read_as_before(tmp_path: Path) -> None:
    line = (
        b'\n{"attempt":{"cause":"exit code 1","exit_code":1,"host":"n","number":1,"outcome":"failed","worker":"w"}}\n'
    )
    record = parse_record(encode_task(TaskSpec("t", ("true",), "/tmp")) + line, TaskName(500, "t", 1), tmp_path)
    attempt = record.result(1, State.FAILED)
    assert attempt == Attempt(1, Outcome.FAILED, "exit code 1", "w", "n", exit_code=1)
    assert attempt is not None
    assert attempt.failure_class == "unclassified"
