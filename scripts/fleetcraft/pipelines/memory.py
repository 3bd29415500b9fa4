"""Who holds memory in a pipeline: the bytes of weights, of caches between steps, of what a VAE remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from diffusers.hooks import HookRegistry

from fleetcraft.ground.ledger import Held, held


def held_by(tensors: Iterable[torch.Tensor]) -> Held:
    """What these tensors hold, each piece of memory counted once; device memory is None where there is no device."""
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    host = device = 0
    for tensor in storages.values():
        size = tensor.untyped_storage().nbytes()
        if tensor.device.type == "cpu":
            host += size
        else:
            device += size
    return held(host, device if torch.cuda.is_available() else None)


def weights(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The parameters and buffers of a module."""
    yield from module.parameters()
    yield from module.buffers()


def remembered(transformer: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors that the hooks of diffusers' caches keep in a transformer from one step to the next."""
    for module in transformer.modules():
        registry = getattr(module, "_diffusers_hook", None)
        if isinstance(registry, HookRegistry):
            for hook in registry.hooks.values():
                yield from tensors_in(vars(hook))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in containers and in the states of caches, however deep; not those of modules."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif type(value).__module__.startswith("diffusers.hooks") and hasattr(value, "__dict__"):
        yield from tensors_in(vars(value))
