"""Allocations on a real Slurm: they come when there is work, serve it, and end."""

from __future__ import annotations

from pathlib import Path

from fleet_runs import campaign
from slurm_cluster import NODES, SlurmCluster

from fleetcraft.spool import State


def test_one_job_of_four_workers_serves_many_tasks_and_ends_when_they_are_done(
    cluster: SlurmCluster, directory: Path
) -> None:
    before = len(cluster.all_jobs())
    with campaign(directory, cluster) as run:
        run.enqueue({f"t{index}": "sleep 0.2; env > env.$FLEETCRAFT_TASK" for index in range(40)})
        results = run.finish(40)
        assert {result.state for result in results.values()} == {State.DONE}
        assert {result.ending.host for result in results.values() if result.ending} == set(NODES)
        run.run_dry()
        assert len(cluster.all_jobs()) - before == 1
        assert [record.state for record in run.records()] == ["ended"]
        run.check()
