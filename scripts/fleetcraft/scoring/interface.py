"""What a scorer's module offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from fleetcraft.ground.errors import BadInput, BadResult, FleetcraftError
from fleetcraft.ground.ledger import Ledger


@dataclass(frozen=True)
class Pair:
    """A video to score, its prompt, and the baseline's video for dimensions that compare."""

    prompt: str
    video: Path
    baseline: Path | None

    @property
    def paired(self) -> Path:
        """The baseline's video, for a dimension that compares with it."""
        assert self.baseline is not None
        return self.baseline


Score: TypeAlias = float | FleetcraftError | None
"""A video's value; what kept it from having one, which keeps no other from it; or None, where there is none to have."""


def one_by_one(pairs: Sequence[Pair], measure: Callable[[Pair], float], ledger: Ledger) -> Iterator[list[Score]]:
    """What `measure` gives for each pair, or why it gave nothing: a video is bad, or a prompt can't be read whole."""
    for pair in pairs:
        with ledger.phase("score"):
            try:
                found: Score = measure(pair)
            except (BadInput, BadResult) as error:
                found = error
        yield [found]


class Scorer(Protocol):
    """The module of a scorer."""

    @staticmethod
    def score(
        dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger
    ) -> Iterator[Sequence[Score]]:
        """One a pair, in their order, as many at a time as are known together; none depends on the others.

        What is done once goes to the ledger's phase `load`, what each video takes to `score`.
        """
        ...
