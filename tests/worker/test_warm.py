"""Warm starts: a task forked from a template gives what a cold start gives, and costs less."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from worker_harness import QUICK, inventory, results, start_worker, wait_for_exit, wait_until, worker

from fleetcraft.ground.machine import process_start
from fleetcraft.ground.processes import environment_value
from fleetcraft.spool import Outcome, Producer, Result, Spool, State, TaskSpec, Writer
from fleetcraft.worker.warm import LAUNCHER, WarmStarter


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Spool.create(tmp_path / "spool", "test")
    return tmp_path / "spool"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module on the path of tasks, to be written to."""
    (tmp_path / "modules").mkdir()
    return tmp_path / "modules/subject.py"


def write(module: Path, text: str) -> None:
    module.write_text(textwrap.dedent(text))


def spec(task_id: str, module: Path, *arguments: str, launcher: str = LAUNCHER, **fields: object) -> TaskSpec:
    """A task that runs the module."""
    environment = {"PYTHONPATH": str(module.parent), **fields.pop("environment", {})}  # type: ignore[dict-item]
    command = (sys.executable, "-P", "-m", module.stem, *arguments)
    return TaskSpec(task_id, command, str(module.parent), launcher=launcher, environment=environment, **fields)  # type: ignore[arg-type]


def run(root: Path, *specs: TaskSpec, starter: WarmStarter | None = None, slots: int = 1) -> dict[str, Result]:
    """Run tasks, one after the other unless there are more slots."""
    with Writer(Spool.open(root), "test") as writer:
        producer = Producer(writer)
        for number, task in enumerate(specs):
            producer.enqueue([replace(task, priority=900 - number)])
    starters = {LAUNCHER: starter or WarmStarter()}
    assert wait_for_exit(start_worker(root, QUICK, inventory(slots), starters=starters), 60) == 0
    return results(root)


def log(root: Path, result: Result) -> str:
    assert result.ending is not None
    assert result.ending.log is not None
    return (root / result.ending.log).read_text()


SUBJECT = """
    import json, os, sys
    import helper
    if __name__ == "__main__":
        print(json.dumps({
            "argv": sys.argv, "path0": sys.path[0], "cwd": os.getcwd(), "name": __name__,
            "environment": {k: v for k, v in sorted(os.environ.items()) if not k.startswith("FLEETCRAFT_")},
            "task": os.environ["FLEETCRAFT_TASK"][-1], "group": os.getpgid(0) == os.getpid(),
            "stdin": sys.stdin.read(), "warm": helper.PID != os.getpid(), "safe": sys.flags.safe_path,
            "descriptors": len(os.listdir("/proc/self/fd")),
        }))
        print("and this to stderr", file=sys.stderr)
        sys.exit(int(sys.argv[1]))
"""


def test_a_warm_start_gives_what_a_cold_one_gives(root: Path, module: Path) -> None:
    write(module, SUBJECT)
    (module.parent / "helper.py").write_text("import os\nPID = os.getpid()\n")
    own = {"environment": {"OWN": "variable"}}
    # While the template learns from the first one, the next ones are started cold.
    several = [spec(f"{code}-{number}-7", module, code, **own) for number in range(12) for code in ("0", "3")]
    cold = [spec(f"cold{code}-7", module, code, launcher="command", **own) for code in ("0", "3")]
    done = run(root, *several, *cold)
    for code in ("0", "3"):
        expected, expected_code = saw(root, done[f"cold{code}-7"])
        assert expected_code == int(code)
        assert expected.pop("warm") is False
        seen = [saw(root, result) for key, result in done.items() if key.startswith(f"{code}-")]
        warm = [facts for facts, _ in seen if facts.pop("warm")]
        assert warm != []
        assert {exit_code for _, exit_code in seen} == {int(code)}
        for facts in warm:
            assert facts == expected


def saw(root: Path, result: Result) -> tuple[dict[str, object], int | None]:
    """What a task saw, and its exit code."""
    assert result.ending is not None
    line, error = log(root, result).splitlines()
    assert error == "and this to stderr"
    return json.loads(line), result.ending.exit_code


