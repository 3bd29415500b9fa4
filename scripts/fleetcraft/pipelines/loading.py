"""Loading the parts of a checkpoint: offline, in the arm's dtype, and never with something missing in silence.

No parameter asks for gradients: where somebody forgets inference mode, there is still no graph that keeps activations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers.utils import logging as diffusers_logging

from fleetcraft.ground.errors import MissingWeights

diffusers_logging.disable_progress_bar()


def load_text_encoder(model_class: Any, directory: Path, dtype: str) -> Any:
    """A text encoder of transformers."""
    return _load_of_transformers(model_class, directory, dtype, "text encoder")


def load_verifier(model_class: Any, directory: Path, device: str, dtype: str) -> Any:
    """A model of transformers that scores videos."""
    return _load_of_transformers(model_class, directory, dtype, "verifier").to(device).eval()


def load_transformer(model_class: Any, directory: Path, dtype: str) -> Any:
    """The denoising transformer, in the arm's dtype."""
    transformer = model_class.from_pretrained(directory, torch_dtype=getattr(torch, dtype), local_files_only=True)
    _refuse_missing(_meta_tensors(transformer), "transformer", directory)
    return transformer.requires_grad_(False)


def load_vae(model_class: Any, directory: Path, device: str, dtype: str) -> Any:
    """The VAE, with tiling and slicing off: they change pixels."""
    vae = model_class.from_pretrained(directory, torch_dtype=getattr(torch, dtype), local_files_only=True)
    _refuse_missing(_meta_tensors(vae), "VAE", directory)
    vae.use_tiling = vae.use_slicing = False
    return vae.requires_grad_(False).to(device).eval()


def load_pipeline(pipeline_class: Any, directory: Path, device: str, **parts: Any) -> Any:
    """A pipeline of these parts and, from the checkpoint, of its tokenizers and scheduler; without its VAE."""
    pipeline = pipeline_class.from_pretrained(directory, vae=None, local_files_only=True, **parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device)


def load_tokenizers(pipeline_class: Any, directory: Path, *names: str) -> list[Any]:
    """The tokenizers of a checkpoint as its pipeline loads them, and nothing else of it."""
    index = pipeline_class.load_config(directory, local_files_only=True)
    others = {name: None for name, part in index.items() if isinstance(part, list) and name not in names}
    pipeline = pipeline_class.from_pretrained(directory, local_files_only=True, **others)
    return [getattr(pipeline, name) for name in names]


def _load_of_transformers(model_class: Any, directory: Path, dtype: str, part: str) -> Any:
    """Transformers fills weights that a checkpoint lacks with random numbers, and goes on."""
    model, report = model_class.from_pretrained(
        directory, dtype=getattr(torch, dtype), output_loading_info=True, local_files_only=True
    )
    _refuse_missing(sorted(report["missing_keys"]), part, directory)
    return model.requires_grad_(False)


def _meta_tensors(module: torch.nn.Module) -> list[str]:
    """What diffusers didn't find in a checkpoint stays on the `meta` device."""
    return [name for name, tensor in module.state_dict().items() if tensor.is_meta]


def _refuse_missing(names: list[str], part: str, directory: Path) -> None:
    if names:
        raise MissingWeights(
            f"{len(names)} tensors of the {part} are missing, the first is {names[0]}",
            file=directory,
            remedy="Mirror the checkpoint again and verify its digests",
        )
