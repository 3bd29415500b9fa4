"""Snakemake with the executor `spool` and a fleet on Slurm."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fleet_runs import fleet_document, lane
from slurm_cluster import SlurmCluster
from snakemake_runs import Workflow, wait_until

from fleetcraft.spool import read_leases

FAN = """
    rule all:
        input: expand("out/{i}.txt", i=range(12)), "timed.txt"
    rule one:
        output: "out/{i}.txt"
        resources: mem_mb=100, runtime=1
        shell: "sleep 0.3; echo $SLURM_JOB_ID $SLURMD_NODENAME > {output}"
    rule timed:
        output: "timed.txt"
        resources: node_access="exclusive", runtime=1
        shell: "sleep 1; echo $SLURM_JOB_ID > {output}"
    """


@pytest.fixture
def workflow(tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workflow]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "local").mkdir()
    document = fleet_document(tmp_path, {"main": lane()})
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(document))
    with Workflow(tmp_path).ended_afterwards() as workflow:
        yield workflow


OPTIONS = ("--spool-fleet", "slurm", "--spool-fleet-file", "fleet.yaml")


def test_all_jobs_of_a_workflow_run_in_one_allocation_which_is_gone_afterwards(
    workflow: Workflow, cluster: SlurmCluster
) -> None:
    before = len(cluster.all_jobs())
    workflow.write("Snakefile", FAN)
    run = workflow.run(*OPTIONS, timeout_s=120)
    assert run.returncode == 0, run.stdout
    written = [line.split() for i in range(12) for line in workflow.lines(f"out/{i}.txt")]
    assert {words[0] for words in written} == set(cluster.all_jobs()[before:])
    assert len(cluster.all_jobs()) - before == 1
    assert len({words[1] for words in written}) > 1
    assert not read_leases(workflow.spool())
    wait_until(lambda: not cluster.jobs(), 20)


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_campaign_that_is_interrupted_leaves_nothing_behind(
    workflow: Workflow, cluster: SlurmCluster, trap: str
) -> None:
    """Workers end tasks that don't end on TERM, which takes longer than Slurm leaves them when a job is cancelled."""
    workflow.write(
        "Snakefile",
        f"""
        rule all:
            input: expand("{{i}}.txt", i=range(12))
        rule long:
            output: "{{i}}.txt"
            resources: runtime=2
            shell: "{trap}touch began.{{wildcards.i}}; for i in $(seq 1000); do sleep 0.1; done"
        """,
    )
    before = set(cluster.leftovers())
    controller = workflow.start(*OPTIONS)
    wait_until(lambda: len(list(workflow.directory.glob("began.*"))) >= 2, 40)
    controller.send_signal(signal.SIGINT)
    assert controller.wait(40) != 0
    assert not read_leases(workflow.spool())
    assert set(workflow.states().values()) == {"failed"}
    assert {result.problem for result in workflow.results().values()} == {"cancelled"}
    wait_until(lambda: not cluster.jobs(), 10)
    assert cluster.steps(cluster.all_jobs()[-1]) == {}
    wait_until(lambda: set(cluster.leftovers()) <= before, 10)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--spool-fleet", "slurm"), "--spool-fleet-file"),
        (("--spool-fleet", "slurm", "--spool-fleet-file", "none.yaml"), "a fleet file was expected"),
        (("--spool-fleet", "slrum"), "Use local, slurm, inside or none"),
        ((*OPTIONS, "--default-resources", "lane='mian'"), "there is no lane 'mian'. Did you mean 'main'"),
        ((*OPTIONS, "--default-resources", "runtime=100000"), "it may run 6000000 s"),
    ],
)
def test_bad_input_is_explained_before_anything_is_submitted(
    workflow: Workflow, cluster: SlurmCluster, arguments: tuple[str, ...], says: str
) -> None:
    before = len(cluster.all_jobs())
    workflow.write("Snakefile", 'rule a:\n    output: "a.txt"\n    shell: "touch {output}"\n')
    run = workflow.run(*arguments)
    assert run.returncode == 1
    assert says in run.stdout
    assert "Traceback" not in run.stdout
    assert len(cluster.all_jobs()) == before


def test_without_slurm_a_campaign_says_so(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    workflow.write("Snakefile", 'rule a:\n    output: "a.txt"\n    shell: "touch {output}"\n')
    run = workflow.run(*OPTIONS)
    assert run.returncode == 1
    assert "there is no Slurm on this machine" in run.stdout
    assert "Traceback" not in run.stdout


def test_a_spool_that_nodes_cannot_see_is_refused(workflow: Workflow) -> None:
    document = fleet_document(workflow.directory / "elsewhere")
    workflow.write("Snakefile", 'rule a:\n    output: "a.txt"\n    shell: "touch {output}"\n')
    (workflow.directory / "fleet.yaml").write_text(yaml.safe_dump(document))
    run = workflow.run(*OPTIONS)
    assert run.returncode == 1
    assert "a file system of this machine alone" in run.stdout


def test_a_campaign_inside_an_allocation_uses_all_of_its_nodes(workflow: Workflow, cluster: SlurmCluster) -> None:
    workflow.write("Snakefile", FAN)
    command = workflow.command("--spool-fleet", "inside", "--spool-fleet-file", "fleet.yaml")
    script = "\n".join(["#!/bin/bash", f"cd {workflow.directory}", f"exec {shlex.join(command)} > said 2>&1"])
    workflow.write("job.sh", script)
    before = len(cluster.all_jobs())
    options = ["--nodes=3", "--exclusive", "--ntasks-per-node=1", "--time=5", "--output=/dev/null"]
    cluster.run("sbatch", "--parsable", *options, str(workflow.directory / "job.sh"))
    wait_until(lambda: not cluster.jobs(), 60)
    written = [line.split() for i in range(12) for line in workflow.lines(f"out/{i}.txt")]
    assert len(written) == 12, workflow.lines("said")
    assert len({words[1] for words in written}) == 3
    assert len(cluster.all_jobs()) - before == 1
    assert not read_leases(workflow.spool())


def test_inside_of_no_allocation_it_says_so(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    workflow.write("Snakefile", FAN)
    run = workflow.run("--spool-fleet", "inside", "--spool-fleet-file", "fleet.yaml")
    assert run.returncode == 1
    assert "not inside an allocation" in run.stdout
