"""Real campaigns in directories of their own: Snakemake, the stages, and the tool chains that `make envs` built."""

from __future__ import annotations

import contextlib
import copy
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv/bin"
SEARCH_DEMO = ROOT / "config/experiments/demo-search.yaml"
DEMOS = sorted(set((ROOT / "config/experiments").glob("demo-*.yaml")) - {SEARCH_DEMO})
"""Of model families."""


@dataclass
class Run:
    """What one call of Snakemake did."""

    status: int
    output: str
    jobs: dict[str, int] = field(default_factory=dict)


@dataclass
class Campaign:
    """An experiment and the directory that it runs in."""

    directory: Path
    document: dict[str, Any]

    @property
    def experiment(self) -> Path:
        return self.directory / "experiment.yaml"

    def write(self, document: dict[str, Any] | None = None) -> None:
        self.document = document or self.document
        self.experiment.write_text(yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True))

    def command(self, *arguments: str) -> list[str]:
        # Targets come before --configfile, which would take them for further files.
        return [
            *(str(BIN / "snakemake"), *arguments, "--snakefile", str(ROOT / "Snakefile")),
            *("--directory", str(self.directory), "--profile", str(ROOT / "profiles/default")),
            *("--configfile", str(self.experiment)),
        ]

    def snakemake(self, *arguments: str) -> Run:
        """Run Snakemake to its end."""
        answer = subprocess.run(
            self.command(*arguments), cwd=self.directory, capture_output=True, text=True, timeout=900, check=False
        )
        return Run(answer.returncode, answer.stdout + answer.stderr, jobs_in(answer.stdout + answer.stderr))

    def fleetcraft(self, *arguments: str) -> Run:
        """Run a command of Fleetcraft in the campaign's directory."""
        command = [str(BIN / "fleetcraft"), *arguments]
        answer = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False)
        return Run(answer.returncode, answer.stdout + answer.stderr)

    def complete(self) -> Run:
        """Run Snakemake and insist that it succeeds."""
        run = self.snakemake()
        assert run.status == 0, run.output
        return run

    def plan(self) -> Plan:
        with contextlib.chdir(self.directory):
            return plan_of_file(self.experiment)

    def artifacts(self) -> dict[str, dict[str, int]]:
        """Kind → key → when it was made, of everything in the store."""
        store = self.directory / "scratch/store"
        return {
            kind: {file.stem: file.stat().st_mtime_ns for file in (store / kind).glob("??/[!.]*.jsonl")}
            for kind in ("latents", "videos", "scores")
        }

    def processes(self) -> dict[int, str]:
        """Process → command line, of everything that runs in this campaign's directory."""
        found = {}
        for entry in Path("/proc").iterdir():
            # A process can end while it is looked at, and those of others can't be looked at.
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(self.directory):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def copy_to(self, directory: Path) -> Campaign:
        """The same campaign in another directory, with all times as they are."""
        shutil.copytree(self.directory, directory, symlinks=True)
        return Campaign(directory, copy.deepcopy(self.document))


def jobs_in(output: str) -> dict[str, int]:
    """Rule → number of jobs, as Snakemake's table of job counts has it; empty where there was nothing to do."""
    found = re.search(r"^job +count\n[- ]+\n((?:\w+ +\d+\n)+)", output, re.MULTILINE)
    counts = dict(line.split() for line in found[1].splitlines()) if found else {}
    return {rule: int(count) for rule, count in counts.items() if rule not in {"total", "all"}}


def small_document() -> dict[str, Any]:
    """Two arms, three prompts, two seeds: one shard a seed and arm."""
    full = {"model": "tiny", "dtype": "float32", "steps": 4}
    return {
        "name": "small",
        "paths": {"scratch": "scratch", "work": "work"},
        "stack": {"device": "cpu"},
        "models": {"tiny": {"family": "wan", "source": {"tiny": True, "seed": 0}}},
        "arms": {"full": full, "cached": full | {"cache": {"type": "first_block", "threshold": 0.3}}},
        "baseline": "full",
        "prompts": {"file": "prompts.txt"},
        "seeds": [0, 1],
        "video": {"width": 32, "height": 32, "frames": 5, "fps": 8},
        "scoring": {"dimensions": ["ssim"]},
        "shard_size": 4,
    }


def new_campaign(directory: Path, document: dict[str, Any] | None = None) -> Campaign:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prompts.txt").write_text("a red bicycle\na blue boat\na green kite\n")
    campaign = Campaign(directory, document or small_document())
    campaign.write()
    return campaign
