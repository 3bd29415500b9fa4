"""Which kernel computes the transformer's attention: pinned where an arm says so, and seen in any case.

Torch chooses by device, dtype, shape and mask, so the same settings can run another kernel elsewhere. Diffusers' own
switch is not used: several families ignore it without a word.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from fleetcraft.ground.errors import BadInput

_BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

_KERNELS = {
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
}

_REFUSALS = ("No viable backend for scaled_dot_product_attention", "No available kernel")
"""How torch says that none of the kernels that it may use takes what it was given, on a CPU and on a GPU."""


class Attention:
    """The attention of one transformer. Text encoders are left to torch's choice.

    The first forward is looked at, for the others give torch the same shapes, types and masks to choose by: a sample
    pays nothing, and neither does a timed pass after its warm-up.

    Parameters
    ----------
    wanted : the only kernel that may run; None leaves the choice to torch.
    """

    def __init__(self, transformer: torch.nn.Module, wanted: str | None):
        self._transformer, self._wanted = type(transformer).__name__, wanted
        self._seen: set[str] | None = None
        self._open = ExitStack()
        transformer.register_forward_pre_hook(self._enter)
        transformer.register_forward_hook(self._leave, always_call=True)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that ran, by their names in an arm.

        Raises BadInput where they are not the wanted one.
        """
        seen = tuple(sorted(self._seen or ()))
        if self._wanted is not None and seen != (self._wanted,):
            raise self.refusal(f"what ran is {' and '.join(seen) or 'no attention kernel of torch'}")
        return seen

    def refused(self, error: RuntimeError) -> bool:
        """Whether this is how torch says that the wanted kernel can't do it."""
        return self._wanted is not None and any(said in str(error) for said in _REFUSALS)

    def refusal(self, why: str) -> BadInput:
        """The error of an arm whose attention can't be computed as wanted."""
        return BadInput(
            f"the attention of {self._transformer} can't be computed so: {why} (torch's warnings in this log may say"
            " more)",
            key="attention",
            value=self._wanted,
            remedy="Choose another kernel, or leave the key out and let torch choose",
        )

    def _enter(self, *_: Any) -> None:
        if self._wanted is not None:
            self._open.enter_context(sdpa_kernel([_BACKENDS[self._wanted]]))
        if self._seen is None:
            self._seen = set()
            self._open.enter_context(_Watch(self._seen))

    def _leave(self, _module: Any, _inputs: Any, output: Any) -> None:
        self._open.close()
        if output is None:  # it failed, perhaps before it came to any attention
            self._seen = None


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Sees the attention kernels that run, and changes nothing."""

    def __init__(self, seen: set[str]):
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, operator: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
        name = operator.name().partition(".")[0]
        if name in _KERNELS:
            self._seen.add(_KERNELS[name])
        elif name == "aten::scaled_dot_product_attention":
            # In inference mode the choice of the kernel is made inside this operator: its own steps show it.
            with self:
                return operator.decompose(*arguments, **(named or {}))
        return operator(*arguments, **(named or {}))
