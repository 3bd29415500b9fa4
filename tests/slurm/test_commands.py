"""The operators' commands for fleets, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_runs import ROOT, campaign, fleet_document, lane
from slurm_cluster import SlurmCluster

from fleetcraft.cli.main import main
from fleetcraft.fleet.load import load_fleet
from fleetcraft.fleet.records import Record
from fleetcraft.fleet.script import render_allocation
from fleetcraft.spool import State


@pytest.fixture(autouse=True)
def slurm_of_the_tests(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FLEETCRAFT_ACCOUNT", "test")
    monkeypatch.setenv("SCRATCH", "/scratch")


def test_a_plan_says_what_would_be_submitted_and_submits_nothing(
    cluster: SlurmCluster, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(cluster.all_jobs())
    budget = {"command": "echo 7", "headroom": 2}
    with campaign(directory, cluster, fleet_document(directory, budget=budget)) as run:
        run.enqueue({f"t{index}": "true" for index in range(40)})
        assert main(["fleet", "plan", "--spool", str(run.spool.root), "--fleet", str(run.file)]) == 0
        said = capsys.readouterr().out
        assert "40 tasks wait or run" in said
        assert "main: one job of 4 nodes for 10 minutes, at most 0.7 node hours, cost 0.7" in said
        assert "5.0 are left of the budget" in said
    assert len(cluster.all_jobs()) == before


def test_allocations_are_listed_and_released(
    cluster: SlurmCluster, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=2)})) as run:
        spool = ["--spool", str(run.spool.root)]
        assert main(["fleet", "list", *spool]) == 0
        assert "there were no allocations" in capsys.readouterr().out
        run.enqueue({f"t{index}": "touch ran.$FLEETCRAFT_TASK; sleep 60" for index in range(4)})
        run.run_until(lambda: len(list(directory.glob("ran.*"))) == 4)
        run.controller.close()
        main(["fleet", "list", *spool])
        assert "2 nodes     10 min  2 workers serve" in capsys.readouterr().out
        assert main(["fleet", "release", *spool, "999999"]) == 1
        assert "no living allocation" in capsys.readouterr().err
        assert main(["fleet", "release", *spool]) == 0
        assert "cancelled" in capsys.readouterr().out
        run.controller = run.new_controller()
        run.run_until(lambda: run.records()[0].state == "ended")


def test_a_drained_allocation_finishes_what_it_runs(
    cluster: SlurmCluster, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=1)})) as run:
        run.enqueue({f"t{index}": "touch ran.$FLEETCRAFT_TASK; sleep 4" for index in range(2)})
        run.run_until(lambda: len(list(directory.glob("ran.*"))) == 2)
        assert main(["fleet", "release", "--drain", "--spool", str(run.spool.root)]) == 0
        assert "finish what they run" in capsys.readouterr().out
        assert {r.state for r in run.finish(2).values()} == {State.DONE}
        run.run_dry()


@pytest.mark.parametrize("profile", ["vista", "ls6"])
def test_every_lane_of_a_profile_makes_a_script_that_slurm_takes(
    cluster: SlurmCluster, directory: Path, profile: str
) -> None:
    """Partitions are mapped, and what the test cluster doesn't have is cut down to it."""
    fleet = load_fleet(ROOT / "profiles" / profile / "fleet.yaml")
    for name, shipped in fleet.lanes.items():
        mapped = shipped.model_copy(update={"partition": "main", "walltime_min": min(shipped.walltime_min, 60)})
        record = Record("tok", name, min(4, shipped.nodes.max), 60, 1.0, "x", "submitting", 0.0)
        script = directory / f"{name}.sh"
        script.write_text(render_allocation(record, mapped, directory))
        assert "to start at" in cluster.run("bash", "-c", f"sbatch --test-only {script} 2>&1")
