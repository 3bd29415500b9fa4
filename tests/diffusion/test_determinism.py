"""The same bytes again: in another process, with other threads, after a crash; and never a graph of gradients."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_exactness import FULL, PROMPTS, generate_job, made
from test_families import decoded_by_the_pipeline
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fleetcraft.ground.records import read_records
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import Decoder, Denoiser
from fleetcraft.stages import generate
from fleetcraft.store.store import Store

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

CHILD = """
import dataclasses, hashlib, json, sys
from pathlib import Path
import numpy, torch
from safetensors.torch import save_file
from fleetcraft.pipelines import numerics
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings

threads = torch.get_num_threads()
numerics.pin("cpu")
settings, prompt, seed = DenoiseSettings(**json.loads(sys.argv[1])), sys.argv[2], int(sys.argv[3])
frames = {}
for family in FAMILIES:
    module, model = FAMILIES[family].load(), Path("models", family)
    module.build_tiny(model, 0)
    (latents,), _ = module.load_denoiser(model, settings, "cpu").denoise([prompt], [seed])
    save_file({"latents": latents.clone()}, f"{family}.safetensors")
    chunks = list(module.load_decoder(model, "cpu").decode(latents))
    frames[family] = hashlib.sha256(numpy.concatenate(chunks).tobytes()).hexdigest()
Path("result.json").write_text(json.dumps({"threads": threads, "frames": frames}))
"""
"""Denoises and decodes a sample of each family, in one process for all: most of the time goes into imports."""


@pytest.fixture(scope="session")
def children(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Threads that the environment asks for → where a process left what it made."""
    places = {threads: tmp_path_factory.mktemp(f"threads{threads}") for threads in (1, 2)}
    arguments = [json.dumps(dataclasses.asdict(FULL)), PROMPTS[0], "7"]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, *arguments],
            cwd=place,
            env=os.environ
            | {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
        )
        for threads, place in places.items()
    ]
    assert [child.wait() for child in running] == [0, 0]
    return places


@pytest.fixture
def denoiser(family: str, tiny: Path) -> Denoiser:
    return FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")


@pytest.fixture
def decoder(family: str, tiny: Path) -> Decoder:
    return FAMILIES[family].load().load_decoder(tiny, "cpu")


def test_a_video_is_the_same_bytes_in_other_processes_and_with_other_threads(
    family: str, tiny: Path, denoiser: Denoiser, decoder: Decoder, children: dict[int, Path]
) -> None:
    (latents,), _ = denoiser.denoise(PROMPTS[:1], [7])
    whole = decoded_by_the_pipeline(family, tiny, FULL, seed=7)
    for threads, place in children.items():
        result = json.loads((place / "result.json").read_text())
        assert result["threads"] == threads, "the environment was heard"
        theirs = load_file(place / f"{family}.safetensors")["latents"]
        assert torch.equal(theirs, latents)
        assert np.array_equal(np.concatenate(list(decoder.decode(theirs))), whole)
        assert result["frames"][family] == hashlib.sha256(whole.tobytes()).hexdigest()


def test_a_killed_shard_is_finished_with_the_bytes_that_it_would_have_had(
    family: str, tiny: Path, tmp_path: Path
) -> None:
    job = generate_job(family, tiny, tmp_path / "killed", batch=2, count=4)
    started, child_s_end = os.pipe()
    if (child := os.fork()) == 0:
        _generate_until_the_middle_of_the_second_batch(job, child_s_end)
    os.close(child_s_end)
    assert os.read(started, 1), "it got there"
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert Store(job.store).keys("latents") == {f"{number:032}" for number in (0, 1)}
    assert not Path(job.output).exists()
    generate.run(job)

    undisturbed = generate_job(family, tiny, tmp_path / "undisturbed", batch=2, count=4)
    generate.run(undisturbed)
    assert made(job) == made(undisturbed)
    assert [record["work"] for record in read_records(Path(job.output))] == [
        record["work"] for record in read_records(Path(undisturbed.output))
    ]


def _generate_until_the_middle_of_the_second_batch(job: Any, end: int) -> None:
    """In a child: say so through `end`, and wait there to be killed. Never returns."""
    try:
        family, calls = FAMILIES[job.settings["family"]], 0
        per_batch = FULL.steps * (2 if family.guidance == "two forwards" else 1)

        def count(module: torch.nn.Module, _inputs: Any) -> None:
            nonlocal calls
            calls += isinstance(module, family.load().TRANSFORMER)
            if calls == per_batch + per_batch // 2 + 1:
                os.write(end, b".")
                signal.pause()

        register_module_forward_pre_hook(count)
        generate.run(job)
    finally:
        os._exit(1)


# ---------------------------------------------------------------------- no graph


@pytest.fixture
def calls() -> Iterator[list[tuple[bool, bool]]]:
    """Of each module that runs: whether in inference mode, and whether anything that it returns has a graph."""
    seen: list[tuple[bool, bool]] = []

    def look(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        tensors = [output] if isinstance(output, torch.Tensor) else getattr(output, "values", lambda: output)()
        graph = any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors or ())
        seen.append((torch.is_inference_mode_enabled(), graph))

    hook = register_module_forward_hook(look)
    yield seen
    hook.remove()


def test_everything_runs_in_inference_mode_and_nothing_carries_a_graph(
    family: str, denoiser: Denoiser, decoder: Decoder, calls: list[tuple[bool, bool]]
) -> None:
    latents, _ = denoiser.denoise(PROMPTS[:1], [7])
    assert latents.is_inference()
    denoised = len(calls)
    for _ in decoder.decode(latents[0]):
        assert not torch.is_inference_mode_enabled(), "whoever takes the frames is left alone"
    assert len(calls) > denoised > 50
    assert set(calls) == {(True, False)}


def test_without_inference_mode_there_would_still_be_no_graph(
    family: str, denoiser: Denoiser, decoder: Decoder, calls: list[tuple[bool, bool]]
) -> None:
    """Two nets: nobody's mistake about one of them brings activations back that stay for a backward pass."""
    with torch.enable_grad():
        latents, _ = type(denoiser).denoise.__wrapped__(denoiser, PROMPTS[:1], [7])  # type: ignore[attr-defined]
        assert not latents.requires_grad
        assert list(type(decoder).decode.__wrapped__(decoder, latents[0]))  # type: ignore[attr-defined]
    assert not any(graph for _, graph in calls)
    assert any(not inference for inference, _ in calls)
