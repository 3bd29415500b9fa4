"""Stage generate: denoise prompts to latents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.records import Record
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DenoiseSettings
from fleetcraft.stages.job import Job
from fleetcraft.stages.provenance import Stopwatch, peaks, provenance
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

        settings, watch = job.settings, Stopwatch()
        numerics.pin(settings["device"])
        with watch.phase("load"):
            denoiser = (
                FAMILIES[settings["family"]]
                .load()
                .load_denoiser(
                    Path(settings["model_directory"]), DenoiseSettings(**settings["denoise"]), settings["device"]
                )
            )
        for sample in samples:
            timer = Stopwatch()
            with timer.phase("denoise"):
                latents, work = denoiser.denoise(sample["prompt"], sample["seed"])
            _check(latents, tuple(settings["shape"]), sample)
            record = {
                "sample": sample["sample"],
                "prompt": sample["prompt"],
                "seed": sample["seed"],
                "shape": list(latents.shape),
                "dtype": str(latents.dtype).removeprefix("torch."),
                "work": asdict(work),
                "seconds": {**watch.seconds, **timer.seconds},
                "peaks": peaks(),
                "made": provenance(job.packages),
            }
            yield store.commit("latents", sample["sample"], record, partial(_save, latents, sample["sample"]))

    fill(job, "latents", "sample", make)


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
