"""Weights that scorers load, once their bytes were compared with their list of digests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetcraft.mirror.digests import verify_digests
from fleetcraft.mirror.memory import Memory, cache_home


@dataclass(frozen=True)
class Weights:
    """directory : where the weights are. files : the SHA-256 of each that is needed, by path below it."""

    directory: str
    files: dict[str, str]


def verified_directory(weights: Weights) -> Path:
    """`directory` of `weights`, in which every file has the SHA-256 that `files` say.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : one hasn't.
    """
    directory = Path(weights.directory)
    if wrong := verify_digests(directory, weights.files, Memory(cache_home()), readers=1).findings:
        raise wrong[0]
    return directory
