"""Conditions: what makes the samples of an arm, as `plan.json` holds it and keys are made of it.

There is one class a kind of arm; each can be made again from its document, which is all that evidence has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from fleetcraft.ground.digests import key_of


class Condition(Protocol):
    """What makes the samples of an arm.

    document : everything that does, as JSON.
    kinds : the kinds of records that each of its samples has before it is scored.
    """

    document: dict[str, Any]
    kinds: tuple[str, ...]

    def sample_id(self, prompt: str, seed: int, position: int) -> str:
        """The key of the arm's sample of a prompt and seed; `position` is where its shard has it."""
        ...


class Generated:
    """A model with its settings makes the arm's samples.

    A shard's samples are denoised in batches in their order. The place in a batch may decide the last bits of a sample,
    as the size may, which is in the document; who the others are does not.
    """

    kinds: tuple[str, ...] = ("latents", "videos")

    def __init__(self, document: dict[str, Any]):
        self.document = document

    def sample_id(self, prompt: str, seed: int, position: int) -> str:
        batch = self.document["batch"]
        return key_of(_named(self._key, prompt, seed) | ({} if batch == 1 else {"place": position % batch}))

    @cached_property
    def _key(self) -> str:
        return key_of(self.document)


class Foreign:
    """The arm's videos exist already: each sample is made by its own file, and by what the file was checked against.

    The document has the SHA-256 of each file by prompt and seed, so that another file in the place of one touches one
    sample.
    """

    kinds: tuple[str, ...] = ("videos",)

    def __init__(self, document: dict[str, Any]):
        self.document = document

    @classmethod
    def of(cls, digests: Mapping[tuple[str, int], str], geometry: dict[str, int]) -> Foreign:
        """The condition of files with these digests, which are to have this `geometry`."""
        by_prompt: dict[str, dict[str, str]] = {}
        for (prompt, seed), digest in digests.items():
            by_prompt.setdefault(prompt, {})[str(seed)] = digest
        return cls({"videos": by_prompt, "geometry": geometry})

    def sample_id(self, prompt: str, seed: int, position: int) -> str:
        of_file = {"video": self.document["videos"][prompt][str(seed)], "geometry": self.document["geometry"]}
        return key_of(_named(key_of(of_file), prompt, seed))


class Searched:
    """A search finds the arm's videos, by settings that name other arms: its samples are those of its winners."""

    kinds: tuple[str, ...] = ("latents", "videos")

    def __init__(self, settings: dict[str, Any], recommit: Condition):
        self.document = {"search": settings}
        self._recommit = recommit

    def sample_id(self, prompt: str, seed: int, position: int) -> str:
        """As of the arm that winners are made in; `seed` is the one that the winner was drawn from."""
        return self._recommit.sample_id(prompt, seed, position)


def conditions_of(documents: Mapping[str, dict[str, Any]]) -> dict[str, Condition]:
    """Arm → the condition that has its document, of all arms of a plan."""

    def condition(document: dict[str, Any]) -> Condition:
        if "search" in document:
            search = document["search"]
            return Searched(search, condition(documents[search["recommit"]]))
        return Foreign(document) if "videos" in document else Generated(document)

    return {arm: condition(document) for arm, document in documents.items()}


def _named(condition_key: str, prompt: str, seed: int) -> dict[str, Any]:
    return {"condition": condition_key, "prompt": prompt, "seed": seed}
