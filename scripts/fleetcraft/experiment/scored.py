"""Which videos are scored in which dimension: one rule, for the jobs of a plan and for the evidence that they leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from fleetcraft.experiment.alike import not_compared_in
from fleetcraft.experiment.arms import Search
from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.search import entrants, searches_in
from fleetcraft.ground.errors import BadInput
from fleetcraft.scoring.dimensions import DIMENSIONS, Dimension
from fleetcraft.scoring.verifiers import VERIFIERS


class Scored:
    """What is scored of an experiment.

    Parameters
    ----------
    dimensions : those that its arms are scored in, by name.
    arms : its own; any other is one of a search's candidates.
    not_compared : the arms that are not compared with the baseline.
    """

    def __init__(
        self,
        dimensions: Sequence[Dimension],
        arms: Collection[str],
        baseline: str,
        not_compared: Collection[str],
        searches: Mapping[str, Search],
    ):
        self._dimensions = {dimension.name: dimension for dimension in dimensions}
        self._arms = frozenset(arms)
        self._unpaired = {baseline, *not_compared}
        self._verifiers: dict[str, set[str]] = {}
        for name, search in searches.items():
            for candidates in entrants(name, search):
                for arm in candidates:
                    self._verifiers.setdefault(arm, set()).add(search.verifier)

    @classmethod
    def of_plan(cls, document: Mapping[str, Any]) -> Self:
        """As the document of a plan has it.

        Raises
        ------
        BadInput : it has a dimension that this version doesn't know.
        """
        verifiers = document["experiment"]["scoring"].get("verifiers", {})
        known = DIMENSIONS | {name: VERIFIERS[one["type"]].dimension(name, 1, 0) for name, one in verifiers.items()}
        for name in document["scorers"]:
            if name not in known:
                raise BadInput(
                    "this version of Fleetcraft knows no such dimension, so nobody can tell what was to be scored",
                    file="plan.json",
                    key=f"scorers.{name}",
                    remedy="Verify with the version that source.json names",
                )
        return cls(
            [known[name] for name in document["scorers"]],
            document["conditions"],
            document["baseline"],
            not_compared_in(document),
            searches_in(document),
        )

    def dimensions(self, arm: str) -> list[str]:
        """Those that the videos of an arm are scored in.

        A candidate that no experiment names is scored in those of whoever chooses from it; and what compares with the
        baseline needs an arm that may be compared.
        """
        return [
            name
            for name, dimension in self._dimensions.items()
            if (arm in self._arms or name in self._verifiers.get(arm, ()))
            and not (dimension.pairwise and arm in self._unpaired)
        ]

    def is_pairwise(self, dimension: str) -> bool:
        """Whether it compares with the baseline's video of the same prompt and seed."""
        return self._dimensions[dimension].pairwise

    def has(self, dimension: str, prompt: Prompt, further: str | None) -> bool:
        """Whether a video of `prompt` is scored in `dimension`, in the arms that are.

        further : the dimension that the video's seed is a further one of; None where all prompts have the seed.
        """
        known = self._dimensions[dimension]
        return further in (None, known.suited) and known.suits(prompt.dimensions)
