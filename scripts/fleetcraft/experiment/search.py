"""Searches as a plan knows them: which candidates there are, and which of them were chosen.

A candidate is made as any sample is, by the jobs of an arm; but that arm is the plan's own and has no place in tables.
There are two kinds of them:

    draft@3      the arm `draft` with the fourth candidate of every seed in its place, whatever search asks for it;
                 the first candidate, 0, is the video of the arm itself
    best@2.0     of the search `best`, round 2: the best of those that round 1 has kept

The videos of the search itself are those of its winners, in the arm that it recommits in. So a candidate, and a winner,
is a sample like those of other arms: it is made once, whoever asks for it.

Who the winners are is known only when the candidates were scored. Digests of jobs depend on what decides the choice,
not on the choice, so they are known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetcraft.experiment.arms import Search
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.records import Record
from fleetcraft.search.choice import VERSION, best, read_choices
from fleetcraft.search.seeds import candidate_seed

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan


@dataclass(frozen=True)
class Choice:
    """The choice of a round: its search, and its number from 1."""

    search: str
    round: int


@dataclass(frozen=True)
class Candidate:
    """An arm of the plan's own, or a searched one: samples of the arm `made_in`, from other seeds than the plan's.

    draws : the number of the candidate, or the choice whose kept ones it takes.
    place : which of the kept ones, from 0, the best.
    """

    name: str
    made_in: str
    draws: int | Choice
    place: int = 0


def searches_in(plan: Mapping[str, Any]) -> dict[str, Search]:
    """Searched arm → its search, of the plan that has this document."""
    return {
        arm: Search.model_validate(condition["search"])
        for arm, condition in plan["conditions"].items()
        if "search" in condition
    }


def entrants(name: str, search: Search) -> list[list[str]]:
    """The arms of each round's candidates, in their order."""
    first, ((entering, _), *others) = search.rounds[0].arm, search.counts
    return [
        [first, *(f"{first}@{number}" for number in range(1, entering))],
        *([f"{name}@{number}.{place}" for place in range(count)] for number, (count, _) in enumerate(others, 2)),
    ]


def candidates(searches: Mapping[str, Search]) -> dict[str, Candidate]:
    """By their names, all arms that are not as the experiment's seeds have it; the searched ones last."""
    found: dict[str, Candidate] = {}
    for name, search in searches.items():
        for number, (one, arms) in enumerate(zip(search.rounds, entrants(name, search), strict=True), 1):
            for place, arm in enumerate(arms):
                if arm != one.arm:
                    draws = place if number == 1 else Choice(name, number - 1)
                    found[arm] = Candidate(arm, one.arm, draws, 0 if number == 1 else place)
    for name, search in searches.items():
        found[name] = Candidate(name, search.recommit, Choice(name, len(search.rounds)))
    return found


class Searches:
    """The searches of a plan.

    candidates : every arm that takes part, by name; searched arms among them.
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self._searches = plan.experiment.searches
        self.candidates = candidates(self._searches)
        self.digest: Callable[[Choice, str], str] = lru_cache(maxsize=None)(self._make_digest)
        """Of a choice and a shard: what the choice there depends on."""

    @property
    def hidden(self) -> list[str]:
        """The arms that no experiment names."""
        return [name for name in self.candidates if name not in self._searches]

    @property
    def choices(self) -> Iterator[Choice]:
        for name, search in self._searches.items():
            for number in range(1, len(search.rounds) + 1):
                yield Choice(name, number)

    def made_in(self, arm: str) -> str:
        """The arm of the experiment that has the settings of `arm`."""
        return self.candidates[arm].made_in if arm in self.candidates else arm

    def entrants(self, choice: Choice) -> list[str]:
        """The arms of the candidates that a choice is made among."""
        return entrants(choice.search, self._searches[choice.search])[choice.round - 1]

    def before(self, arm: str) -> Choice | None:
        """The choice that decides what `arm` is made of; None where the plan does."""
        draws = self.candidates[arm].draws if arm in self.candidates else None
        return draws if isinstance(draws, Choice) else None

    def manifest(self, choice: Choice, shard: str) -> Path:
        """The file of what was chosen in a shard."""
        return Path(self._plan.paths.choices(choice.search, str(choice.round), shard))

    def keep(self, choice: Choice) -> int:
        return self._searches[choice.search].counts[choice.round - 1][1]

    def kept(self, choice: Choice, shard: str) -> dict[tuple[str, int], list[int]]:
        """(prompt, seed) → the seeds of the candidates that were kept, best first.

        Raises
        ------
        PurgedScratch : nothing was chosen yet, or its record has gone.
        """
        return {(record["prompt"], record["seed"]): record["kept"] for record in self._records(choice, shard)}

    def ranked(self, choice: Choice, shard: str) -> dict[tuple[str, int], list[Record]]:
        """(prompt, seed) → the candidates that have a value, best first, as the choice recorded them; see `kept`."""
        prefer = self._searches[choice.search].prefer
        found = {}
        for record in self._records(choice, shard):
            candidates = record["candidates"]
            places = best([one["value"] for one in candidates], len(candidates), prefer)
            found[record["prompt"], record["seed"]] = [candidates[place] for place in places]
        return found

    def drawn(self, arm: str, shard: str) -> dict[tuple[str, int], int]:
        """(prompt, seed) → the seed that the noise of that video in `arm` is drawn from."""
        candidate = self.candidates[arm]
        if isinstance(candidate.draws, Choice):
            return {about: seeds[candidate.place] for about, seeds in self.kept(candidate.draws, shard).items()}
        number = candidate.draws
        return {(prompt.text, seed): candidate_seed(seed, number) for prompt, seed in self._plan.shards[shard].pairs}

    def _records(self, choice: Choice, shard: str) -> list[Record]:
        return read_choices(self.manifest(choice, shard), self.digest(choice, shard))

    def _make_digest(self, choice: Choice, shard: str) -> str:
        search, plan = self._searches[choice.search], self._plan
        scores = [plan.score_digest(arm, search.verifier, shard) for arm in self.entrants(choice)]
        return key_of({"choice": VERSION, "keep": self.keep(choice), "prefer": search.prefer, "scores": scores})
