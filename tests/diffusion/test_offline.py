"""Stages reach for no host, write nothing but what they are for, and take a checkpoint that can't be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checkpoints import list_digests

from fleetcraft.experiment.config import plan_of_file
from fleetcraft.ground.repository import SCRIPTS
from fleetcraft.ground.toolchain import clean_environment
from fleetcraft.stages.describe import describe
from fleetcraft.stages.launch import command_of

HOOK = """
import os, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        os.write(2, f"a stage reached for the network: {event} {arguments}".encode())
        os._exit(99)
sys.addaudithook(refuse)
"""
PROOF = "import socket; socket.create_connection(('127.0.0.1', 9))"


@pytest.fixture
def checkpoint(tiny: Path, tmp_path: Path) -> Iterator[Path]:
    """The family's tiny model as a checkpoint that can't be written: by its modes and, for root, by its file system."""
    directory = Path(shutil.copytree(tiny, tmp_path / "check point"))
    list_digests(directory)
    paths = [directory, *directory.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    mounted = os.geteuid() == 0 and mount("--bind", directory, directory) and mount("-o", "remount,ro,bind", directory)
    if mounted:
        with pytest.raises(OSError, match="Read-only"):
            (directory / "file").touch()
    yield directory
    if mounted:
        subprocess.run(["umount", "--lazy", directory], check=True)
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


def mount(*arguments: object) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False).returncode == 0


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.mark.parametrize("family", ["hunyuan_video"], indirect=True, scope="session")
def test_a_campaign_s_stages_are_offline_and_leave_caches_alone(
    family: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = {
        name: tmp_path / name.lower()
        for name in ("HOME", "HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "XDG_CACHE_HOME")
    }
    for name, directory in watched.items():
        directory.mkdir()
        monkeypatch.setenv(name, str(directory))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red bicycle\n")
    document = {
        "name": "offline",
        "paths": {"scratch": str(tmp_path / "scratch"), "work": str(tmp_path / "work")},
        "stack": {"device": "cpu"},
        "models": {"local": {"family": family, "source": {"path": str(checkpoint)}}},
        "arms": {"full": {"model": "local", "dtype": "float32", "steps": 2}},
        "baseline": "full",
        "prompts": {"file": str(prompts)},
        "seeds": [0],
        "video": {"width": 32, "height": 32, "frames": 9, "fps": 8},
        "scoring": {"dimensions": ["temporal_flickering"]},
    }
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(yaml.safe_dump(document))
    plan = plan_of_file(experiment)
    (shard,) = plan.shards
    jobs = [
        describe(plan, "models", {"model": "local"}),
        describe(plan, "models", {"model": "local"}),
        describe(plan, "generate", {"arm": "full", "shard": shard}),
        describe(plan, "decode", {"arm": "full", "shard": shard}),
    ]
    commands = [command_of(job, tmp_path / f"{number}.json", {}) for number, job in enumerate(jobs)]
    python, safe, flag, code, _ = commands[0]
    # One process for all, as each would spend most of its time on imports.
    watching = f"{HOOK}\nfor sys.argv in [['-c', description] for description in sys.argv[1:]]: exec({code!r})"
    status, output = run(python, safe, flag, watching, *(command[-1] for command in commands))
    assert status == 0, output
    assert output.count("models: 14 files verified, 0 of them before; 971 kB read") == 1
    assert output.count("models: 14 files verified, 14 of them before; 0 B read") == 1
    assert all(Path(job.output).exists() for job in jobs)
    assert run(python, safe, flag, f"{HOOK}\n{PROOF}")[0] == 99, "the watch itself works"

    remembered = files(watched.pop("XDG_CACHE_HOME"))
    assert {name.split("/")[0] for name in remembered} == {"fleetcraft"}, "what was verified, and nothing else"
    assert {name: files(directory) for name, directory in watched.items()} == {name: set() for name in watched}


def run(*command: str) -> tuple[int, str]:
    answer = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout + answer.stderr


def test_a_stage_has_no_cache_of_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HF_TOKEN"):
        monkeypatch.setenv(name, "/somewhere")
    environment = clean_environment()
    assert {name: value for name, value in environment.items() if name.startswith(("HF_", "HUGGING", "TRANSF"))} == {
        "HF_HOME": "/dev/null/huggingface",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    assert environment["PYTHONPATH"] == str(SCRIPTS)
