"""Shards: stable groups of (prompt, seed) pairs, the same in every arm.

Pairs are laid out by seed, then by the digest of their prompt, and that order is halved again and again until a group
holds at most `size` pairs. Where a pair lands depends on its own prompt and seed; how far its neighbourhood is halved
depends on that neighbourhood alone. So an added prompt touches one group of each seed, an added seed makes new groups
and leaves the others as they are, and the order of the prompts in their file never counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleetcraft.ground.digests import sha256_text

_SEED_BITS = 63
_PROMPT_BITS = 256

T = TypeVar("T")


@dataclass(frozen=True)
class Shard(Generic[T]):
    """A group: all `prompts` with all `seeds`, in that nesting. `name` is stable and fit for a file name."""

    name: str
    prompts: tuple[T, ...]
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompts) * len(self.seeds)


def make_shards(prompts: Sequence[T], texts: Sequence[str], seeds: Sequence[int], size: int) -> tuple[Shard[T], ...]:
    """The groups of all pairs of `prompts` (whose texts, each once, are `texts`) and `seeds`, of at most `size`."""
    places = sorted((int(sha256_text(text), 16), index) for index, text in enumerate(texts))
    ordered = [(place, prompts[index]) for place, index in places]
    # Every seed has every prompt, so the prompts are halved once and for all seeds alike.
    prompt_groups = _halve(ordered, _PROMPT_BITS, size)
    seeds_together = max(1, size // len(prompts))
    if seeds_together > 1:
        seed_groups = _halve([(seed, seed) for seed in sorted(seeds)], _SEED_BITS, seeds_together)
    else:
        seed_groups = [_Group(f"{seed:0{_SEED_BITS}b}", [(seed, seed)]) for seed in sorted(seeds)]
    return tuple(
        Shard(
            _span(of_seeds.prefix) + (f"-p{of_prompts.prefix}" if of_prompts.prefix else ""),
            tuple(prompt for _, prompt in of_prompts.members),
            tuple(seed for _, seed in of_seeds.members),
        )
        for of_seeds in seed_groups
        for of_prompts in prompt_groups
    )


@dataclass(frozen=True)
class _Group(Generic[T]):
    """Members with a common binary prefix of their places."""

    prefix: str
    members: Sequence[tuple[int, T]]


def _halve(members: Sequence[tuple[int, T]], bits: int, size: int, prefix: str = "") -> list[_Group[T]]:
    """Split `members`, sorted by their places of `bits` bits, until no group has more than `size`; no empty groups."""
    if len(members) <= size or len(prefix) == bits:
        return [_Group(prefix, members)] if members else []
    bit = 1 << (bits - len(prefix) - 1)
    zeros = [member for member in members if not member[0] & bit]
    ones = [member for member in members if member[0] & bit]
    return [*_halve(zeros, bits, size, f"{prefix}0"), *_halve(ones, bits, size, f"{prefix}1")]


def _span(prefix: str) -> str:
    """The seeds that a prefix of their bits covers: "s3", "s0-7", or "all"."""
    if not prefix:
        return "all"
    free = _SEED_BITS - len(prefix)
    first = int(prefix, 2) << free
    return f"s{first}" if free == 0 else f"s{first}-{first + (1 << free) - 1}"
