"""The seeds of prompts: those that every prompt has, and further ones where a suite wants more videos of some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seeds:
    """base : of every prompt. further : dimension of the suite → those that its prompts have besides.

    A prompt has further seeds by one dimension at most (`Plan` sees to it), and none of them is among the base.
    """

    base: Sequence[int]
    further: Mapping[str, Sequence[int]]

    @classmethod
    def of_plan(cls, document: Mapping[str, Any]) -> Seeds:
        """As the document of a plan has them."""
        return cls(document["seeds"], document.get("further_seeds", {}))

    def of(self, dimensions: Collection[str]) -> list[int]:
        """All seeds of a prompt that the suite has for `dimensions`; the place of one is its video's index."""
        return [*self.base, *(seed for name, seeds in self.further.items() if name in dimensions for seed in seeds)]

    def scored(self, dimension: str) -> list[int]:
        """Of a prompt, those whose videos are scored in one of the suite's dimensions that the prompt is for."""
        return self.of([dimension])
