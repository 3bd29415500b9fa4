"""Every profile reviews a campaign on a machine without Slurm, and all of them the same one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from campaigns import BIN, ROOT, jobs_in

PROFILES = sorted(path.parent.name for path in (ROOT / "profiles").glob("*/config.yaml"))


def snakemake(directory: Path, profile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As in the checkout, where Snakemake finds `profiles/default` by itself; nothing of Slurm is on PATH."""
    command = [str(BIN / "snakemake"), *arguments, "--profile", f"profiles/{profile}", "--directory", str(directory)]
    return subprocess.run(
        [*command, "--configfile", "config/config.yaml"],
        cwd=ROOT,
        env={"PATH": str(BIN)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_a_campaign_is_reviewed_without_slurm(tmp_path: Path, profile: str) -> None:
    review = snakemake(tmp_path, profile, "--dry-run")
    assert review.returncode == 0, review.stderr
    jobs = jobs_in(review.stdout + review.stderr)
    assert jobs["generate"] == 4
    assert jobs["archive"] == 1


def test_the_profile_of_another_executor_is_not_run_beside_the_default_one(tmp_path: Path) -> None:
    run = snakemake(tmp_path, "vista-slurm")
    assert run.returncode == 1
    assert "name profiles/vista-slurm with --workflow-profile" in run.stdout + run.stderr
    assert not (tmp_path / "results/scratch").exists()
