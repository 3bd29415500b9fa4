"""Head jobs: a campaign that outlasts the walltime of its job goes on in the next one, until it is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from campaigns import BIN
from fleet_runs import fleet_document, lane
from slurm_cluster import SlurmCluster
from snakemake_runs import Workflow, wait_until

from fleetcraft.spool import Spool, read_leases

HEAD = """
    rule all:
        input: expand("out/{i}.txt", i=range(10))
    rule one:
        output: "out/{i}.txt"
        threads: 2
        resources: mem_mb=100, runtime=1
        shell: "sleep 4; echo {wildcards.i} $SLURM_JOB_ID >> ran; touch {output}"
    """


@pytest.fixture
def workflow(tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workflow]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "local").mkdir()
    # Of two minutes, tasks of one minute can begin in the first thirty seconds.
    short = lane(nodes=1, walltime_min=2, walltime_margin_s=30)
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet_document(tmp_path, {"main": short})))
    with Workflow(tmp_path).ended_afterwards() as workflow:
        yield workflow


def launch(workflow: Workflow, cluster: SlurmCluster, *arguments: str) -> str:
    """Submit a head job; its number."""
    command = [str(BIN / "fleetcraft"), "launch", "--fleet", "fleet.yaml", *arguments, "--", "--latency-wait", "2"]
    said = cluster.run(*command, directory=workflow.directory)
    return re.match(r"job (\d+) runs", said)[1]  # type: ignore[index]


def spool_of(workflow: Workflow) -> Spool:
    return Spool.open(next((workflow.directory / ".snakemake/spool").iterdir()))


def test_a_head_job_that_ends_before_its_work_is_followed_by_another_until_all_is_done(
    workflow: Workflow, cluster: SlurmCluster
) -> None:
    workflow.write("Snakefile", HEAD)
    before = len(cluster.all_jobs())
    first = launch(workflow, cluster)
    together = []

    def over() -> bool:
        together.append(len(cluster.jobs()))
        return together[-1] == 0

    wait_until(over, 150)
    ran = [line.split() for line in workflow.lines("ran")]
    assert sorted(task for task, _ in ran) == [str(i) for i in range(10)]
    jobs = cluster.all_jobs()[before:]
    # In the order in which they were submitted, each with work of its own, and none after the last one.
    assert list(dict.fromkeys(job for _, job in ran)) == jobs
    assert jobs[0] == first
    assert len(jobs) >= 2
    # A head job submits the next one as the last thing it does.
    assert max(together) <= 2
    assert not read_leases(spool_of(workflow))
    assert not list(spool_of(workflow).layout.running.glob("*"))
    assert not list(spool_of(workflow).layout.pending.glob("*/*/*"))


def test_without_successors_left_a_head_job_is_the_last_one(workflow: Workflow, cluster: SlurmCluster) -> None:
    workflow.write("Snakefile", HEAD)
    before = len(cluster.all_jobs())
    launch(workflow, cluster, "--successors", "0")
    wait_until(lambda: not cluster.jobs(), 100)
    assert len(cluster.all_jobs()) - before == 1
    assert 0 < len(workflow.lines("ran")) < 10
    assert not read_leases(spool_of(workflow))
