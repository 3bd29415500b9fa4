"""The operators' commands do what they say, and say what they did."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetcraft.cli import spool as commands
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.ground.paths import SPOOLS
from fleetcraft.spool import BadSpool, Controllership, Outcome, Spool, Station, Writer, survey
from fleetcraft.worker.overview import Observer

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process."""
    monkeypatch.setenv("FLEETCRAFT_SPOOL", str(tmp_path / "spool"))
    parser = argparse.ArgumentParser()
    commands.register(parser.add_subparsers(required=True))

    def run(*arguments: str) -> int:
        parsed = parser.parse_args(arguments)
        return int(parsed.run(parsed))

    return run


@pytest.fixture
def root(run: Run, tmp_path: Path) -> Path:
    run("enqueue", "echo hello", "hello", "--create", "demo", "--group", "greet")
    return tmp_path / "spool"


def work(root: Path, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """What a worker does, without one."""
    with Writer(Spool.open(root), "n1", host="n1") as writer:
        station = Station(writer)
        station.claim(lambda request: True, lambda claim: None, 100)
        station.end([(claim, station.attempt(claim, outcome, "as told")) for claim in station.claims])
        station.leave()


def test_a_command_becomes_a_task_once(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enqueue", "echo hello", "hello") == 0
    assert "known already" in capsys.readouterr().out
    work(root)
    run("enqueue", "echo hello", "hello", "--again")
    assert "enqueued again" in capsys.readouterr().out
    assert survey(Spool.open(root))["hello"].name.attempt == 2


def test_a_worker_serves_until_it_is_idle(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], run: Run
) -> None:
    # In a process of its own: a worker adopts the children of its process and sets its signal handlers.
    pid = os.fork()
    if pid == 0:
        code = run("worker", "--idle-timeout", "0.2", "--poll", "0.05", "--capacity", "threads=2")
        sys.stderr.flush()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "idle for" in capfd.readouterr().err
    (log,) = root.glob("logs/*/hello-a1.log")
    assert log.read_text() == "hello\n"


def test_status_counts_by_group_and_state(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("enqueue", "x", "big", "--threads", "500")
    work(root, Outcome.SUCCEEDED)
    run("enqueue", "x", "next", "--group", "greet")
    capsys.readouterr()
    run("status", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"] == {"(no group)": {"done": 1}, "greet": {"done": 1, "pending": 1}}
    assert shown["totals"]["done"] == 2
    assert shown["left_s"] is not None
    assert any("there is no worker" in warning for warning in shown["warnings"])


def test_status_is_plain_text_where_there_is_no_terminal(
    root: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("status")
    shown = capsys.readouterr().out
    assert "1 pending" in shown
    assert "\x1b" not in shown


def test_status_is_a_live_view_on_a_terminal(root: Path) -> None:
    import io

    from rich.console import Console

    from fleetcraft.cli.status_view import print_status, watch_status

    work(root)
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    observer = Observer(Spool.open(root))
    print_status(observer.look(), console)
    watch_status(observer, 0.01, Spool.open(root).clock, console)
    assert "greet" in output.getvalue()
    assert "1 of 1" in output.getvalue()


def test_watching_goes_on_as_long_as_a_controller_may_put_more_in(
    root: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    work(root)
    with Writer(Spool.open(root), "controller") as writer:
        control = Controllership(writer)
        overview = Observer(Spool.open(root)).look()
        assert overview.goes_on
        control.release()
    assert not Observer(Spool.open(root)).look().goes_on


def test_watching_ends_when_everything_has_ended(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    work(root)
    capsys.readouterr()
    run("status", "--watch", "--interval", "0.01")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_no_worker_can_serve_is_said_at_once(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("enqueue", "x", "big", "--threads", "500")
    with Writer(Spool.open(root), "n1") as writer:
        station = Station(writer)
        from fleetcraft.spool import Lease

        station.beat(Lease("", 0, "", "", capacity={"threads": 4, "mem_mb": 100}, free={"threads": 4, "mem_mb": 100}))
        capsys.readouterr()
        run("status")
        assert "fit no present worker: it asks for threads=500, the node has 4" in capsys.readouterr().out
        run("explain", "big")
        assert "it asks for threads=500, the node has 4" in capsys.readouterr().out
        run("explain", "hello")
        assert "it has room" in capsys.readouterr().out
        run("drain", writer.host, "--reason", "maintenance")
        capsys.readouterr()
        run("explain", "hello")
        assert "it is drained: maintenance" in capsys.readouterr().out


def test_explain_tells_the_history_of_a_task_and_the_end_of_its_log(
    root: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("explain", "hello")
    assert "there is no worker" in capsys.readouterr().out
    work(root, Outcome.FAILED)
    capsys.readouterr()
    run("explain", "hello")
    shown = capsys.readouterr().out
    assert "hello is failed, attempt 1" in shown
    assert "Attempt 1 on n1: failed, as told." in shown


def test_explain_of_an_unknown_task_names_the_nearest(root: Path, run: Run) -> None:
    with pytest.raises(BadInput, match="Did you mean 'hello'"):
        run("explain", "helo")


def test_cancel_says_what_became_of_each(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cancel", "hello", "nobody") == 1
    shown = capsys.readouterr().out
    assert "hello: cancelled" in shown
    assert "nobody: unknown" in shown
    assert run("cancel", "hello") == 0
    assert "had ended already" in capsys.readouterr().out


def test_abort_and_drain_can_be_taken_back(root: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("abort", "--reason", "wrong seed")
    run("drain", "n7")
    run("status")
    shown = capsys.readouterr().out
    assert "aborted (wrong seed)" in shown
    assert "n7 is drained" in shown
    run("abort", "--resume")
    run("drain", "n7", "--lift")
    capsys.readouterr()
    run("status")
    shown = capsys.readouterr().out
    assert "aborted" not in shown
    assert "drained" not in shown


def test_reap_takes_back_what_the_operator_knows_to_be_gone(
    root: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(Spool.open(root), "n9", host="n9", boot="elsewhere")
    station = Station(writer)
    station.claim(lambda request: True, lambda claim: None, 1)
    run("reap", "--stale", "0.2")
    assert f"say --gone {station.name}" in capsys.readouterr().out
    run("reap", "--stale", "0.2", "--gone", station.name)
    assert "hello: attempt 1 taken back, now pending" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("status", "--spool", "/no/such"), ("worker", "--identity", "x"), ("worker", "--capacity", "x"), ("drain", "a/b")],
)
def test_bad_input_is_explained(root: Path, run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises(FleetcraftError):
        run(*arguments)


def test_a_spool_that_is_missing_is_named(run: Run) -> None:
    with pytest.raises(BadSpool, match=r"spool\.json is missing"):
        run("status")


def test_the_spool_of_the_campaign_in_this_directory_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLEETCRAFT_SPOOL", raising=False)
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    commands.register(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["status"])
    with pytest.raises(BadInput, match="this directory has none"):
        arguments.run(arguments)
    Spool.create(tmp_path / SPOOLS / "first", "first")
    assert arguments.run(arguments) == 0
    assert capsys.readouterr().out.startswith("first: no tasks")
    Spool.create(tmp_path / SPOOLS / "second", "second")
    with pytest.raises(BadInput, match=r"several: .*first, .*second"):
        arguments.run(arguments)
