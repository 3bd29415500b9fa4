"""The seeds of a search's candidates."""

from __future__ import annotations

from fleetcraft.ground.digests import sha256_text

_SEEDS = 1 << 53
"""Seeds are whole numbers that every reader of JSON has exactly."""


def candidate_seed(seed: int, candidate: int) -> int:
    """What the noise of a candidate is drawn from, for a video of the experiment's `seed`.

    The first candidate, 0, is the video that the arm has anyway. The others depend on nothing but `seed` and their
    number: the candidates of a larger search begin with those of a smaller one.
    """
    if candidate == 0:
        return seed
    return int(sha256_text(f"candidate {candidate} of seed {seed}"), 16) % _SEEDS
