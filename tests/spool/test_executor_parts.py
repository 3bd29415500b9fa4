"""The parts of the executor, without Snakemake."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.machine import host_name
from fleetcraft.spool import (
    Attempt,
    Outcome,
    Producer,
    Result,
    ResultScanner,
    Spool,
    SpoolBusy,
    State,
    Station,
    TaskSpec,
    Writer,
    abort,
    survey,
)
from fleetcraft.spool.leases import Lease
from fleetcraft.worker.inventory import Inventory
from fleetcraft.worker.liveness import LocalOracle
from snakemake_executor_plugin_spool.command import Commands
from snakemake_executor_plugin_spool.executor import Executor
from snakemake_executor_plugin_spool.failure import describe_failure
from snakemake_executor_plugin_spool.fleet import FleetFailed, LocalFleet, local_capacities
from snakemake_executor_plugin_spool.request import priority_of, request_of
from snakemake_executor_plugin_spool.session import MAKER, Session
from snakemake_executor_plugin_spool.sources import freeze


@dataclass
class Job:
    """What the parts look at of Snakemake's jobs."""

    resources: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    priority: int = 0
    name: str = "rule"
    inputs: tuple[str, ...] = ()

    def get_wait_for_files(self) -> list[str]:
        return list(self.inputs)


# ------------------------------------------------------------------ the executor itself


def test_the_waiting_thread_may_look_before_anything_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(executor: Executor) -> list[Any]:
        return [info async for info in executor.check_active_jobs([])]

    looks = []

    def base(executor: Executor, workflow: Any, logger: Any) -> None:
        looks.append(asyncio.run(look(executor)))

    monkeypatch.setattr(RemoteExecutor, "__init__", base)
    Executor(None, None)
    assert looks == [[]]


# ------------------------------------------------------------------ requests


def test_resources_become_a_request() -> None:
    resources = {
        "mem_mb": 4000,
        "gpus": 2,
        "gpu_mem_mb": 40000,
        "runtime": 90,
        "node_access": "exclusive",
        "lane": "big",
    }
    request = request_of(Job(resources, threads=8), 1440)
    assert request.class_name == "c8-m4000-g2-v40000-r5400-n1-exclusive-big"
    assert request_of(Job({}), 1440).class_name == "c1-m0-g0-v0-r86400-n1-shared"


