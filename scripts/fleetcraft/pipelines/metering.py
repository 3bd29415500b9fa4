"""What a transformer really computes, counted where it is computed."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from diffusers.models.attention import AttentionModuleMixin
from diffusers.models.attention_processor import Attention

from fleetcraft.pipelines.flops import ForwardFlops


class Meter:
    """Counts the calls of each module of a transformer, from `start` on.

    It wraps forwards, and caches wrap what they find: made before a cache is switched on, it counts what the cache lets
    through and not what the cache answers itself.
    """

    def __init__(self, transformer: torch.nn.Module):
        modules = dict(transformer.named_modules())
        lists = {name for name, module in transformer.named_children() if isinstance(module, torch.nn.ModuleList)}
        self._blocks = {name for name in modules if name.rpartition(".")[0] in lists}
        self._attentions = {
            name
            for name, module in modules.items()
            if isinstance(module, Attention | AttentionModuleMixin) and ".".join(name.split(".")[:2]) in self._blocks
        }
        self.start()
        for name, module in modules.items():
            if name:
                module.forward = self._counted(name, module.forward)
        transformer.forward = self._entered(transformer.forward)

    def start(self) -> None:
        """Begin anew, for another sample."""
        self.forwards = self.text_tokens = self._sequences = self._most = 0
        self._calls: Counter[str] = Counter()
        self._computed: Counter[str] = Counter()

    @property
    def blocks(self) -> tuple[int, int]:
        """Transformer blocks that were computed, and that would have been if nothing were skipped."""
        return self._of(self._blocks)

    @property
    def attentions(self) -> tuple[int, int]:
        """The same of the attention layers inside the blocks."""
        return self._of(self._attentions)

    def flops(self, one: ForwardFlops) -> tuple[int, int]:
        """FLOPs that were computed, and that would have been if nothing were skipped.

        Parameters
        ----------
        one : of a forward of one sequence, without a cache, of which `text_tokens` are text.
        """
        own = _own(one.modules)
        # What no module inside claims, the transformer does itself.
        own[""] = one.total - sum(own.values())
        computed = sum(flops * self._computed[name] for name, flops in own.items())
        return computed, one.total * self._most * self.forwards

    def _of(self, names: set[str]) -> tuple[int, int]:
        return sum(self._calls[name] for name in names), self.forwards * len(names)

    def _entered(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def counting(*arguments: Any, **named: Any) -> Any:
            # A cache may have taken some sequences out of the batch, never in the first forward of a sample.
            self._sequences = len(named["hidden_states"])
            self._most = max(self._most, self._sequences)
            self.text_tokens = named["encoder_hidden_states"].shape[1]
            self.forwards += 1
            self._computed[""] += self._sequences
            return forward(*arguments, **named)

        return counting

    def _counted(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def counting(*arguments: Any, **named: Any) -> Any:
            self._calls[name] += 1
            self._computed[name] += self._sequences
            return forward(*arguments, **named)

        return counting


def _own(modules: Mapping[str, int]) -> dict[str, int]:
    """FLOPs of each module without those of the modules in it, from those with them."""
    own = dict(modules)
    for name, flops in modules.items():
        parent = name.rpartition(".")[0]
        while parent and parent not in modules:
            parent = parent.rpartition(".")[0]
        if parent:
            own[parent] -= flops
    return own
