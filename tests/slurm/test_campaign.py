"""Whole campaigns on Slurm: the demo in one job, by a profile derived from Vista's, and a part of it job by job."""

from __future__ import annotations

import copy
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import BIN, ROOT, Campaign, Run, jobs_in, new_campaign
from fleet_runs import fleet_document, lane
from journal_checker import check_exclusive, check_single, entries
from slurm_cluster import NODES, SlurmCluster
from snakemake_runs import wait_until
from spool_audit import audit

SLURM_BIN = ROOT / ".venv-slurm/bin"
DEMO = ROOT / "config/config.yaml"


@pytest.fixture(scope="module")
def slurm(running_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, whole and idle, for everything that this process starts."""
    running_cluster.mend()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running_cluster.environment.items():
            patch.setenv(name, value)
        yield running_cluster


def derived_from_vista(directory: Path) -> Path:
    """`profiles/vista` as it ships, its lane mapped to the test cluster."""
    shipped = yaml.safe_load((ROOT / "profiles/vista/fleet.yaml").read_text())
    small = {key: lane()[key] for key in ("partition", "account", "node", "gres")}
    # Four nodes from the start, although the first jobs are few; on a busy machine these take longer than workers idle.
    mapped = shipped["lanes"]["gh"] | small | {"nodes": {"min": 4, "max": 4}, "idle_timeout_s": 600}
    ours = fleet_document(directory, {"gh": mapped})
    ours["site"] = shipped["site"] | ours["site"] | {"jobs_submitted": 1}
    profile = directory / "profile"
    profile.mkdir(parents=True)
    (directory / "local").mkdir()
    (profile / "fleet.yaml").write_text(yaml.safe_dump(shipped | ours))
    return write_profile(profile, "vista", {"spool-fleet-file": str(profile / "fleet.yaml")})


def derived_from_vista_slurm(directory: Path) -> Path:
    """`profiles/vista-slurm` as it ships, on the test cluster's partition, asking more often how jobs are."""
    shipped = yaml.safe_load((ROOT / "profiles/vista-slurm/config.yaml").read_text())
    assert "slurm_partition=gh" in shipped["default-resources"]
    kept = [text for text in shipped["default-resources"] if not text.startswith("slurm_")]
    profile = directory / "profile"
    profile.mkdir(parents=True)
    changes = {"default-resources": [*kept, "slurm_partition=main"], "slurm-init-seconds-before-status-checks": 2}
    # It has no accounting.
    changes["slurm-status-command"] = "squeue"
    return write_profile(profile, "vista-slurm", changes)


def write_profile(profile: Path, shipped: str, changes: dict[str, Any]) -> Path:
    config = yaml.safe_load((ROOT / "profiles" / shipped / "config.yaml").read_text())
    (profile / "config.yaml").write_text(yaml.safe_dump(config | {"latency-wait": 5} | changes))
    return profile


def snakemake(directory: Path, *arguments: str | Path, program: Path = BIN / "snakemake") -> Run:
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=directory, env=os.environ, capture_output=True, text=True, timeout=600, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return Run(done.returncode, said, jobs_in(said))


def videos(directory: Path) -> dict[str, str]:
    """Name of each video → digest of its bytes."""
    found = sorted(directory.glob("results/scratch/*/views/*/*.mp4"))
    return {f"{v.parent.name}/{v.name}": hashlib.sha256(v.read_bytes()).hexdigest() for v in found}


@pytest.fixture(scope="module")
def demo(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Where the demo has run on the test cluster, and how many jobs of Slurm it took."""
    directory = tmp_path_factory.mktemp("demo")
    profile = derived_from_vista(tmp_path_factory.mktemp("vista") / "demo")
    shipped = yaml.safe_load((profile / "fleet.yaml").read_text())
    shipped["site"]["shared"].append(str(directory))
    (profile / "fleet.yaml").write_text(yaml.safe_dump(shipped))
    before = len(slurm.all_jobs())
    snakemake(directory, "--snakefile", ROOT / "Snakefile", "--profile", profile, "--configfile", DEMO)
    return directory, len(slurm.all_jobs()) - before


@pytest.fixture(scope="module")
def part() -> dict[str, Any]:
    """Four of the demo's samples."""
    document = copy.deepcopy(yaml.safe_load(DEMO.read_text()))
    return document | {"prompts": document["prompts"] | {"limit": 2}, "seeds": [0]}


def test_the_demo_is_one_job_of_four_workers_to_evidence_that_verifies(demo: tuple[Path, int]) -> None:
    directory, jobs = demo
    assert jobs == 1
    spool = directory / ".snakemake/spool/demo"
    assert {entry["host"] for entry in entries(spool) if entry["event"] == "worker started"} == set(NODES)
    assert {entry["host"] for entry in entries(spool) if entry["event"] == "started"} == set(NODES)
    groups = {entry["group"] for entry in entries(spool) if entry["event"] == "started"}
    assert {"plan", "models", "generate", "decode", "encode", "score", "tables", "archive"} <= groups
    assert check_single(spool) == []
    assert check_exclusive(spool).violations == []
    assert audit(spool) == []
    assert Campaign(directory, {}).fleetcraft("verify", "results/work/demo/evidence").status == 0
    assert len(videos(directory)) == 32


def test_without_slurm_the_same_samples_are_the_same_videos(
    demo: tuple[Path, int], directory: Path, part: dict[str, Any]
) -> None:
    alone = new_campaign(directory / "alone", part)
    alone.complete()
    assert len(videos(alone.directory)) == 4
    assert videos(alone.directory).items() <= videos(demo[0]).items()


def test_with_one_job_of_slurm_for_each_the_same_samples_are_the_same_videos(
    slurm: SlurmCluster, demo: tuple[Path, int], directory: Path, part: dict[str, Any]
) -> None:
    profile = derived_from_vista_slurm(directory / "vista-slurm")
    campaign = new_campaign(directory / "each", part)
    before = len(slurm.all_jobs())
    options = ["--snakefile", ROOT / "Snakefile", "--workflow-profile", profile, "--configfile", campaign.experiment]
    run = snakemake(campaign.directory, *options, program=SLURM_BIN / "snakemake")
    assert len(slurm.all_jobs()) - before == sum(run.jobs.values()) >= 19
    assert len(videos(campaign.directory)) == 4
    assert videos(campaign.directory).items() <= videos(demo[0]).items()
    assert campaign.fleetcraft("verify", "results/work/demo/evidence").status == 0
    wait_until(lambda: not slurm.jobs(), 20)


def test_a_job_that_is_to_be_alone_has_its_node_to_itself_without_the_spool_too(
    slurm: SlurmCluster, directory: Path
) -> None:
    """`timing` is a rule that `profiles/vista-slurm` names."""
    profile = derived_from_vista_slurm(directory / "vista-slurm")
    show = "scontrol show job $SLURM_JOB_ID > {output}"
    (directory / "Snakefile").write_text(
        f"""
rule all:
    input: "timing.txt", "shared.txt"
rule timing:
    output: "timing.txt"
    resources: node_access="exclusive", runtime=1, mem_mb=100
    shell: "{show}"
rule shared:
    output: "shared.txt"
    resources: node_access="shared", runtime=1, mem_mb=100
    shell: "{show}"
"""
    )
    snakemake(directory, "--workflow-profile", profile, program=SLURM_BIN / "snakemake")
    shown = {name: (directory / f"{name}.txt").read_text() for name in ("timing", "shared")}
    # Slurm's words for --exclusive, and for what is given out by cores.
    assert re.search(r"OverSubscribe=NO\b", shown["timing"])
    assert re.search(r"OverSubscribe=OK\b", shown["shared"])
    cores = {name: int(re.search(r"NumCPUs=(\d+)", text)[1]) for name, text in shown.items()}  # type: ignore[index]
    assert cores == {"timing": 2, "shared": 1}


def test_a_campaign_is_reviewed_with_the_plugin_where_there_is_no_slurm(directory: Path) -> None:
    for name in ("which", "sh", "bash"):
        (directory / "bin").mkdir(exist_ok=True)
        (directory / "bin" / name).symlink_to(f"/bin/{name}")
    options = ["--workflow-profile", ROOT / "profiles/vista-slurm", "--configfile", DEMO, "--directory", directory]
    command = [str(SLURM_BIN / "snakemake"), "--dry-run", "--snakefile", str(ROOT / "Snakefile"), *map(str, options)]
    done = subprocess.run(
        command, cwd=directory, env={"PATH": str(directory / "bin")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert jobs_in(done.stdout)["generate"] == 4
