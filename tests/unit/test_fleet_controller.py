"""The controller against a Slurm that answers as it is told: what follows from each answer, and from none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from spool_doubles import HandClock

from fleetcraft.fleet.controller import FleetController, release
from fleetcraft.fleet.errors import FleetStopped
from fleetcraft.fleet.records import Records
from fleetcraft.fleet.script import Software
from fleetcraft.fleet.settings import FleetSettings
from fleetcraft.fleet.slurm import Answer, Slurm
from fleetcraft.ground.errors import BadInput
from fleetcraft.spool import (
    Lease,
    Liveness,
    Producer,
    Reaper,
    Request,
    Spool,
    Station,
    TaskSpec,
    Verdict,
    Writer,
    read_leases,
)

HEADER = "JOBID|STATE|NODES|TIME_LEFT|NODELIST|PARTITION|REASON|NAME"


class FakeSlurm:
    """Keeps jobs as rows, and notes what it is asked."""

    def __init__(self) -> None:
        self.states: dict[int, str] = {}
        self.asked: list[str] = []
        self.cancelled: list[list[str]] = []
        self.answer: Answer | None = None

    def __call__(self, command: Sequence[str], timeout_s: float) -> Answer:
        program = command[0]
        self.asked.append(program if "--version" not in command else "version")
        if program == "squeue":
            if self.answer is not None:
                return self.answer
            rows = [f"{job}|{state}|2|1:00:00|n[1-2]|p|None|x" for job, state in self.states.items()]
            return Answer(0, "\n".join([HEADER, *rows]) + "\n", "")
        if program == "sbatch" and "--parsable" in command:
            number = 100 + len(self.states)
            self.states[number] = "PENDING"
            return Answer(0, f"{number}\n", "")
        if program == "scancel":
            self.cancelled.append(list(command[1:]))
            if "--signal=TERM" not in command:
                self.states |= dict.fromkeys(map(int, command[1:]), "CANCELLED")
        return Answer(0, "", "")


class Bench:
    """A controller, its spool with four tasks, and the clock."""

    def __init__(self, directory: Path):
        self.clock, self.slurm, self.said = HandClock(), FakeSlurm(), list[str]()
        self.spool = Spool.create(directory / "spool", "test", clock=self.clock)
        self.fleet = FleetSettings.model_validate(
            {
                "lanes": {
                    "main": {
                        "partition": "p",
                        "account": None,
                        "nodes": {"min": 1, "max": 2},
                        "walltime_min": 120,
                        "node": {"cores": 2, "memory_mb": 4000},
                    }
                },
                "site": {"nodes": 4, "poll_s": 10},
                "workers": {"caches": "/caches"},
            }
        )
        with Writer(self.spool, "producer") as writer:
            tasks = [TaskSpec(f"t{index}", ("true",), "/", Request(runtime_s=600)) for index in range(4)]
            Producer(writer).enqueue(tasks)
        self.controller = self.new()

    def new(self) -> FleetController:
        return FleetController(
            self.spool,
            self.fleet,
            Software("/usr/bin/python3"),
            lambda worker, lease: Liveness(Verdict.UNKNOWN),
            runner=self.slurm,
            say=self.said.append,
        )

    def step(self) -> None:
        """The next interval."""
        self.clock.sleep(10)
        self.controller.step()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_work_is_submitted_for_once_and_slurm_asked_once_an_interval(bench: Bench) -> None:
    bench.step()
    assert bench.slurm.states == {100: "PENDING"}
    for _ in range(20):
        bench.controller.step()
    assert bench.slurm.asked.count("squeue") == 1
    bench.step()
    assert bench.slurm.states == {100: "PENDING"}
    assert bench.slurm.asked.count("squeue") == 2


def test_without_work_slurm_is_not_asked_at_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    empty = Spool.create(tmp_path / "empty", "test", clock=bench.clock)
    bench.spool = empty
    bench.controller = bench.new()
    bench.slurm.asked.clear()
    for _ in range(5):
        bench.step()
    assert bench.slurm.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller"),
        Answer(0, "", ""),
        Answer(0, "Invalid job id specified\n", ""),
        Answer(0, f"{HEADER}\n100|RUN", ""),
    ],
)
def test_no_answer_and_garbage_end_nothing_and_submit_nothing(bench: Bench, answer: Answer) -> None:
    bench.step()
    bench.slurm.answer = answer
    for _ in range(5):
        bench.step()
    assert [record.state for record in bench.controller.living] == ["submitted"]
    assert bench.slurm.states == {100: "PENDING"}
    assert sum("Nothing is submitted meanwhile" in sentence for sentence in bench.said) == 1


def test_a_state_that_nobody_knows_is_told_of_and_ends_nothing(bench: Bench) -> None:
    bench.step()
    bench.slurm.states[100] = "HIBERNATING"
    for _ in range(3):
        bench.step()
    assert len(bench.controller.living) == 1
    assert sum("HIBERNATING" in sentence for sentence in bench.said) == 1


def test_a_preempted_allocation_is_followed_by_another(bench: Bench) -> None:
    bench.step()
    bench.slurm.states[100] = "PREEMPTED"
    bench.step()
    assert [record.ending for record in Records(bench.spool).read()][:1] == ["preempted"]
    assert bench.slurm.states[101] == "PENDING"


def test_allocations_that_come_to_nothing_are_not_submitted_without_end(bench: Bench) -> None:
    def fail_always() -> None:
        for _ in range(20):
            bench.step()
            bench.slurm.states = dict.fromkeys(bench.slurm.states, "FAILED")

    with pytest.raises(FleetStopped, match="3 allocations in a row ended before any worker came up"):
        fail_always()
    assert len(bench.slurm.states) == 3


def test_a_restarted_controller_takes_living_allocations_over(bench: Bench) -> None:
    bench.step()
    bench.controller.close()
    bench.controller = bench.new()
    bench.step()
    assert bench.slurm.states == {100: "PENDING"}
    assert [record.job for record in bench.controller.living] == [100]


def test_stopping_cancels_exactly_its_own_allocations(bench: Bench) -> None:
    bench.slurm.states[7] = "RUNNING"
    bench.step()
    bench.controller.stop(lambda: None)
    assert bench.slurm.states == {7: "RUNNING", 101: "CANCELLED"}
    assert [record.ending for record in Records(bench.spool).read()] == ["released"]


def worker_of(bench: Bench, writer: Writer, **fields: str) -> Station:
    """A worker that serves in the only allocation."""
    bench.slurm.states[100] = "RUNNING"
    identity = {"fleet": "slurm", "allocation": bench.controller.living[0].token, "job": 100, "step": "0", **fields}
    return Station(writer, Lease("", 0, "n1", "boot", identity=identity))


def test_at_the_end_workers_are_asked_to_leave_before_their_allocation_is_cancelled(bench: Bench) -> None:
    bench.step()
    with Writer(bench.spool, "n1", host="n1", boot="boot") as writer:
        station = worker_of(bench, writer)

        def leave_in_a_while() -> None:
            if bench.slurm.cancelled and bench.clock.monotonic() > began_s + 12:
                station.leave()

        began_s = bench.clock.monotonic()
        bench.controller.stop(leave_in_a_while)
    assert bench.slurm.cancelled == [["--signal=TERM", "100.0"], ["100"]]
    assert 12 < bench.clock.monotonic() - began_s < 14


def test_at_the_end_a_worker_that_does_not_leave_is_cancelled_and_taken_for_gone_by_slurms_word_alone(
    bench: Bench,
) -> None:
    bench.step()
    with Writer(bench.spool, "n1", host="n1", boot="boot") as writer, Writer(bench.spool, "controller") as controller:
        station = worker_of(bench, writer)
        assert len(station.claim(lambda request: True, lambda claim: None, 2)) == 2
        reaper = Reaper(controller, bench.controller.oracle, bench.controller.stale_s)
        bench.controller.stop(reaper.step)
    assert bench.slurm.cancelled == [["--signal=TERM", "100.0"], ["100"]]
    assert read_leases(bench.spool) == {}
    assert not list(bench.spool.layout.running.glob("*"))


def test_at_the_end_it_is_told_whose_end_nobody_knows(bench: Bench) -> None:
    bench.step()
    with Writer(bench.spool, "n1", host="n1", boot="boot") as writer:
        station = worker_of(bench, writer)
        began_s = bench.clock.monotonic()
        with pytest.raises(FleetStopped, match=f"nobody knows yet .*{station.name}"):
            bench.controller.stop(lambda: None)
    assert bench.slurm.states[100] == "CANCELLED"
    assert bench.clock.monotonic() - began_s < 200


def test_silence_is_put_up_with_for_an_hour_while_nobody_works(bench: Bench) -> None:
    def silent(command: Sequence[str], timeout_s: float) -> Answer:
        if "--version" in command:
            return Answer(0, "", "")
        raise subprocess.TimeoutExpired(list(command), timeout_s)

    bench.slurm = silent  # type: ignore[assignment]
    bench.controller = bench.new()
    with pytest.raises(FleetStopped, match="has not answered for"):
        bench.steps(400)
    assert bench.clock.monotonic() > 1000 + 3600


def test_only_living_allocations_of_the_spool_can_be_released(bench: Bench) -> None:
    bench.step()
    slurm = Slurm(bench.clock, bench.slurm)
    with pytest.raises(BadInput, match="no living allocation"):
        release(bench.spool, slurm, [7])
    assert release(bench.spool, slurm) == ["job 100: cancelled"]
    assert release(bench.spool, slurm) == ["no allocation lives"]


def test_values_of_a_fleet_file_reach_the_scripts_as_they_are(bench: Bench) -> None:
    workers = bench.fleet.workers.model_copy(update={"environment": {"A": "it's $HOME; `rm`"}})
    bench.fleet = bench.fleet.model_copy(update={"workers": workers})
    bench.controller = bench.new()
    bench.step()
    directory = next((bench.spool.root / "fleet").iterdir())
    for name in ("allocation.sh", "worker.sh"):
        subprocess.run(["bash", "-n", str(directory / name)], check=True)
    line = next(text for text in (directory / "worker.sh").read_text().splitlines() if text.startswith("export A="))
    said = subprocess.run(["bash", "-c", f'{line}; printf %s "$A"'], capture_output=True, text=True, check=True)
    assert said.stdout == "it's $HOME; `rm`"
