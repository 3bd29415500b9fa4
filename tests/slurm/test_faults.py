"""What is lost is done again, once, and nothing of it counts against a task."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from fleet_runs import Campaign, campaign, codes, fleet_document, lane
from slurm_cluster import SlurmCluster
from snakemake_runs import wait_until

from fleetcraft.spool import CRASHED, Request, State, read_leases

WAIT = "echo x >> ran.$FLEETCRAFT_TASK; for i in $(seq 1000); do [ -e go ] && exit 0; sleep 0.1; done; exit 1"
"""Notes that it began, and ends well when `go` is there."""


AGENT = "$(cut --delimiter=' ' --fields=4 /proc/$PPID/stat)"
"""The worker, from within a task: the parent of the launcher, which is the task's."""


def begun(run: Campaign, count: int) -> bool:
    return len(list(run.directory.glob("ran.*"))) >= count


def all_done(run: Campaign, count: int) -> None:
    (run.directory / "go").touch()
    results = run.finish(count)
    assert {result.state for result in results.values()} == {State.DONE}, [r.problem for r in results.values()]
    run.check()


def test_tasks_of_a_cancelled_allocation_are_done_by_the_next_one(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster) as run:
        run.enqueue({f"t{index}": WAIT for index in range(6)})
        run.run_until(lambda: begun(run, 6))
        first = run.controller.living[0].job
        cluster.run("scancel", str(first))
        run.run_until(lambda: any(record.job not in (None, first) for record in run.controller.living))
        all_done(run, 6)
        assert codes(list(run.results.values())) == ["interrupted: worker stopped"] * 6 + ["succeeded: succeeded"] * 6
        assert run.records()[0].ending == "cancelled"


def test_a_cancelled_step_takes_no_other_one_with_it(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster) as run:
        exclusive = Request(runtime_s=60, access="exclusive")
        run.enqueue({f"t{index}": WAIT for index in range(4)}, request=exclusive)
        run.run_until(lambda: begun(run, 4))
        job = run.controller.living[0].job
        victim = next(step for step, node in cluster.steps(str(job)).items() if node == "n2")
        lost = next(task for task, node in run.running_on().items() if node == "n2")
        cluster.run("scancel", f"{job}.{victim}")
        run.run_until(lambda: bool(run.entries("worker gone")))
        assert [(e["of_host"], e["cause"]) for e in run.entries("worker gone")] == [("n2", "step cancelled")]
        assert cluster.jobs() == {str(job): "RUNNING"}
        all_done(run, 4)
        assert codes([run.results[lost]]) == ["lost: step cancelled", "succeeded: succeeded"]
        assert codes([r for r in run.results.values() if r.id != lost]) == ["succeeded: succeeded"] * 3


def test_a_node_that_is_lost_takes_no_other_one_with_it(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster) as run:
        exclusive = Request(runtime_s=60, access="exclusive")
        run.enqueue({f"t{index}": WAIT for index in range(4)}, request=exclusive)
        run.run_until(lambda: begun(run, 4))
        job = run.controller.living[0].job
        # Not the first one, on which the script of the allocation runs.
        lost = next(task for task, node in run.running_on().items() if node == "n3")
        cluster.kill_node("n3")
        run.run_until(lambda: bool(run.entries("worker gone")), 90)
        assert [(e["of_host"], e["cause"]) for e in run.entries("worker gone")] == [("n3", "node lost")]
        assert cluster.jobs() == {str(job): "RUNNING"}
        all_done(run, 4)
        assert codes([run.results[lost]]) == ["lost: node lost", "succeeded: succeeded"]


def test_a_worker_that_dies_of_its_task_is_told_from_one_that_slurm_ended(
    cluster: SlurmCluster, directory: Path
) -> None:
    """The task is tried once more, by itself, and convicted then."""
    murder = f"kill -KILL {AGENT} $PPID; sleep 2"
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=1)})) as run:
        run.enqueue({"murderer": murder})
        results = run.finish(1)
        assert results["murderer"].state is State.FAILED
        assert codes(list(results.values())) == [f"lost: {CRASHED}"] * 2


def test_what_the_walltime_ends_is_given_back_and_a_worker_that_stands_still_is_not_taken_for_gone(
    cluster: SlurmCluster, directory: Path
) -> None:
    """The walltime is shortened under two workers, one of which is suspended: its step is still there."""
    suspended = f"[ -e once ] || {{ touch once; kill -STOP {AGENT}; }}; " + WAIT
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=2)})) as run:
        exclusive = Request(runtime_s=300, access="exclusive")
        run.enqueue({"suspended": suspended, "mild": WAIT}, request=exclusive)
        run.run_until(lambda: begun(run, 2))
        first = run.controller.living[0].job
        cluster.run("scontrol", "update", f"JobId={first}", "TimeLimit=1")
        began_s = time.monotonic()
        run.run_until(lambda: time.monotonic() - began_s > 6 * run.controller.stale_s)
        assert run.entries("worker gone") == []
        run.run_until(lambda: any(record.job not in (None, first) for record in run.controller.living), 130)
        all_done(run, 2)
        assert codes(list(run.results.values())) == ["interrupted: worker stopped"] * 2 + ["succeeded: succeeded"] * 2


