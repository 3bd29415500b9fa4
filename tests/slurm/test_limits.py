"""What a fleet may do: as many allocations, nodes, questions and hours as are allowed, and none without work."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from fleet_runs import campaign, codes, fleet_document, lane
from journal_checker import check_exclusive
from slurm_cluster import SlurmCluster

from fleetcraft.fleet.errors import FleetStopped
from fleetcraft.spool import Request, State


def test_a_campaign_longer_than_one_walltime_is_finished_by_one_allocation_after_the_other(
    cluster: SlurmCluster, directory: Path
) -> None:
    short = lane(nodes=1, walltime_min=1, walltime_margin_s=45, start_up_s=5)
    before = len(cluster.all_jobs())
    with campaign(directory, cluster, fleet_document(directory, {"main": short})) as run:
        run.enqueue({f"t{index:02d}": "sleep 2" for index in range(18)}, request=Request(runtime_s=4, mem_mb=100))
        together = []

        def finished() -> bool:
            together.append(len(cluster.jobs()))
            return len(run.results) == 18

        run.run_until(finished, 120)
        run.run_dry()
        assert {r.state for r in run.results.values()} == {State.DONE}
        # What ended meanwhile was no task: each was only begun where it had the time.
        assert codes(list(run.results.values())) == ["succeeded: succeeded"] * 18
        assert len(cluster.all_jobs()) - before == len(run.records()) >= 2
        assert max(together) == 1
        run.run_until(lambda: not cluster.jobs())
        run.check()


def test_slurm_is_asked_once_an_interval_and_never_for_a_task(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster, poll_s=2.0) as run:
        run.enqueue({f"t{index:03d}": "true" for index in range(200)})
        run.finish(200)
        run.run_dry()
        asked_s = [at_s for at_s, _ in cluster.calls("squeue")]
        assert len(asked_s) >= 3
        assert min(later - earlier for earlier, later in pairwise(asked_s)) > 1.9
        # One for the version, and one for the allocation.
        assert len(cluster.calls("sbatch")) == 2
        assert len(cluster.calls("scancel")) == 0
        assert cluster.calls("ssh") == []


def test_two_lanes_of_different_shape_run_side_by_side(cluster: SlurmCluster, directory: Path) -> None:
    wide, narrow = lane(nodes={"min": 3, "max": 3}), lane(nodes=1, partition="small", walltime_min=2)
    document = fleet_document(directory, {"wide": wide, "narrow": narrow})
    meet = "for i in $(seq 300); do [ $(ls here.* | wc -l) = 7 ] && exit 0; sleep 0.1; done; exit 1"
    meet = f"touch here.$FLEETCRAFT_TASK; {meet}"
    with campaign(directory, cluster, document) as run:
        run.enqueue({f"w{index}": meet for index in range(6)}, request=Request(runtime_s=60, lane="wide"))
        run.enqueue({"n0": meet}, request=Request(runtime_s=30, lane="narrow"))
        results = run.finish(7)
        # Each waits for all others: they can only have ended if both lanes ran at once.
        assert {r.state for r in results.values()} == {State.DONE}
        assert {(r.lane, r.nodes) for r in run.records()} == {("wide", 3), ("narrow", 1)}
        run.check()


def test_timed_tasks_have_their_node_to_themselves(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster) as run:
        run.enqueue({f"shared{index:02d}": "sleep 0.3" for index in range(40)})
        alone = Request(runtime_s=60, access="exclusive", gpus=1)
        run.enqueue({f"timed{index}": "sleep 0.5" for index in range(8)}, request=alone)
        run.finish(48)
        proof = check_exclusive(run.spool.root)
        assert proof.violations == []
        assert proof.exclusive == 8
        assert proof.overlapping_shared > 0
        run.check()


def test_an_exhausted_budget_stops_submitting_keeps_what_is_done_and_a_later_start_goes_on(
    cluster: SlurmCluster, directory: Path
) -> None:
    balance = directory / "balance"
    balance.write_text("100.5\n")
    budget = {"command": f"cat {balance}", "headroom": 100}
    document = fleet_document(directory, {"main": lane(nodes=2)}, budget=budget)
    with campaign(directory, cluster, document) as run:
        run.enqueue({"first": "true"})
        run.finish(1)
        run.run_dry()
        balance.write_text("100.1\n")
        run.enqueue({f"t{index}": "true" for index in range(4)})
        with pytest.raises(FleetStopped, match="budget is exhausted"):
            run.finish(5)
        assert len(run.records()) == 1
        assert run.results["first"].state is State.DONE
        run.controller.close()
        balance.write_text("1,000\n")
        run.controller = run.new_controller()
        assert {r.state for r in run.finish(5).values()} == {State.DONE}


def test_a_balance_that_is_no_number_stops_the_campaign_with_the_reason(cluster: SlurmCluster, directory: Path) -> None:
    budget = {"command": "echo You have 12 SU", "headroom": 1}
    with campaign(directory, cluster, fleet_document(directory, budget=budget)) as run:
        run.enqueue({"t": "true"})
        with pytest.raises(FleetStopped, match=r"must print one number .*You have 12 SU"):
            run.finish(1)
        assert run.records() == []


def test_a_lane_that_slurm_rejects_is_paused_and_its_message_shown(cluster: SlurmCluster, directory: Path) -> None:
    document = fleet_document(directory, {"main": lane(partition="nowhere")})
    with campaign(directory, cluster, document, poll_s=0.1) as run:
        run.enqueue({"t": "true"})
        with pytest.raises(FleetStopped, match=r"rejected 3 times in a row, .*invalid partition"):
            run.finish(1)
        assert len(cluster.calls("sbatch")) == 1 + 3


def test_workers_that_do_not_come_up_are_not_submitted_without_end(cluster: SlurmCluster, directory: Path) -> None:
    document = fleet_document(directory, {"main": lane(nodes=1)})
    document["workers"]["setup"] = ["echo no such module; exit 3"]
    with campaign(directory, cluster, document) as run:
        run.enqueue({"t": "true"})
        with pytest.raises(FleetStopped, match=r"(?s)3 allocations in a row ended before any worker .*no such module"):
            run.finish(1)
        assert len(run.records()) == 3


def test_a_step_can_be_started_beside_a_worker(cluster: SlurmCluster, directory: Path) -> None:
    """What gangs need: their step overlaps with the workers'."""
    with campaign(directory, cluster, fleet_document(directory, {"main": lane(nodes=2)})) as run:
        run.enqueue({f"t{i}": "touch ran.$FLEETCRAFT_TASK; sleep 3" for i in range(4)})
        run.run_until(lambda: len(list(directory.glob("ran.*"))) == 4)
        job = run.controller.living[0].job
        names = cluster.run("srun", f"--jobid={job}", "--overlap", "--nodes=2", "printenv", "SLURMD_NODENAME")
        assert sorted(names.split()) == sorted(set(run.running_on().values()))
        run.finish(4)