@pytest.mark.parametrize(
    ("ending", "exit_code", "said"),
    [
        ("raise KeyError('what')", 1, "KeyError: 'what'"),
        ("sys.exit('a reason')", 1, "a reason"),
        ("sys.exit()", 0, ""),
        ("os.kill(os.getpid(), 9)", -9, ""),
        ("threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0, "late"),
        ("atexit.register(print, 'goodbye')", 0, "goodbye"),
    ],
)
def test_every_way_to_end_is_the_same(root: Path, module: Path, ending: str, exit_code: int, said: str) -> None:
    write(module, f"import atexit, os, sys, threading, time\n{ending}\n")
    done = run(root, spec("warm", module), spec("cold", module, launcher="command"))
    for result in done.values():
        assert result.ending is not None
        assert result.ending.exit_code == exit_code
        assert said in log(root, result)


def test_a_module_that_starts_a_thread_is_left_to_the_tasks(root: Path, module: Path) -> None:
    (module.parent / "threaded.py").write_text(
        "import os, threading, time\nPID = os.getpid()\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (module.parent / "plain.py").write_text("import os\nPID = os.getpid()\n")
    write(
        module, "import os, plain, threaded\nprint(plain.PID == os.getpid(), threaded.PID == os.getpid(), flush=True)\n"
    )
    done = run(root, *(spec(str(number), module) for number in range(15)))
    # Cold, and warm with all but the one.
    assert {log(root, result) for result in done.values()} == {"True True\n", "False True\n"}


def test_a_template_is_renewed_when_what_it_imported_may_have_changed(root: Path, module: Path, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("one")
    helper = module.parent / "helper.py"
    helper.write_text("VALUE = 1\n")
    write(
        module,
        f"""
        import pathlib, sys
        import helper
        print(helper.VALUE)
        if sys.argv[1] == "change":
            pathlib.Path({str(helper)!r}).write_text("VALUE = 22\\n")
            pathlib.Path({str(lock)!r}).write_text("two two")
        """,
    )
    tasks = [spec(f"{number}-{what}", module, what) for number, what in enumerate(("keep", "keep", "change", "keep"))]
    done = run(root, *tasks, starter=WarmStarter(watched=[lock]))
    assert [log(root, done[task.id]).strip() for task in tasks] == ["1", "1", "1", "22"]


def test_a_template_is_renewed_after_so_many_tasks(root: Path, module: Path) -> None:
    (module.parent / "helper.py").write_text("import os\nPID = os.getpid()\n")
    write(module, "import helper\nprint(helper.PID)\n")
    done = run(root, *(spec(f"{number:02d}", module) for number in range(40)), starter=WarmStarter(renew_after=3))
    assert all(result.state is State.DONE for result in done.values())
    templates = {log(root, result) for result in done.values()}
    assert 2 < len(templates) < 40


def test_tasks_with_other_paths_to_modules_share_no_template(root: Path, module: Path, tmp_path: Path) -> None:
    other = tmp_path / "others/subject.py"
    other.parent.mkdir()
    for place, value in ((module, 1), (other, 2)):
        write(place, "import helper\nprint(helper.VALUE)\n")
        (place.parent / "helper.py").write_text(f"VALUE = {value}\n")
    done = run(
        root, *(spec(f"{number}-{place.parent.name}", place) for number in range(3) for place in (module, other))
    )
    assert {log(root, result) for key, result in done.items() if key.endswith("modules")} == {"1\n"}
    assert {log(root, result) for key, result in done.items() if key.endswith("others")} == {"2\n"}


def test_what_cannot_be_started_warm_is_started_cold(root: Path, module: Path) -> None:
    write(module, "print('here')\n")
    shell = TaskSpec("shell", ("/bin/sh", "-c", "echo here"), str(module.parent), launcher=LAUNCHER)
    unsafe = TaskSpec("unsafe", (sys.executable, "-m", module.stem), str(module.parent), launcher=LAUNCHER)
    done = run(root, shell, unsafe)
    assert {log(root, result) for result in done.values()} == {"here\n"}


def test_a_command_that_does_not_exist_fails_and_says_so(root: Path, tmp_path: Path) -> None:
    gone = TaskSpec("gone", (sys.executable, "-P", "-m", "subject"), str(tmp_path / "gone"), launcher=LAUNCHER)
    missing = TaskSpec("missing", (sys.executable, "-P", "-m", "no_such_module"), str(tmp_path), launcher=LAUNCHER)
    done = run(root, gone, missing)
    assert all(result.state is State.FAILED for result in done.values())
    assert "it can't be started" in done["gone"].problem
    assert "No module named" in log(root, done["missing"])


def test_a_warm_task_is_ended_like_any_other_with_all_that_it_started(root: Path, module: Path) -> None:
    write(
        module,
        """
        import os, subprocess, sys, time
        child = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; echo $$ > child; sleep 600"], start_new_session=True)
        time.sleep(600)
        """,
    )
    with Writer(Spool.open(root), "test") as writer:
        Producer(writer).enqueue([spec("long", module)])
    with worker(root, QUICK, inventory(1), starters={LAUNCHER: WarmStarter()}) as pid:
        wait_until(lambda: (module.parent / "child").exists() and (module.parent / "child").read_text() != "")
        child = int((module.parent / "child").read_text())
        os.kill(pid, signal.SIGTERM)
        assert wait_for_exit(pid) == 0
    assert process_start(child) is None
    assert templates_of(root) == []


def test_templates_end_with_their_worker_however_it_ends(root: Path, module: Path) -> None:
    write(module, "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)\n")
    with Writer(Spool.open(root), "test") as writer:
        Producer(writer).enqueue([spec("long", module)])
    with worker(root, QUICK, inventory(1), starters={LAUNCHER: WarmStarter()}) as pid:
        wait_until(lambda: (module.parent / "pid").exists() and (module.parent / "pid").read_text() != "")
        assert len(templates_of(root)) > 0
        os.kill(pid, signal.SIGKILL)
        assert wait_for_exit(pid) == -signal.SIGKILL
        wait_until(lambda: process_start(int((module.parent / "pid").read_text())) is None)
        wait_until(lambda: templates_of(root) == [])


def test_a_template_that_is_killed_costs_no_task(root: Path, module: Path) -> None:
    write(
        module,
        """
        import os, signal
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    line = open(f"/proc/{name}/cmdline").read()
                    worker = open(f"/proc/{name}/environ").read()
                except OSError:
                    continue
                if "template.py" in line and "FLEETCRAFT_WORKER=" + os.environ["FLEETCRAFT_WORKER"] in worker:
                    if int(name) != os.getppid():
                        os.kill(int(name), signal.SIGKILL)
        """,
    )
    done = run(root, *(spec(f"{number}", module) for number in range(5)))
    assert [result.state for result in done.values()] == [State.DONE] * 5
    assert all(r.ending is not None and r.ending.outcome is Outcome.SUCCEEDED and r.attempt == 1 for r in done.values())


def templates_of(root: Path) -> list[int]:
    """Templates of workers of this spool: their workers are in `running`."""
    workers = {entry.name for entry in (root / "journal").rglob("*.jsonl")}
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and f"{environment_value(int(entry.name), 'FLEETCRAFT_WORKER')}.jsonl" in workers
    ]