def test_claims_that_are_stranded_while_nobody_controls_are_found_by_the_next_controller(
    cluster: SlurmCluster, directory: Path
) -> None:
    """Tasks that don't end on TERM keep their workers from giving them back before Slurm kills everything."""
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=2)})) as run:
        exclusive = Request(runtime_s=60, access="exclusive")
        run.enqueue({f"t{index}": "trap '' TERM; " + WAIT for index in range(2)}, request=exclusive)
        run.run_until(lambda: begun(run, 2))
        run.controller.close()
        cluster.run("scancel", str(run.controller.living[0].job))
        wait_until(lambda: not cluster.jobs(), 40)
        assert len(list(run.spool.layout.running.glob("*/*"))) == 2
        run.controller = run.new_controller()
        run.run_until(lambda: len(run.entries("worker gone")) == 2)
        assert {e["cause"] for e in run.entries("worker gone")} <= {"allocation cancelled", "step cancelled"}
        all_done(run, 2)
        assert {outcome.split(":")[0] for outcome in codes(list(run.results.values()))} == {"lost", "succeeded"}


def test_a_worker_that_hangs_at_the_end_is_killed_and_what_it_had_is_taken_back(
    cluster: SlurmCluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetcraft.fleet.controller.LEAVING_S", 3.0)
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=2)})) as run:
        exclusive = Request(runtime_s=60, access="exclusive")
        run.enqueue({"hangs": "trap '' TERM; " + WAIT, "mild": WAIT}, request=exclusive)
        run.run_until(lambda: begun(run, 2))
        run.run_until(lambda: len(run.running_on()) == 2)
        node = run.running_on()["hangs"]
        agent = next(lease.processes[0][0] for lease in read_leases(run.spool).values() if lease.host == node)

        def suspend_again() -> None:
            # Slurm wakes whom it signals.
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGSTOP)
            run.reaper.step()

        run.controller.stop(suspend_again)
        assert not read_leases(run.spool)
        assert not list(run.spool.layout.running.glob("*"))
        assert [entry["of_host"] for entry in run.entries("worker gone")] == [node]
        wait_until(lambda: not cluster.jobs(), 10)
        run.controller = run.new_controller()
        all_done(run, 2)


def test_a_controller_of_slurm_that_is_down_makes_nobody_gone(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster) as run:
        run.enqueue({f"t{index}": WAIT for index in range(4)})
        run.run_until(lambda: begun(run, 4))
        cluster.stop_controller()
        silent_s = time.monotonic()
        run.run_until(lambda: time.monotonic() - silent_s > 12)
        assert any("Nothing is submitted meanwhile" in sentence for sentence in run.said)
        assert run.entries("worker gone") == []
        assert len(run.controller.living) == 1
        (directory / "go").touch()
        assert {r.state for r in run.finish(4).values()} == {State.DONE}
        cluster.start_controller()
        run.enqueue({"late": "true"})
        run.finish(5, 90)
        assert codes(list(run.results.values())) == ["succeeded: succeeded"] * 5
        run.check()


def test_a_node_that_the_site_drains_finishes_its_tasks_and_gets_no_new_ones(
    cluster: SlurmCluster, directory: Path
) -> None:
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=3)})) as run:
        cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
        run.enqueue({f"t{index}": "sleep 0.2" for index in range(12)})
        results = run.finish(12)
        assert {result.ending.host for result in results.values() if result.ending} == {"n1", "n3", "n4"}
        run.check()


def test_a_node_that_the_campaign_has_drained_is_not_asked_for_again(cluster: SlurmCluster, directory: Path) -> None:
    from fleetcraft.spool import drain

    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=3)})) as run:
        run.enqueue({"first": "true"})
        run.finish(1)
        run.run_dry()
        node = next(iter(run.results.values())).ending.host  # type: ignore[union-attr]
        drain(run.spool, node, "its GPU is broken")
        run.enqueue({f"t{index}": "sleep 0.2" for index in range(12)})
        results = run.finish(13)
        assert node not in {r.ending.host for r in results.values() if r.ending and r.id != "first"}


@pytest.mark.parametrize("answered", [True, False])
def test_a_controller_that_was_killed_while_it_submitted_finds_its_job(
    cluster: SlurmCluster, directory: Path, answered: bool
) -> None:
    """Whether or not sbatch had told the number: no second allocation is submitted, and the first one is used."""
    import subprocess

    from fleetcraft.fleet.slurm import Answer

    with campaign(directory, cluster) as run:
        real = run.runner

        def deaf(command, timeout_s: float) -> Answer:  # type: ignore[no-untyped-def]
            answer = real(command, timeout_s)
            if command[0] == "sbatch" and "--parsable" in command:
                raise subprocess.TimeoutExpired(command, timeout_s)
            return answer

        if not answered:
            run.controller.close()
            run.runner = deaf
            run.controller = run.new_controller()
        run.enqueue({f"t{index}": WAIT for index in range(4)})
        run.look()
        assert [record.job is None for record in run.controller.living] == [not answered]
        run.controller.close()
        run.runner = real
        run.controller = run.new_controller()
        run.run_until(lambda: begun(run, 4))
        all_done(run, 4)
        run.run_dry()
        assert len(run.records()) == 1
        assert run.records()[0].job is not None
