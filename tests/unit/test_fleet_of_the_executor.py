"""A fleet on Slurm as the executor sees it: however long Slurm takes to answer, nothing waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fleetcraft.spool import Producer, Request, Spool, TaskSpec, Writer
from snakemake_executor_plugin_spool.fleet import FleetFailed
from snakemake_executor_plugin_spool.slurm_fleet import SlurmFleet

HEADER = "JOBID|STATE|NODES|TIME_LEFT|NODELIST|PARTITION|REASON|NAME"


class Site:
    """A directory with commands of Slurm's that don't answer before they may, and a spool with a task."""

    def __init__(self, directory: Path, balance: str):
        self.directory = directory
        self.command("squeue", f"echo '{HEADER}'")
        self.command("sbatch", "echo 100")
        self.command("scancel", "true")
        document = {
            "lanes": {
                "main": {
                    "partition": "p",
                    "account": None,
                    "nodes": {"min": 1, "max": 2},
                    "walltime_min": 120,
                    "node": {"cores": 2, "memory_mb": 4000},
                }
            },
            "site": {"nodes": 4, "shared": [str(directory)], "processes": 100_000, "stop_launching_at": 100_000},
            "budget": {"command": balance, "headroom": 1},
            "workers": {"caches": "/caches"},
        }
        file = directory / "fleet.yaml"
        file.write_text(yaml.safe_dump(document))
        spool = Spool.create(directory / "spool", "test")
        with Writer(spool, "producer") as writer:
            Producer(writer).enqueue([TaskSpec("t", ("true",), "/", Request(runtime_s=600))])
        self.said: list[str] = []
        self.fleet = SlurmFleet(spool, file, {}, self.said.append)

    def command(self, name: str, script: str) -> None:
        """Each notes that it was called, and answers when there is a file `may-<name>`."""
        wait = f"until [ -e {self.directory}/may-{name} ]; do sleep 0.02; done"
        early = 'case "$*" in --version) exit ;; esac'
        text = f"#!/bin/sh\n{early}\ntouch {self.directory}/called-{name}\n{wait}\n{script}\n"
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o755)

    def was_called(self, name: str) -> bool:
        return (self.directory / f"called-{name}").exists()

    def answers(self, *names: str) -> None:
        for name in names:
            (self.directory / f"may-{name}").touch()

    def tend_until(self, name: str) -> None:
        """Until a command is called."""
        deadline = time.monotonic() + 20
        while not self.was_called(name) and time.monotonic() < deadline:
            self.fleet.tend()
            time.sleep(0.02)


@pytest.fixture
def balance() -> str:
    """The command that prints what is left."""
    return "echo 1000"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, balance: str) -> Iterator[Site]:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    site = Site(tmp_path, balance)
    yield site
    site.answers("squeue", "sbatch", "scancel")
    site.fleet.stop(lambda: None)


def test_nothing_waits_for_an_answer_of_slurm(site: Site) -> None:
    site.tend_until("squeue")
    assert site.was_called("squeue")
    # If these waited, they would do so until Slurm answers, which it doesn't.
    for _ in range(50):
        site.fleet.tend()
    site.answers("squeue")
    site.tend_until("sbatch")
    assert site.was_called("sbatch")
    for _ in range(50):
        site.fleet.tend()
    assert site.said == []


def test_at_the_end_the_number_of_a_job_on_its_way_is_waited_for_and_cancelled(site: Site) -> None:
    site.answers("squeue", "scancel")
    site.tend_until("sbatch")
    waited = []

    def meanwhile() -> None:
        waited.append(site.was_called("scancel"))
        site.answers("sbatch")

    site.fleet.stop(meanwhile)
    assert waited[0] is False
    assert site.was_called("scancel")
    assert "allocation 100" in site.said[0]


@pytest.mark.parametrize("balance", ["echo You have 12 SU"])
def test_what_stops_the_controller_is_told_when_it_is_tended_next(site: Site) -> None:
    site.answers("squeue")
    with pytest.raises(FleetFailed, match="must print one number"):
        site.tend_until("sbatch")
    assert not site.was_called("sbatch")
