"""Which source a campaign ran from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fleetcraft.evidence.source import source_revision


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    for name in ("Snakefile", "rules", "resources", "envs"):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name)
        else:
            shutil.copy(source, tmp_path / name)
    (tmp_path / "scripts").mkdir()
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_without_git_the_files_still_have_their_digests(copy: Path) -> None:
    source = source_revision(copy)
    assert source["revision"] is None
    assert source["uncommitted_changes"] is None
    assert "Snakefile" in source["files"]


def test_a_revision_is_named_and_changes_to_it_are_listed(copy: Path) -> None:
    git(copy, "init", "--quiet")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message", "All")
    clean = source_revision(copy)
    assert clean["revision"] == git(copy, "rev-parse", "HEAD")
    assert clean["uncommitted_changes"] == []
    (copy / "Snakefile").write_text("# changed\n")
    changed = source_revision(copy)
    assert changed["uncommitted_changes"] == ["M Snakefile"]
    assert changed["digest"] != clean["digest"]
