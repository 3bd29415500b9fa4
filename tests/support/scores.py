"""A scorer's values as a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring.interface import Pair, Score, Scorer


def listed(scorer: Scorer) -> Callable[[str, Sequence[Pair], dict[str, Any]], list[Score]]:
    """The function `score` of a scorer's module with all that it gives."""

    def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any]) -> list[Score]:
        return [value for scores in scorer.score(dimension, pairs, settings, Ledger()) for value in scores]

    return score
