"""Stage generate: denoise prompts to latents, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.ground.digests import sha256_bytes
from fleetcraft.ground.errors import BadInput, BadResult, FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.ground.records import Record
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings
from fleetcraft.pipelines.prompts import Reader, Readings
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import provenance
from fleetcraft.stages.shard import Sample, fill
from fleetcraft.store.store import Store

if TYPE_CHECKING:
    import torch


def run(job: Job) -> None:
    """Leave the latents of every sample in the store, and the shard's manifest.

    Torch is loaded only where there is something to make: a shard that is in the store costs a fraction of a second.
    """

    def make(store: Store, samples: list[Sample]) -> Iterator[Record]:
        from fleetcraft.pipelines import numerics

        settings, loading = job.settings, Ledger()
        numerics.pin(settings["device"], settings["hardware"])
        with loading.phase("load"), _of_arm(job):
            family, directory = FAMILIES[settings["family"]].load(), Path(settings["model_directory"])
            readings = _read_prompts(job, samples, family.load_readers(directory))
            denoiser = family.load_denoiser(directory, DenoiseSettings(**settings["denoise"]), settings["device"])
            for part, held in denoiser.weights().items():
                loading.holds(part, held)
        for batch, places in _batches(job, samples):
            ledger = Ledger(loading)
            with ledger.phase("text_encoder"), _of_arm(job):
                latents, work = denoiser.denoise(
                    [sample["prompt"] for sample in batch], [sample["seed"] for sample in batch], ledger
                )
            for place in places:
                _check(latents[place], tuple(settings["shape"]), batch[place])
            for place in places:
                sample, one = batch[place], latents[place]
                record = {
                    "sample": sample["sample"],
                    "prompt": sample["prompt"],
                    "seed": sample["seed"],
                    "shape": list(one.shape),
                    "dtype": str(one.dtype).removeprefix("torch."),
                    # Of the values alone: the file has the sample's id in it, so that no two files are equal.
                    "values_sha256": sha256_bytes(one.contiguous().numpy().tobytes()),
                    "prompt_tokens": readings[sample["prompt"]].counts,
                    "prompt_cut": readings[sample["prompt"]].mutilated,
                    "batch": {"size": len(batch), "place": place},
                    "work": asdict(work),
                    # A batch's time is shared by what it made, so that sums over records are the time that it took.
                    "seconds": loading.seconds
                    | {phase: round(seconds / len(places), 6) for phase, seconds in ledger.seconds.items()},
                    "memory": {**loading.memory, **ledger.memory},
                    "made": provenance(job.packages),
                }
                yield store.commit("latents", sample["sample"], record, partial(_save, one, sample["sample"]))

    fill(job, "latents", "sample", make)


def _read_prompts(job: Job, samples: list[Sample], readers: Mapping[str, Reader]) -> dict[str, Readings]:
    """Prompt → what the text encoders read of it. What is cut is said, and refused unless the experiment allows it.

    Before any weights are loaded: a shard with a prompt that is too long costs no more than its tokenizers.
    """
    negative, refused = job.settings["denoise"]["negative_prompt"], []
    prompts = dict.fromkeys([negative, *(sample["prompt"] for sample in samples)])
    readings = {prompt: Readings(readers, prompt) for prompt in prompts}
    for prompt, reading in readings.items():
        for said in reading.cuts:
            print(f"generate: prompt {prompt!r}: {said}")
        if reading.mutilated and job.settings["long_prompts"] == "refuse":
            refused.append(prompt)
    if refused:
        first, more = refused[0], len(refused) - 1
        raise BadInput(
            f"this prompt is longer than the family {job.settings['family']} takes: {'; '.join(readings[first].cuts)}"
            + (f" ({more} more prompt{'s' * (more > 1)} of this shard in its log)" if more else ""),
            key="negative_prompt" if first == negative else "prompts",
            value=first,
            remedy="Shorten it, or have long prompts cut: `prompts: {long: cut}`",
        )
    return readings


def _batches(job: Job, lacking: list[Sample]) -> Iterator[tuple[list[Sample], list[int]]]:
    """The batches that have something to make, with the places of what is to be made in them.

    A sample's last bits depend on the size of its batch and its place there, so a batch is always the same one and
    always full: members that are in the store already are denoised again, and the last member of a shard is repeated
    until its batch is full. Neither is committed.
    """
    size, keys = job.settings["batch"], {sample["sample"] for sample in lacking}
    for start in range(0, len(job.samples), size):
        members = list(job.samples[start : start + size])
        places = [place for place, sample in enumerate(members) if sample["sample"] in keys]
        if places:
            yield members + [members[-1]] * (size - len(members)), places


@contextmanager
def _of_arm(job: Job) -> Iterator[None]:
    """Errors about a setting name its key in the experiment."""
    try:
        yield
    except FleetcraftError as error:
        if error.key not in job.settings["denoise"]:
            raise
        raise error.below(f"arms.{job.settings['arm']}") from error


def _check(latents: torch.Tensor, shape: tuple[int, ...], sample: Sample) -> None:
    about = f"arm {sample['arm']!r}, prompt {sample['prompt']!r}, seed {sample['seed']}"
    what = f"the latents of sample {sample['sample']} ({about})"
    if tuple(latents.shape) != shape:
        raise BadResult(
            f"{what} have the shape {tuple(latents.shape)}, {shape} was planned",
            remedy="Check `video` against the model",
        )
    count = int((~latents.isfinite()).sum())
    if count:
        raise BadResult(
            f"{what} are not finite: {count:,} of {latents.numel():,} values are NaN or infinite",
            remedy="Try another dtype for this arm (float16 overflows in many models), and verify the weights",
        )


def _save(latents: torch.Tensor, sample_id: str, path: Path) -> None:
    from safetensors.torch import save

    # One metadata key: with several, safetensors writes them in an order that differs from run to run.
    path.write_bytes(save({"latents": latents.contiguous()}, metadata={"sample": sample_id}))
