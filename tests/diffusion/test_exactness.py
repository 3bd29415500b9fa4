"""What a sample's bytes depend on, family by family: its own prompt and seed, its place in a batch, its attention."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.records import read_records
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import Denoiser, DenoiseSettings
from fleetcraft.stages import generate
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store

FULL = DenoiseSettings("float32", 3, 5.0, "", None, None, width=64, height=32, frames=9, fps=8)
PROMPTS = ["a red bicycle", "a blue boat on a lake", "x", "a cat that sleeps on a very long and very soft sofa"]

BATCH_TOLERANCE = 2e-5
"""Largest difference of a latent (their deviation is about 1) between a batch and a sample alone, in float32."""


@pytest.fixture(scope="module")
def denoiser(family: str, tiny: Path) -> Denoiser:
    return FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")


def together(denoiser: Denoiser, *numbers: int) -> torch.Tensor:
    """Latents of the samples of these numbers, denoised as one batch; every number has a prompt and a seed."""
    latents, _ = denoiser.denoise([PROMPTS[number] for number in numbers], [100 + number for number in numbers])
    return latents


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


# ---------------------------------------------------------------------- batches


def test_a_sample_of_a_batch_does_not_depend_on_who_the_others_are(denoiser: Denoiser) -> None:
    """Length of their prompts included. So a key names a sample's place in its batch, and not its company."""
    first, second = together(denoiser, 0, 1), together(denoiser, 0, 3)
    assert torch.equal(first[0], second[0])
    first, second = together(denoiser, 1, 2, 0), together(denoiser, 3, 2, 2)
    assert torch.equal(first[1], second[1])


def test_a_batch_is_the_same_bytes_again(denoiser: Denoiser) -> None:
    assert torch.equal(together(denoiser, 0, 1, 2), together(denoiser, 0, 1, 2))


def test_size_and_place_of_a_batch_change_no_more_than_the_last_bits(denoiser: Denoiser) -> None:
    alone = together(denoiser, 0)[0]
    two, swapped, three = together(denoiser, 0, 1), together(denoiser, 1, 0), together(denoiser, 2, 1, 0)
    for batched in (two[0], swapped[1], three[2]):
        assert apart(batched, alone) < BATCH_TOLERANCE
    assert apart(alone, together(denoiser, 1)[0]) > 0.1, "and another prompt changes a lot"


def generate_job(family: str, model: Path, directory: Path, batch: int, count: int) -> Job:
    """A shard of `count` samples; their ids are their numbers."""
    samples = [
        {"arm": "full", "sample": f"{number:032}", "prompt": PROMPTS[number % 4], "seed": number}
        for number in range(count)
    ]
    settings = {
        "arm": "full",
        "family": family,
        "model_directory": str(model),
        "device": "cpu",
        "hardware": None,
        "shape": FAMILIES[family].geometry.latent_shape(FULL.width, FULL.height, FULL.frames),
        "batch": batch,
        "long_prompts": "refuse",
        "denoise": dataclasses.asdict(FULL),
    }
    store, output = str(directory / "store"), str(directory / "manifest.jsonl")
    return Job("generate", "diffusion", ("torch",), store, output, tuple(samples), settings)


def made(job: Job) -> dict[str, str]:
    """Sample → digest of its latents, by the shard's manifest."""
    return {record["sample"]: record["sha256"] for record in read_records(Path(job.output))}


