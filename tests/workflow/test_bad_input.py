"""What goes wrong in a campaign is said in one paragraph, where the user looks, and nothing half-made stays."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, new_campaign, small_document
from checkpoints import list_digests

DIFFUSION = ROOT / ".envs/diffusion/bin/python"


@pytest.fixture
def checkpoint(finished: Campaign, tmp_path: Path) -> Path:
    """The tiny model as a checkpoint on disk, to be loaded from its path like a real one."""
    import shutil

    (built,) = (finished.directory / "scratch/store/models").iterdir()
    directory = tmp_path / "checkpoint"
    shutil.copytree(built, directory)
    list_digests(directory)
    return directory


def from_path(tmp_path: Path, checkpoint: Path) -> Campaign:
    document = small_document()
    document["models"]["tiny"]["source"] = {"path": str(checkpoint)}
    document["arms"] = {"full": document["arms"]["full"]}
    document["seeds"] = [0]
    document["scoring"]["dimensions"] = ["temporal_flickering"]
    return new_campaign(tmp_path / "campaign", document)


def overwrite_tensor(file: Path, name: str, value: float) -> None:
    """Set every element of a float32 tensor of a safetensors file."""
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    start, end = json.loads(data[8 : 8 + length])[name]["data_offsets"]
    data[8 + length + start : 8 + length + end] = struct.pack("<f", value) * ((end - start) // 4)
    file.write_bytes(data)


def explanation(output: str) -> str:
    found = re.search(r"^\s*failed \((.*)$", output, re.MULTILINE)
    assert found, output
    return found[1]


def stored(campaign: Campaign) -> list[str]:
    """Everything that a stage left in the store or as a manifest."""
    kinds = ("store/latents", "store/videos", "small/latents", "small/videos", "small/frames")
    return [
        str(path)
        for kind in kinds
        for path in (campaign.directory / "scratch" / kind).rglob("*")
        if path.is_file() and path.name != ".snakemake_timestamp"
    ]


def test_a_checkpoint_from_a_path_gives_the_same_videos_as_the_tiny_model(
    finished: Campaign, tmp_path: Path, checkpoint: Path
) -> None:
    campaign = from_path(tmp_path, checkpoint)
    campaign.complete()
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in campaign.directory.rglob("*.mp4")}
    assert digests <= {hashlib.sha256(path.read_bytes()).hexdigest() for path in finished.directory.rglob("*.mp4")}
    assert len(digests) == 3


def test_weights_that_are_not_the_listed_ones_are_refused_before_generating(tmp_path: Path, checkpoint: Path) -> None:
    campaign = from_path(tmp_path, checkpoint)
    file = checkpoint / "transformer/diffusion_pytorch_model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    run = campaign.snakemake()
    assert run.status != 0
    said = explanation(run.output)
    assert said.startswith("corrupt weights")
    assert str(file) in said
    assert stored(campaign) == []


def test_latents_that_are_not_finite_are_refused_and_not_stored(tmp_path: Path, checkpoint: Path) -> None:
    weights = checkpoint / "transformer/diffusion_pytorch_model.safetensors"
    overwrite_tensor(weights, "proj_out.bias", float("nan"))
    list_digests(checkpoint)
    campaign = from_path(tmp_path, checkpoint)
    run = campaign.snakemake()
    assert run.status != 0
    said = explanation(run.output)
    assert said.startswith("bad result")
    assert "not finite" in said
    assert "arm 'full', prompt" in said
    assert "Traceback" not in run.output
    assert stored(campaign) == []


def test_a_black_video_is_refused_and_not_scored(tmp_path: Path, checkpoint: Path) -> None:
    weights = checkpoint / "vae/diffusion_pytorch_model.safetensors"
    overwrite_tensor(weights, "decoder.conv_out.weight", 0.0)
    overwrite_tensor(weights, "decoder.conv_out.bias", -5.0)
    list_digests(checkpoint)
    campaign = from_path(tmp_path, checkpoint)
    run = campaign.snakemake()
    assert run.status != 0
    said = explanation(run.output)
    assert said.startswith("bad result")
    assert "every frame is black" in said
    assert "Traceback" not in run.output
    assert not [path for path in stored(campaign) if "latents" not in path]


def test_a_tokenizer_without_its_vocabulary_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    file = checkpoint / "tokenizer/tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = tokenizer["model"]["vocab"][:3]
    file.write_text(json.dumps(tokenizer))
    list_digests(checkpoint)
    campaign = from_path(tmp_path, checkpoint)
    run = campaign.snakemake()
    assert run.status != 0
    assert explanation(run.output).startswith("missing weights")
    assert stored(campaign) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda directory: (directory / "tokenizer/tokenizer.json").unlink(),
            "every prompt would become unknown tokens",
        ),
        (lambda directory: truncate(directory / "vae/diffusion_pytorch_model.safetensors"), "this file is truncated"),
        (lambda directory: directory.rename(directory.with_name("away")), "there is no such model directory"),
    ],
    ids=["missing tokenizer", "truncated weights", "missing directory"],
)
def test_a_damaged_checkpoint_fails_the_review(
    tmp_path: Path, checkpoint: Path, damage: Callable[[Path], object], said: str
) -> None:
    campaign = from_path(tmp_path, checkpoint)
    damage(checkpoint)
    run = campaign.snakemake("--dry-run")
    assert run.status != 0
    assert said in " ".join(run.output.split())
    assert str(checkpoint) in run.output
    assert "Traceback" not in run.output
    assert not (campaign.directory / "scratch").exists()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def test_a_mistake_in_the_experiment_fails_the_review_with_its_line(tmp_path: Path) -> None:
    document = small_document()
    document["arms"]["full"]["guidence"] = 3.0
    campaign = new_campaign(tmp_path / "campaign", document)
    run = campaign.snakemake("--dry-run")
    assert run.status != 0
    text = " ".join(run.output.split())
    assert re.search(r"experiment\.yaml:\d+, key 'arms\.full\.guidence': unknown key \(found 3\.0\)", text), text
    assert "Did you mean 'guidance'" in text
    assert "Traceback" not in run.output
    assert not (campaign.directory / "scratch").exists()


def test_another_experiment_is_not_mixed_with_the_demo(tmp_path: Path) -> None:
    document = small_document()
    document["arms"] = {"only": document["arms"]["full"]}
    document["baseline"] = "only"
    document["scoring"]["dimensions"] = ["temporal_flickering"]
    campaign = new_campaign(tmp_path / "campaign", document)
    assert campaign.plan().arms == ["only"]
    assert campaign.snakemake("--dry-run").jobs == campaign.plan().jobs


def test_another_ffmpeg_is_refused(campaign: Campaign, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "ffmpeg"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(other))
    campaign.document["encoder"] = {"crf": 30}
    campaign.write()
    run = campaign.snakemake("scratch/small/videos/full/s0.jsonl")
    assert run.status != 0
    assert explanation(run.output).startswith("wrong environment")
    assert str(other) in run.output


def test_an_interpreter_that_the_profile_names_is_used_or_named_as_missing(campaign: Campaign, tmp_path: Path) -> None:
    campaign.document["encoder"] = {"crf": 31}
    campaign.write()
    videos = "scratch/small/videos/full/s0.jsonl"
    missing = campaign.snakemake(videos, "--config", 'toolchains={"diffusion": "/nowhere/python"}')
    assert missing.status != 0
    assert "/nowhere/python" in explanation(missing.output)

    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho used >> {tmp_path}/used\nexec {DIFFUSION} "$@"\n')
    wrapper.chmod(0o755)
    named = campaign.snakemake(videos, "--config", f'toolchains={{"diffusion": "{wrapper}"}}')
    assert named.status == 0, named.output
    assert (tmp_path / "used").exists()


def test_a_full_disk_is_explained_and_loses_nothing(campaign: Campaign, tmp_path: Path) -> None:
    """A store on a filesystem of its own that is too small for what has to be written."""
    small = tmp_path / "small-disk"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no permission to mount a small filesystem here: {mounted.stderr.strip()}")
    try:
        campaign.document["paths"]["scratch"] = str(small / "scratch")
        campaign.document["video"] = {"width": 128, "height": 128, "frames": 17, "fps": 8}
        campaign.document["seeds"] = [0]
        campaign.write()
        run = campaign.snakemake("--cores", "1")
        assert run.status != 0
        assert "disk full" in run.output or "No space left" in run.output, run.output
        assert (campaign.directory / "work/small/evidence/plan.json").exists(), "what was there stays"
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)