def test_the_variables_of_a_task_are_the_declared_ones(
    cluster: SlurmCluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", "/somewhere/else")
    monkeypatch.setenv("SECRET_OF_THE_LOGIN_SHELL", "1")
    document = fleet_document(directory)
    document["workers"]["environment"] = {"GREETING": 'it\'s a "good" day'}
    with campaign(directory, cluster, document) as run:
        write = "env > env.$FLEETCRAFT_TASK; ls -d $TMPDIR >> seen; touch $TMPDIR/mine"
        run.enqueue({"a": write, "b": write})
        run.finish(2)
        found = [
            dict(line.split("=", 1) for line in (directory / f"env.{task}").read_text().splitlines() if "=" in line)
            for task in "ab"
        ]
        for variables in found:
            caches = directory / "caches"
            assert variables["HF_HOME"] == f"{caches}/huggingface"
            assert variables["HF_HUB_CACHE"] == variables["TRANSFORMERS_CACHE"] == f"{caches}/huggingface/hub"
            assert variables["HF_DATASETS_CACHE"] == f"{caches}/huggingface/datasets"
            assert variables["TORCH_HOME"] == f"{caches}/torch"
            assert variables["VBENCH_CACHE_DIR"] == f"{caches}/vbench"
            assert variables["HF_HUB_OFFLINE"] == "1"
            assert variables["GREETING"] == 'it\'s a "good" day'
            assert "SECRET_OF_THE_LOGIN_SHELL" not in variables
        for name in ("TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            assert len({variables[name] for variables in found}) == 2
            assert all(variables[name].startswith(str(directory / "local")) for variables in found)
        assert len((directory / "seen").read_text().splitlines()) == 2
        run.run_dry()
        assert not [path for path in (directory / "local").rglob("*") if path.is_file()]


def test_workers_can_run_from_a_copy_of_the_software_on_the_node(cluster: SlurmCluster, directory: Path) -> None:
    import shutil
    import subprocess
    import sys

    shared = directory / "shared"
    (shared / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", shared)
    (shared / "bin/python").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    (shared / "lib").symlink_to(Path(sys.prefix) / "lib")
    archive = directory / "shared.tar.gz"
    subprocess.run(["tar", "-C", shared, "-czf", archive, "."], check=True)
    document = fleet_document(directory, {"main": lane(nodes=1)})
    document["workers"]["software"] = {"archive": str(archive), "replaces": str(shared)}
    with campaign(directory, cluster, document) as run:
        script = "import sys, os; open('python', 'w').write(sys.executable)"
        from fleetcraft.spool import Producer, TaskSpec

        spec = TaskSpec("t", (str(shared / "bin/python"), "-c", script), str(directory), Request(runtime_s=60))
        Producer(run.writer).enqueue([spec])
        assert run.finish(1)["t"].state is State.DONE
        assert (directory / "python").read_text().startswith(str(directory / "local"))
        run.run_dry()
        assert not [path for path in (directory / "local").rglob("*") if path.is_file()]
