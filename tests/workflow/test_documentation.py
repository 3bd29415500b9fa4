"""Every command in the documentation is run, in order, in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from campaigns import BIN, DEMOS, ROOT, SEARCH_DEMO

DOCUMENTS = ["README.md", "config/README.md", "profiles/README.md"]

# Stands for itself: these tests are what it runs.
ELSEWHERE = {"make test"}


def commands(document: str) -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a console block shows commands"
    return [line.removeprefix("$ ") for line in lines]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository as they are, with the environments that are built already."""
    directory = tmp_path_factory.mktemp("documentation") / "fleetcraft"
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, directory / name)
    for built in (".venv", ".envs"):
        (directory / built).symlink_to(ROOT / built)
    return directory


def run(script: str, directory: Path) -> str:
    environment = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        # As in a reader's shell, whatever make runs these tests.
        "MAKEFLAGS": "",
        "SCRATCH": f"{directory}/scratch",
        "WORK": f"{directory}/work",
    }
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, f"{script}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def outputs(checkout: Path) -> dict[str, str]:
    """Command → what it printed, of all commands of all documents, run in a reader's order."""
    found = [command for document in DOCUMENTS for command in commands(document)]
    return {command: run(command, checkout) for command in found if command not in ELSEWHERE}


def test_the_commands_of_the_documents_work(outputs: dict[str, str]) -> None:
    assert "snakemake" in outputs
    assert "disk-space: cancelled" in outputs["fleetcraft cancel disk-space"]


def test_the_demo_ends_with_a_table_and_the_places_of_its_results(outputs: dict[str, str], checkout: Path) -> None:
    lines = [line.split() for line in outputs["make demo"].splitlines() if line.strip()]
    arms = [words for words in lines if words[0] in {"full", "cached"}]
    # Printed twice: by Snakemake at the campaign's end, and by the command after it.
    blocks = [arms[start : start + 2] for start in range(0, len(arms), 2)]
    assert all([words[0] for words in block] == ["full", "cached"] for block in blocks)
    counts, *scores, latencies = blocks[: len(blocks) // 2]
    assert blocks == 2 * [counts, *scores, latencies]
    assert [words[1] for words in counts] == ["16", "16"]
    assert len(scores) == 2, "a block a dimension"
    places = {words[0]: checkout / words[1] for words in lines if words[0] in {"report", "evidence"}}
    assert places["report"].stat().st_size > 100_000
    assert (places["evidence"] / "manifest-sha256.txt").is_file()
    for arm, *_ in counts:
        assert len(list((checkout / f"results/scratch/demo/views/{arm}").iterdir())) == 16


def test_every_file_that_a_document_links_to_exists() -> None:
    for document in (*DOCUMENTS, "scripts/README.md"):
        file = ROOT / document
        for link in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
            if "://" not in link:
                assert (file.parent / link).exists(), f"{document} links to {link}"


def test_a_review_works_from_any_experiment_that_ships(tmp_path: Path) -> None:
    """The demos are run and reviewed elsewhere; a real experiment needs its checkpoint or its videos, and says so."""
    environment = os.environ | {"SCRATCH": str(tmp_path / "scratch"), "WORK": str(tmp_path / "work")}
    for experiment in sorted(set((ROOT / "config/experiments").glob("*.yaml")) - {*DEMOS, SEARCH_DEMO}):

        def plan(*options: str, experiment: Path = experiment) -> subprocess.CompletedProcess[str]:
            command = [BIN / "fleetcraft", "plan", *options, experiment]
            return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

        refused = plan()
        assert refused.returncode == 1
        if "models:" not in experiment.read_text():
            assert "there is no such directory of videos" in refused.stderr
            continue
        assert "there is no such model directory" in refused.stderr
        planned = plan("--without-weights")
        assert planned.returncode == 0, planned.stderr
        assert "no checkpoint was looked at" in planned.stdout
