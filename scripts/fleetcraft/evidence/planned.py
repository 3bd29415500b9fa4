"""Check that records are those of a plan: all that it asks for and no others, each of the sample that was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fleetcraft.analysis.latency import timed_passes
from fleetcraft.analysis.tables import Results
from fleetcraft.experiment.conditions import Condition, Generated, conditions_of
from fleetcraft.experiment.keys import score_key, video_key
from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.scored import Scored
from fleetcraft.experiment.search import Candidate, Choice, candidates, entrants, searches_in
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.shards import SuiteShards
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadResult
from fleetcraft.ground.records import Record
from fleetcraft.search.choice import choose
from fleetcraft.search.seeds import candidate_seed
from fleetcraft.timing.order import interleaved

_SCORE = ("sample", "video", "value")
"""What a choice knows of a candidate's score."""


def check_samples(plan: dict[str, Any], results: Results) -> Iterator[str]:
    """Every planned sample has a record of each kind, and of what the plan makes, as the plan encodes it."""
    shards, drawn = _shards(plan), candidates(searches_in(plan))
    settings = {arm: key_of(document) for arm, document in plan["videos"].items()}
    for arm, condition in _conditions(plan).items():
        for shard in shards.values():
            for position, (prompt, seed) in enumerate(shard.pairs):
                drawn_seed = _drawn_seed(results, drawn.get(arm), prompt.text, seed)
                if drawn_seed is None:
                    continue  # the choice isn't there, which is a finding of its own
                about = (arm, prompt.text, seed)
                expected = condition.sample_id(prompt.text, drawn_seed, position)
                key = video_key(expected, settings[arm if arm in settings else drawn[arm].made_in])
                for kind in condition.kinds:
                    record = getattr(results, kind).get(about)
                    if record is None:
                        yield f"incomplete: no {kind} record for {_told(about)}"
                    elif record["sample"] != expected:
                        yield f"mismatched: a {kind} record is of sample {record['sample']}, planned was {expected}"
                    elif kind == "videos" and record["key"] != key:
                        yield f"mismatched: the video of {_told(about)} is {record['key']}, planned was {key}"


def check_scores(plan: dict[str, Any], results: Results) -> Iterator[str]:
    """Every planned score is there, so that no bad one can have been left out, and is what the planned scorer gave the
    recorded videos."""
    shards, scored = _shards(plan), Scored.of_plan(plan)
    settings = {dimension: key_of(document) for dimension, document in plan["scorers"].items()}
    for arm in _conditions(plan):
        for dimension in scored.dimensions(arm):
            records = results.scores[dimension]
            for shard in shards.values():
                for prompt, seed in shard.pairs:
                    about = (arm, prompt.text, seed)
                    if about not in records and scored.has(dimension, prompt, shard.further):
                        yield f"incomplete: no scores record of {dimension} for {_told(about)}"
    for dimension, records in results.scores.items():
        for about, record in records.items():
            video = results.videos.get(about)
            if video is None or (video["key"], video["sample"]) != (record["video"], record["sample"]):
                yield f"mismatched: {dimension} of sample {record['sample']} is not of the recorded video"
            elif dimension in settings:
                twin = results.videos.get((plan["baseline"], *about[1:])) if scored.is_pairwise(dimension) else None
                expected = score_key(video["key"], None if twin is None else twin["key"], settings[dimension])
                if record.get("key") != expected:
                    yield f"mismatched: {dimension} of {_told(about)} is not of these videos by the planned scorer"


def check_nothing_else(plan: dict[str, Any], results: Results) -> Iterator[str]:
    """No record is of what the plan doesn't ask for: nobody could say what it counts for."""
    conditions, scored = _conditions(plan), Scored.of_plan(plan)
    planned = {
        (prompt.text, seed): (prompt, shard.further) for shard in _shards(plan).values() for prompt, seed in shard.pairs
    }
    for kind in ("latents", "videos"):
        for arm, prompt, seed in getattr(results, kind):
            if arm not in conditions or kind not in conditions[arm].kinds or (prompt, seed) not in planned:
                yield f"unplanned: a {kind} record for {_told((arm, prompt, seed))}"
    dimensions = {arm: frozenset(scored.dimensions(arm)) for arm in conditions}
    for dimension, records in results.scores.items():
        for arm, prompt, seed in records:
            if (
                dimension not in dimensions.get(arm, ())
                or (prompt, seed) not in planned
                or not scored.has(dimension, *planned[prompt, seed])
            ):
                yield f"unplanned: a scores record of {dimension} for {_told((arm, prompt, seed))}"
    rounds = {
        (name, number) for name, search in searches_in(plan).items() for number in range(1, len(search.rounds) + 1)
    }
    for arm, number, prompt, seed in results.choices:
        if (arm, number) not in rounds or (prompt, seed) not in planned:
            yield f"unplanned: a choices record of round {number} for {_told((arm, prompt, seed))}"