@pytest.mark.parametrize(
    "resources", [{"node_access": "alone"}, {"gpus": "two"}, {"runtime": 0}, {"lane": "no spaces"}, {"mem_mb": True}]
)
def test_a_resource_that_makes_no_sense_is_named_with_its_rule(resources: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        request_of(Job(resources, name="bad_rule"), 60)
    assert "bad_rule" in str(caught.value)
    assert next(iter(resources)).removesuffix("time").replace("node_", "") in str(caught.value)


def test_priorities_stay_in_their_order_and_range() -> None:
    assert [priority_of(Job(priority=number)) for number in (-9000, -1, 0, 1, 9000)] == [0, 499, 500, 501, 999]


# ------------------------------------------------------------------ commands


def test_many_inputs_are_listed_in_a_file(tmp_path: Path) -> None:
    factory = SimpleNamespace(precommand=lambda **_: "", general_args=lambda **_: "--force --config a='b c'")
    sources = SimpleNamespace(snakefile=tmp_path / "Snakefile", configfiles=(tmp_path / "c.yaml",))
    commands = Commands(SimpleNamespace(spawned_job_args_factory=factory), None, sources, tmp_path / "lists")  # type: ignore[arg-type]
    few = commands.command(Job(inputs=("in put",)), "--target-jobs 'a:i=1'", "task-1")
    assert few[:4] == (sys.executable, "-P", "-m", "snakemake")
    assert few[few.index("--wait-for-files") + 1] == "in put"
    assert few[few.index("--target-jobs") + 1] == "a:i=1"
    assert few[few.index("--config") + 1] == "a=b c"
    many = commands.command(Job(inputs=tuple(f"{number}.txt" for number in range(1000))), "", "task-2")
    listed = Path(many[many.index("--wait-for-files-file") + 1])
    assert listed.read_text().splitlines()[-1] == "999.txt"
    assert len(many) < 30


# ------------------------------------------------------------------ sources


def workflow_in(directory: Path) -> Any:
    """A workflow, as far as its sources go."""
    (directory / "scripts/pycache").mkdir(parents=True)
    (directory / "scripts/run.py").write_text("one")
    (directory / "scripts/__pycache__").mkdir()
    (directory / "scripts/__pycache__/run.pyc").write_text("compiled")
    (directory / "Snakefile").write_text("rule all: pass")
    (directory / "data.bin").write_text("not a source")
    (directory / "experiment.yaml").write_text("name: x")
    included = [SimpleNamespace(get_path_or_uri=lambda secret_free: str(directory / "Snakefile"))]
    return SimpleNamespace(
        main_snakefile=str(directory / "Snakefile"),
        included=included,
        rules=[],
        overwrite_configfiles=[directory / "experiment.yaml"],
        configfiles=[directory / "experiment.yaml"],
    )


def test_a_copy_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    workflow = workflow_in(tmp_path / "checkout")
    first = freeze(workflow, tmp_path / "copies")
    again = freeze(workflow, tmp_path / "copies")
    assert again == first
    assert (first.copy / "scripts/run.py").read_text() == "one"
    assert not list(first.copy.rglob("*.pyc"))
    assert not (first.copy / "data.bin").exists()
    assert [file.read_text() for file in first.configfiles] == ["name: x"]
    (tmp_path / "checkout/scripts/run.py").write_text("two")
    assert (first.copy / "scripts/run.py").read_text() == "one"
    assert freeze(workflow, tmp_path / "copies").digest != first.digest
    (tmp_path / "checkout/scripts/run.py").write_text("one")
    (tmp_path / "checkout/experiment.yaml").write_text("name: y")
    assert freeze(workflow, tmp_path / "copies").digest != first.digest


def test_modules_come_from_the_copy(tmp_path: Path) -> None:
    sources = freeze(workflow_in(tmp_path / "checkout"), tmp_path / "copies")
    present = os.pathsep.join([str(tmp_path / "checkout/scripts"), "/elsewhere"])
    assert sources.python_path(present) == os.pathsep.join([str(sources.copy / "scripts"), "/elsewhere"])
    assert sources.python_path(None) == str(sources.copy / "scripts")


# ------------------------------------------------------------------ failures


def ending(cause: str, exit_code: int | None = 1) -> Attempt:
    return Attempt(2, Outcome.FAILED, cause, "worker-1", "node-7", exit_code=exit_code, log="logs/a.log")


def test_a_failure_tells_where_why_and_how_its_log_ends(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_bytes(b"".join(b"line %d\n" % number for number in range(1000)) + b"last \xff\n")
    result = Result("task", State.FAILED, 2, tmp_path / "x", ending("exit code 1"), None, "exit code 1")
    text = describe_failure(result, tmp_path, [str(tmp_path / "no.log")])
    assert "Task task, attempt 2: exit code 1." in text
    assert "Failure class: unclassified.\nIt ran on node-7, worker worker-1." in text
    assert "    last \ufffd" in text
    assert "line 990" in text
    assert "line 900" not in text


# ------------------------------------------------------------------ sessions


def spec(task_id: str, fingerprint: str = "same", member: str | None = None) -> TaskSpec:
    labels = {"maker": MAKER, "fingerprint": fingerprint, "members": [member or task_id]}
    return TaskSpec(task_id, ("true",), "/tmp", labels=labels)


def execute(spool: Spool, outcome: Outcome = Outcome.SUCCEEDED) -> list[str]:
    """Be a worker that runs all that waits; the ids."""
    ids = []
    with Writer(spool, "node") as writer:
        station = Station(writer, Lease("", 0, "node", "boot"))
        while claims := station.claim(lambda request: True, lambda claim: None, 10, frozenset()):
            ids += [claim.name.id for claim in claims]
            station.end([(claim, station.attempt(claim, outcome, outcome.value)) for claim in claims])
        station.leave()
    return ids


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool.create(tmp_path / "spool", "test")


def test_a_session_hands_out_each_result_once(spool: Spool) -> None:
    session = Session(spool)
    session.submit([spec("a"), spec("b")], ())
    assert session.take({"a", "b"}) == {}
    assert sorted(execute(spool)) == ["a", "b"]
    assert session.look()
    assert {key: result.state for key, result in session.take({"a", "b"}).items()} == {"a": State.DONE, "b": State.DONE}
    assert not session.look()
    assert session.take({"a", "b"}) == {}
    session.close()


def test_a_failed_task_that_is_submitted_again_runs_once_more(spool: Spool) -> None:
    session = Session(spool)
    for attempt in (1, 2):
        session.submit([spec("a")], ())
        assert execute(spool, Outcome.FAILED) == ["a"]
        session.look()
        assert session.take({"a"})["a"].attempt == attempt
    session.close()


def test_one_session_at_a_time(spool: Spool) -> None:
    session = Session(spool)
    with pytest.raises(SpoolBusy):
        Session(spool)
    session.close()
    Session(spool).close()


def test_what_waits_is_adopted_if_it_is_the_same_and_replaced_if_not(spool: Spool) -> None:
    first = Session(spool)
    first.submit([spec("same"), spec("other", "old"), spec("later"), spec("unwanted")], ())
    first.close()
    with Writer(spool, "operator") as writer:
        Producer(writer).enqueue([TaskSpec("by-hand", ("true",), "/tmp")])
    second = Session(spool)
    # `later` has an input that is to be made anew.
    second.adopt_from({"same": frozenset(), "other": frozenset(), "later": frozenset({"same"})})
    states = {task: place.state for task, place in survey(spool).items()}
    assert states == {
        "same": State.PENDING,
        "other": State.PENDING,
        "by-hand": State.PENDING,
        "later": State.FAILED,
        "unwanted": State.FAILED,
    }
    second.submit([spec("same"), spec("other", "new")], ())
    assert sorted(execute(spool)) == ["by-hand", "other", "same"]
    second.look()
    results = second.take({"same", "other"})
    assert results["same"].attempt == 1
    assert results["other"].attempt == 2
    second.close()


@pytest.mark.parametrize("known_to_have_ended", [True, False])
def test_a_result_that_nobody_saw_counts_only_while_its_job_is_known_to_lack_it(
    spool: Spool, known_to_have_ended: bool
) -> None:
    first = Session(spool)
    first.submit([spec("a")], ())
    first.close()
    execute(spool)
    second = Session(spool)
    second.adopt_from({"a": frozenset()})
    second.submit([spec("a")], {"a"} if known_to_have_ended else ())
    assert execute(spool) == ([] if known_to_have_ended else ["a"])
    second.look()
    assert second.take({"a"})["a"].state is State.DONE
    second.close()


def test_cancelling_leaves_nothing_waiting(spool: Spool) -> None:
    session = Session(spool)
    session.submit([spec("a"), spec("b")], ())
    assert session.cancel_all() == set()
    assert {place.state for place in survey(spool).values()} == {State.FAILED}
    session.close()


# ------------------------------------------------------------------ fleets


def test_what_is_not_said_is_shared_equally() -> None:
    capacities = local_capacities(2, 3, 2, 500)
    assert [(c.threads, c.mem_mb, len(c.gpus)) for c in capacities] == [(3, 500, 2), (3, 500, 2)]
    uuids = [gpu.uuid for capacity in capacities for gpu in capacity.gpus]
    assert len(set(uuids)) == 4
    cores = len(os.sched_getaffinity(0))
    assert local_capacities(1, None, None)[0].threads == cores
    assert local_capacities(10 * cores, None, None)[0].threads == 1


def fleet(spool: Spool, **environment: str) -> LocalFleet:
    variables = {**os.environ, **environment}
    return LocalFleet(spool, [Inventory(1, 100)], variables, 30.0, LocalOracle(SystemClock()))


def tend_on(fleet: LocalFleet) -> None:
    """As the executor does as long as there is work; bounded."""
    for _ in range(2000):
        fleet.tend()
        SystemClock().sleep(0.01)


def test_workers_that_cannot_start_are_given_up_with_what_they_said(spool: Spool) -> None:
    broken = fleet(spool, PYTHONPATH="", PYTHONSTARTUP="", PYTHONHOME="/nonexistent")
    with pytest.raises(FleetFailed, match="as soon as they start") as caught:
        tend_on(broken)
    assert "encodings" in str(caught.value)
    broken.stop(lambda: None)


def test_no_worker_is_started_on_an_aborted_spool(spool: Spool) -> None:
    abort(spool, "the disk is dying")
    idle = fleet(spool)
    with pytest.raises(FleetFailed, match="the disk is dying"):
        idle.tend()
    assert not (spool.layout.logs / "workers" / f"{host_name()}-0.log").exists()
    idle.stop(lambda: None)


def test_the_results_are_all_there_for_whoever_reads_them_later(spool: Spool) -> None:
    session = Session(spool)
    session.submit([spec(f"task-{number}") for number in range(1200)], ())
    assert len(execute(spool)) == 1200
    session.look()
    assert len(session.take({f"task-{number}" for number in range(1200)})) == 1200
    session.close()
    assert len(ResultScanner(spool).poll()) == 1200
