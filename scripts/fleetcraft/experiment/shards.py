"""Shards: stable groups of (prompt, seed) pairs, the same in every arm.

Pairs are laid out by seed, then by the digest of their prompt, and that order is halved again and again until a group
holds at most `size` pairs. Where a pair lands depends on its own prompt and seed; how far its neighbourhood is halved
depends on that neighbourhood alone. So an added prompt touches one group of each seed, an added seed makes new groups
and leaves the others as they are, and the order of the prompts in their file never counts.

Where `size` is at least twice the number of prompts, a group has all prompts and as many seeds as fit, and is less
stable: an added prompt is in every group, and where fewer seeds fit with it, parts seeds that shared one; an added seed
may halve the group that it falls into. What was made stays what it is, but for arms whose batches are cut otherwise.

Further seeds, which only the prompts of some dimension have, make groups of their own beside these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.ground.digests import sha256_text

_SEED_BITS = 63
_PROMPT_BITS = 256

T = TypeVar("T")


@dataclass(frozen=True)
class Shard(Generic[T]):
    """A group: all `prompts` with all `seeds`, in that nesting. `name` is stable and fit for a file name.

    `further` is the dimension whose prompts have these seeds besides those of all prompts.
    """

    name: str
    prompts: tuple[T, ...]
    seeds: tuple[int, ...]
    further: str | None = None

    def __len__(self) -> int:
        return len(self.prompts) * len(self.seeds)

    @property
    def pairs(self) -> Iterator[tuple[T, int]]:
        """All (prompt, seed), in the order in which their samples are made."""
        return ((prompt, seed) for seed in self.seeds for prompt in self.prompts)


class Shards(Mapping[str, Shard[T]]):
    """By name, the groups of at most `size` pairs of `prompts`, whose texts, each once, are `texts`, and `seeds`.

    A shard is made when it is asked for, so that a job which needs one doesn't pay for the campaign's thousands.
    """

    def __init__(self, prompts: Sequence[T], texts: Sequence[str], seeds: Sequence[int], size: int):
        places = sorted((int(sha256_text(text), 16), index) for index, text in enumerate(texts))
        ordered = [(place, prompts[index]) for place, index in places]
        # Every seed has every prompt, so the prompts are halved once and for all seeds alike.
        prompt_groups = _halve(ordered, _PROMPT_BITS, size)
        seeds_together = max(1, size // len(prompts))
        if seeds_together > 1:
            seed_groups = _halve([(seed, seed) for seed in sorted(seeds)], _SEED_BITS, seeds_together)
        else:
            seed_groups = [_Group(f"{seed:0{_SEED_BITS}b}", [(seed, seed)]) for seed in sorted(seeds)]
        self._seeds = {_span(group.prefix): tuple(seed for _, seed in group.members) for group in seed_groups}
        self._prompts = {
            f"-p{group.prefix}" if group.prefix else "": tuple(prompt for _, prompt in group.members)
            for group in prompt_groups
        }

    def __getitem__(self, name: str) -> Shard[T]:
        span, mark, prefix = name.partition("-p")
        return Shard(name, self._prompts[mark + prefix], self._seeds[span])

    def __iter__(self) -> Iterator[str]:
        return (span + part for span in self._seeds for part in self._prompts)

    def __len__(self) -> int:
        return len(self._seeds) * len(self._prompts)


class SuiteShards(Mapping[str, Shard[Prompt]]):
    """The shards of all prompts with their seeds; the names of those of further seeds begin with their dimension."""

    def __init__(self, prompts: Sequence[Prompt], seeds: Seeds, size: int):
        self._base = Shards(prompts, [prompt.text for prompt in prompts], seeds.base, size)
        self._further: dict[str, Shards[Prompt]] = {}
        for dimension, further in seeds.further.items():
            some = [prompt for prompt in prompts if dimension in prompt.dimensions]
            self._further[dimension] = Shards(some, [prompt.text for prompt in some], further, size)

    def __getitem__(self, name: str) -> Shard[Prompt]:
        dimension, _, rest = name.partition("-")
        if dimension not in self._further:
            return self._base[name]
        return replace(self._further[dimension][rest], name=name, further=dimension)

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        for dimension, shards in self._further.items():
            yield from (f"{dimension}-{name}" for name in shards)

    def __len__(self) -> int:
        return len(self._base) + sum(map(len, self._further.values()))


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