def check_choices(plan: dict[str, Any], results: Results) -> Iterator[str]:
    """Every choice is among the candidates that were planned, by their recorded scores, as the search says."""
    searches = searches_in(plan)
    drawn = candidates(searches)
    for name, search in searches.items():
        for number, (arms, (_, keep)) in enumerate(zip(entrants(name, search), search.counts, strict=True), 1):
            for prompt, seed in results.planned:
                about = f"round {number} of {name!r}, prompt {prompt!r}, seed {seed}"
                choice = results.choices.get((name, number, prompt, seed))
                if choice is None:
                    yield f"incomplete: no record of what was chosen in {about}"
                    continue
                found: list[Record] = choice["candidates"]
                if len(found) != len(arms):
                    yield f"mismatched: {about} was chosen among {len(found)} candidates, planned were {len(arms)}"
                    continue
                # None where the choice before isn't there, which is a finding of its own.
                seeds = [_drawn_seed(results, drawn.get(arm), prompt, seed) for arm in arms]
                scores = results.scores[search.verifier]
                if unscored := [arm for arm in arms if (arm, prompt, seed) not in scores]:
                    yield f"incomplete: no score of {search.verifier} for {', '.join(unscored)} in {about}"
                    continue
                if any(seed not in (None, one["seed"]) for one, seed in zip(found, seeds, strict=True)):
                    yield f"mismatched: the candidates of {about} are not drawn from the seeds that they were to be"
                    continue
                recorded = [(arm, *map(scores[arm, prompt, seed].get, _SCORE)) for arm in arms]
                if [(one["arm"], *map(one.get, _SCORE)) for one in found] != recorded:
                    yield f"mismatched: the candidates of {about} are not those with their recorded scores"
                    continue
                try:
                    derived = choose(found, keep, search.prefer)
                except BadResult as error:
                    yield f"underived: what was chosen in {about}: {error}"
                    continue
                if choice["kept"] != derived:
                    yield f"underived: what was chosen in {about} is not what the scores of {search.verifier} give"


def check_passes(plan: dict[str, Any], records: Iterable[Record]) -> Iterator[str]:
    """The timed passes are those that were planned, each once: a slow one can't have been left out."""
    timing, conditions = plan["timing"], conditions_of(plan["conditions"])
    arms = [arm for arm, condition in conditions.items() if isinstance(condition, Generated)]
    prompts = [prompt["text"] for prompt in plan["prompts"][: timing["prompts"]]]
    planned = Counter(
        (one.arm, prompts[one.prompt], plan["seeds"][0], one.round, one.warmup)
        for one in interleaved(arms, len(prompts), timing["warmup"], timing["repeats"])
    )
    found = Counter(
        (one["arm"], one["prompt"], one["seed"], one["round"], one["warmup"]) for one in timed_passes(records)
    )
    for what, passes in (("incomplete: no", planned - found), ("unplanned: a", found - planned)):
        for *about, number, warmup in passes:
            yield f"{what} timings record of {'warm-up' if warmup else 'round'} {number} for {_told(about)}"


def _shards(plan: Mapping[str, Any]) -> SuiteShards:
    prompts = [Prompt(prompt["text"], frozenset(prompt["dimensions"])) for prompt in plan["prompts"]]
    return SuiteShards(prompts, Seeds.of_plan(plan), plan["experiment"]["shard_size"])


def _conditions(plan: Mapping[str, Any]) -> dict[str, Condition]:
    """Arm → what makes its samples, of all arms whose samples are made, candidates' among them."""
    conditions = conditions_of(plan["conditions"])
    hidden = {arm: conditions[one.made_in] for arm, one in candidates(searches_in(plan)).items()}
    return hidden | conditions


def _drawn_seed(results: Results, candidate: Candidate | None, prompt: str, seed: int) -> int | None:
    """What the noise of a candidate, or of a winner, was to be drawn from; None where the records don't say.

    No candidate is an arm that is as the experiment's seeds have it.
    """
    if candidate is None:
        return seed
    if not isinstance(candidate.draws, Choice):
        return candidate_seed(seed, candidate.draws)
    choice = results.choices.get((candidate.draws.search, candidate.draws.round, prompt, seed))
    return None if choice is None or len(choice["kept"]) <= candidate.place else choice["kept"][candidate.place]


def _told(about: Sequence[object]) -> str:
    arm, prompt, seed = about
    return f"arm {arm!r}, prompt {prompt!r}, seed {seed}"
