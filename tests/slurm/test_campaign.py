"""A whole campaign through a profile derived from Vista's: all stages, in one job, to evidence that verifies."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from campaigns import BIN, ROOT, Campaign, new_campaign
from fleet_runs import fleet_document, lane
from journal_checker import check_exclusive, check_single, entries
from slurm_cluster import NODES, SlurmCluster
from spool_audit import audit


def derived_profile(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`profiles/vista` as it ships, its lane mapped to the test cluster."""
    shipped = yaml.safe_load((ROOT / "profiles/vista/fleet.yaml").read_text())
    small = {key: lane()[key] for key in ("partition", "account", "node", "gres")}
    # Four nodes from the start, although the first jobs are few.
    mapped = shipped["lanes"]["gh"] | small | {"nodes": {"min": 4, "max": 4}}
    ours = fleet_document(directory, {"gh": mapped})
    ours["site"] = shipped["site"] | ours["site"] | {"jobs_submitted": 1}
    profile = directory / "profile"
    profile.mkdir()
    (profile / "fleet.yaml").write_text(yaml.safe_dump(shipped | ours))
    config = yaml.safe_load((ROOT / "profiles/vista/config.yaml").read_text())
    config |= {"spool-fleet-file": str(profile / "fleet.yaml"), "latency-wait": 5}
    (profile / "config.yaml").write_text(yaml.safe_dump(config))
    (directory / "local").mkdir()
    return profile


def run_through(profile: Path, campaign: Campaign) -> None:
    command = [str(BIN / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "--directory", str(campaign.directory)]
    command += ["--profile", str(profile), "--configfile", str(campaign.experiment)]
    done = subprocess.run(
        command, cwd=campaign.directory, env=os.environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def digests(campaign: Campaign) -> dict[str, str]:
    """Name of each video → digest of its bytes."""
    videos = sorted((campaign.directory / "scratch/small/views").glob("*/*.mp4"))
    return {f"{v.parent.name}/{v.name}": hashlib.sha256(v.read_bytes()).hexdigest() for v in videos}


def test_a_campaign_is_one_job_of_four_workers_and_gives_what_it_gives_without_slurm(
    cluster: SlurmCluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    before = len(cluster.all_jobs())
    campaign = new_campaign(directory / "through")
    run_through(derived_profile(directory, monkeypatch), campaign)
    assert len(cluster.all_jobs()) - before == 1
    spool = campaign.directory / ".snakemake/spool/small"
    assert {entry["host"] for entry in entries(spool) if entry["event"] == "worker started"} == set(NODES)
    assert {entry["host"] for entry in entries(spool) if entry["event"] == "started"} == set(NODES)
    groups = {entry["group"] for entry in entries(spool) if entry["event"] == "started"}
    assert {"plan", "models", "generate", "decode", "encode", "score", "tables", "archive"} <= groups
    assert check_single(spool) == []
    assert check_exclusive(spool).violations == []
    assert audit(spool) == []
    assert campaign.fleetcraft("verify", "work/small/evidence").status == 0
    alone = new_campaign(directory / "alone")
    alone.complete()
    assert digests(campaign) == digests(alone)
    assert len(digests(alone)) == 12