def test_a_shard_s_batches_are_full_and_the_same_whatever_the_store_lacks(
    family: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = generate_job(family, tiny, tmp_path, batch=2, count=5)
    generate.run(job)
    whole, records = made(job), read_records(Path(job.output))
    assert [record["batch"] for record in records] == [{"size": 2, "place": place} for place in (0, 1, 0, 1, 0)]
    assert len(whole) == len(set(whole.values())) == 5
    store = Store(job.store)
    for lost in ((4,), (3,), (0, 3)):
        for number in lost:
            store.discard("latents", f"{number:032}")
        kept = {key: store.record_file("latents", key).read_bytes() for key in whole if store.find("latents", key)}
        generate.run(job)
        assert f"{len(lost)}/{len(lost)} made" in capsys.readouterr().out
        assert made(job) == whole
        assert all(store.record_file("latents", key).read_bytes() == record for key, record in kept.items())


def test_an_error_about_an_arm_s_setting_names_its_key_in_the_experiment(
    family: str, tiny: Path, tmp_path: Path
) -> None:
    job = generate_job(family, tiny, tmp_path, batch=1, count=1)
    job.settings["denoise"]["attention"] = "efficient"
    with pytest.raises(BadInput, match=r"key 'arms\.full\.attention'.*found 'efficient'"):
        generate.run(job)


# ---------------------------------------------------------------------- long prompts

LONG = " ".join(["a slow boat on the lake"] * 40)


@pytest.mark.parametrize("prompt", [LONG, PROMPTS[0], "&amp;  spaces "], ids=["long", "short", "untidy"])
def test_what_a_reader_says_is_what_reaches_the_text_encoder(
    family: str, tiny: Path, denoiser: Denoiser, prompt: str
) -> None:
    pipeline = denoiser.pipeline  # type: ignore[attr-defined]
    for name, reader in FAMILIES[family].load().load_readers(tiny).items():
        given = []
        encoder, tokenizer = getattr(pipeline, name), getattr(pipeline, name.replace("text_encoder", "tokenizer"))

        def look(_: object, arguments: Any, named: Any, given: list[torch.Tensor] = given) -> None:
            given.append(named.get("input_ids", arguments[0] if arguments else None)[0])

        hook = encoder.register_forward_pre_hook(look, with_kwargs=True)
        denoiser.denoise([prompt], [0])
        hook.remove()
        reading, ids = reader.read(prompt), given[0].tolist()
        end, padding = reader.lead + reading.taken, tokenizer.pad_token_id
        assert set(ids[end:]) <= {padding}
        assert padding not in ids[: end - 1]
        assert ids[end - 1] in {tokenizer.eos_token_id, *ids[: end - 1]}, "CLIP's padding is its end of text"
        assert (reading.tokens > reading.taken) == bool(reading.cut) == (prompt == LONG)
        assert LONG.endswith(reading.cut)


def test_a_prompt_that_is_too_long_is_refused_before_weights_are_loaded(
    family: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    for weights in model.glob("t*/*.safetensors"):
        weights.unlink()
    job = generate_job(family, model, tmp_path, batch=1, count=3)
    job.samples[1]["prompt"], job.samples[2]["prompt"] = LONG, LONG + " again"
    with pytest.raises(
        BadInput, match=rf"key 'prompts': .*{family} takes: its text_encoder takes \d+ of \d+ tok"
    ) as said:
        generate.run(job)
    assert "1 more prompt of this shard" in str(said.value)
    assert "prompts: {long: cut}" in str(said.value)
    assert capsys.readouterr().out.count("its text_encoder takes") == 2


def test_a_negative_prompt_that_is_too_long_is_refused_too(family: str, tiny: Path, tmp_path: Path) -> None:
    job = generate_job(family, tiny, tmp_path, batch=1, count=1)
    job.settings["denoise"]["negative_prompt"] = LONG
    with pytest.raises(BadInput, match=r"key 'arms\.full\.negative_prompt'"):
        generate.run(job)


def test_a_prompt_that_is_cut_is_made_and_said(
    family: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = generate_job(family, tiny, tmp_path, batch=1, count=2)
    job.samples[1]["prompt"], job.settings["long_prompts"] = LONG, "cut"
    generate.run(job)
    short, long = read_records(Path(job.output))
    assert short["prompt_cut"] is False
    assert long["prompt_cut"] is True
    assert all(found["tokens"] == found["taken"] for found in short["prompt_tokens"].values())
    assert all(found["tokens"] > found["taken"] for found in long["prompt_tokens"].values())
    assert f"prompt {LONG!r}: its text_encoder takes" in capsys.readouterr().out


def test_a_summary_that_is_cut_cuts_no_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HunyuanVideo's CLIP reads 77 tokens; of any detailed prompt, Llama reads the rest."""
    FAMILIES["hunyuan_video"].load().build_tiny(tmp_path / "model", 0)
    job = generate_job("hunyuan_video", tmp_path / "model", tmp_path, batch=1, count=1)
    job.samples[0]["prompt"] = LONG[:120]
    generate.run(job)
    (record,) = read_records(Path(job.output))
    assert record["prompt_tokens"]["text_encoder_2"]["taken"] == 77
    assert record["prompt_cut"] is False
    assert "its text_encoder_2 takes 77 of" in capsys.readouterr().out


# ---------------------------------------------------------------------- attention


@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_the_wanted_attention_is_what_runs_and_it_decides_the_latents(
    family: str, tiny: Path, denoiser: Denoiser, kernel: str
) -> None:
    pinned = FAMILIES[family].load().load_denoiser(tiny, dataclasses.replace(FULL, attention=kernel), "cpu")
    latents, work = pinned.denoise(PROMPTS[:1], [100])
    assert work.attention == (kernel,)
    free, seen = denoiser.denoise(PROMPTS[:1], [100])
    assert torch.equal(latents, free) == (seen.attention == (kernel,))


def test_looking_at_the_attention_changes_no_bit_and_is_done_once(family: str, tiny: Path) -> None:
    fresh = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")
    looked = []
    fresh.pipeline.transformer.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda *_: looked.append(_get_current_dispatch_mode() is not None)
    )
    assert torch.equal(together(fresh, 0), together(fresh, 0))
    assert looked == [True] + [False] * (len(looked) - 1)


def test_attention_is_looked_at_again_after_a_forward_that_failed(
    family: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
        with pytest.raises(TypeError):
            together(fresh, 0)
    assert _get_current_dispatch_mode() is None
    assert fresh.denoise(PROMPTS[:1], [100])[1].attention == ("flash",)


def test_attention_that_is_not_available_is_refused_by_name(family: str, tiny: Path) -> None:
    pinned = FAMILIES[family].load().load_denoiser(tiny, dataclasses.replace(FULL, attention="cudnn"), "cpu")
    with pytest.raises(BadInput, match=r"'attention': the attention of \w+Transformer3DModel.*found 'cudnn'"):
        pinned.denoise(PROMPTS[:1], [100])


def test_attention_that_runs_another_kernel_than_wanted_is_refused(
    family: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would be where a family sets kernels itself."""
    monkeypatch.setattr("fleetcraft.pipelines.attention.sdpa_kernel", lambda _: sdpa_kernel([SDPBackend.MATH]))
    pinned = FAMILIES[family].load().load_denoiser(tiny, dataclasses.replace(FULL, attention="flash"), "cpu")
    with pytest.raises(BadInput, match="what ran is math"):
        pinned.denoise(PROMPTS[:1], [100])


def test_only_the_transformer_s_attention_is_pinned(tiny: Path, family: str) -> None:
    """Text encoders may mask where the transformer doesn't; what they do is the same in all arms."""
    pinned = FAMILIES[family].load().load_denoiser(tiny, dataclasses.replace(FULL, attention="math"), "cpu")
    found = []
    encoder = pinned.pipeline.text_encoder  # type: ignore[attr-defined]
    encoder.register_forward_pre_hook(lambda *_: found.append(torch.backends.cuda.flash_sdp_enabled()))
    pinned.denoise(PROMPTS[:1], [100])
    assert found
    assert all(found)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_a_family_says_whether_its_attention_is_masked(
    family: str, denoiser: Denoiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks, inside = [], []
    attention = torch.nn.functional.scaled_dot_product_attention
    transformer = denoiser.pipeline.transformer  # type: ignore[attr-defined]

    def seen(*arguments: Any, **named: Any) -> torch.Tensor:
        if inside:
            masks.append(named.get("attn_mask"))
        return attention(*arguments, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    hooks = [
        transformer.register_forward_pre_hook(lambda *_: inside.append(True)),
        transformer.register_forward_hook(lambda *_: inside.clear()),
    ]
    together(denoiser, 0)
    for hook in hooks:
        hook.remove()
    assert masks
    assert any(mask is not None for mask in masks) == FAMILIES[family].masked
