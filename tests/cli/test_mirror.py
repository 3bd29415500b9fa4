"""`fleetcraft mirror verify` on checkpoints that diffusers saved, with the tool chain that loads them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import BIN, ROOT
from checkpoints import list_digests, write_checkpoint

from fleetcraft.cli.main import main

DIFFUSION = ROOT / ".envs/diffusion/bin/python"
BUILD = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.pipelines.families import FAMILIES
FAMILIES["hunyuan_video"].load().build_tiny(Path(sys.argv[2]), 0)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny HunyuanVideo with its list of digests: the family with the most components. Never changed."""
    directory = tmp_path_factory.mktemp("mirror") / "check point"
    subprocess.run([DIFFUSION, "-c", BUILD, ROOT / "scripts", directory], check=True, capture_output=True)
    list_digests(directory)
    return directory


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache home for all tests, as a user has one."""
    return tmp_path_factory.mktemp("cache")


def verify(directory: Path, cache: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Exit status and output of the command in a process of its own."""
    answer = subprocess.run(
        [BIN / "fleetcraft", "mirror", "verify", directory, *arguments],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in answer.stderr
    return answer.returncode, answer.stdout + (answer.stderr if not answer.stdout else "")


def test_a_whole_checkpoint_holds_and_costs_nothing_the_next_time(built: Path, cache: Path) -> None:
    status, output = verify(built, cache)
    assert status == 0, output
    lines = {line.split()[0]: line for line in output.splitlines()[1:]}
    assert "HunyuanVideoPipeline, family hunyuan_video" in output.splitlines()[0]
    assert list(lines) == [
        *("scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "transformer", "vae"),
        *("digests", "loading"),
    ]
    assert all(line.endswith("good") for name, line in lines.items() if name not in {"digests", "loading"})
    assert "0 verified before" in lines["digests"]
    assert lines["loading"].endswith("every part would load complete")

    # Without the tool chain: a second time, nothing is loaded either.
    status, output = verify(built, cache, FLEETCRAFT_CHECKOUT="/nowhere")
    assert status == 0, output
    assert "14 verified before; 0 B read" in output
    assert "as it did before" in output

    moved = verify(built, cache, "--again", FLEETCRAFT_CHECKOUT="/nowhere")
    assert moved[0] == 1
    assert "0 verified before" in moved[1]


def test_without_the_tool_chain_it_says_what_was_not_checked(built: Path, tmp_path: Path) -> None:
    status, output = verify(built, tmp_path, FLEETCRAFT_CHECKOUT="/nowhere")
    assert status == 1
    assert "loading         not checked" in output
    assert "Not checked: whether tensors are missing and tokenizers know words." in output
    assert "Run `make envs`" in output


def test_everything_that_is_wrong_is_told_at_once(built: Path, cache: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(built, tmp_path / "check point"))
    (directory / "vae/config.json").unlink()
    (directory / "unlisted").touch()
    weights = directory / "transformer/diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    tokenizer = directory / "tokenizer/tokenizer.json"
    document = json.loads(tokenizer.read_text())
    document["model"]["vocab"] = document["model"]["vocab"][:3]
    tokenizer.write_text(json.dumps(document))
    config = directory / "text_encoder/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 2}))

    status, output = verify(directory, cache)
    assert status == 1
    paragraphs = output.rstrip("\n").split("\n\n")[1:]
    for file, said in {
        "vae/config.json": "missing",
        "SHA256SUMS": "unlisted is not in the list of digests",
        "transformer/diffusion_pytorch_model.safetensors": "SHA-256",
        "tokenizer/tokenizer.json": "SHA-256",
        "tokenizer": "nothing but unknown tokens",
        "text_encoder": "layers.2.",
    }.items():
        assert [text for text in paragraphs if text.startswith(f"{directory / file}: ") and said in text], (file, said)

    status, output = verify(directory, cache, "--json", FLEETCRAFT_CHECKOUT="/nowhere")
    found = json.loads(output)
    assert (status, found["holds"], found["family"]) == (1, False, "hunyuan_video")
    assert {finding["text"] for finding in found["findings"]} < set(paragraphs)
    assert found["components"]["transformer"]["findings"] == 1
    assert found["not_checked"]


def command(*arguments: object) -> int:
    return main(["mirror", "verify", *map(str, arguments)])


def test_what_is_no_checkpoint_is_refused_in_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.safetensors").touch()
    for directory, said in {
        tmp_path / "nowhere": "there is no such model directory",
        tmp_path / "model.safetensors": "this is a file and no model directory",
        tmp_path: "there is no model_index.json here",
    }.items():
        assert command(directory) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"fleetcraft: {directory}: {said}")
        assert len(error.splitlines()) == 1


def test_a_pipeline_that_no_family_loads_and_a_list_that_is_missing_are_findings(tmp_path: Path, cache: Path) -> None:
    directory = write_checkpoint(tmp_path / "model")
    index = json.loads((directory / "model_index.json").read_text())
    (directory / "model_index.json").write_text(json.dumps(index | {"_class_name": "WanPipelin"}))
    (directory / "SHA256SUMS").unlink()
    status, output = verify(directory, cache, FLEETCRAFT_CHECKOUT="/nowhere")
    assert status == 1
    assert "no family loads checkpoints of this pipeline (found 'WanPipelin'). Did you mean 'WanPipeline'?" in output
    assert "no number could be traced to the weights. Make it once: (cd " in output
    assert "there is no list to compare with" in output


def test_a_terminal_gets_a_bar(built: Path, tmp_path: Path) -> None:
    import pty

    reader, writer = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", "from fleetcraft.cli.main import main; main()", "mirror", "verify", built],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "FLEETCRAFT_CHECKOUT": "/nowhere", "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=writer,
        check=False,
    )
    os.close(writer)
    shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert "verifying" in shown
    assert "━" in shown
    assert " of 14 files" not in shown
