"""The directory of a verifier, once its bytes were compared with its list of digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetcraft.mirror.digests import verify_digests
from fleetcraft.mirror.memory import Memory, cache_home


def verified_directory(weights: dict[str, Any]) -> Path:
    """`directory` of `weights`, in which every file has the SHA-256 that `files` say.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : one hasn't.
    """
    directory = Path(weights["directory"])
    if wrong := verify_digests(directory, weights["files"], Memory(cache_home()), readers=1).findings:
        raise wrong[0]
    return directory
