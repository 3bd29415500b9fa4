"""Stage choose: one round of a search, for the prompts and seeds of one shard."""

from __future__ import annotations

from pathlib import Path

from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.search import Choice
from fleetcraft.ground.records import Record, read_records, write_records
from fleetcraft.search.choice import choose


def choose_in_shard(plan: Plan, search: str, number: int, shard: str) -> None:
    """Write the manifest of what is kept of each prompt's and seed's candidates, and of all that were looked at.

    Raises
    ------
    BadResult : too few candidates of one have a score.
    PurgedScratch, Damaged : their scores have gone, or aren't whole.
    """
    settings, choice = plan.experiment.searches[search], Choice(search, number)
    digest, keep = plan.searches.digest(choice, shard), plan.searches.keep(choice)
    scored = [_scores(plan, arm, settings.verifier, shard) for arm in plan.searches.entrants(choice)]
    chosen: list[Record] = []
    for prompt, seed in plan.shards[shard].pairs:
        candidates = [of_arm[prompt.text, seed] for of_arm in scored]
        chosen.append(
            {
                "kind": "choices",
                "arm": search,
                "round": number,
                "prompt": prompt.text,
                "seed": seed,
                "verifier": settings.verifier,
                "candidates": candidates,
                "kept": choose(candidates, keep, settings.prefer),
                "digest": digest,
            }
        )
        print(f"choose: {_told(candidates, chosen[-1]['kept'])} for seed {seed} of {prompt.text!r}")
    write_records(plan.searches.manifest(choice, shard), chosen)


def _scores(plan: Plan, arm: str, verifier: str, shard: str) -> dict[tuple[str, int], Record]:
    """(prompt, seed) → what a choice knows of an arm's candidate."""
    return {
        (record["prompt"], record["seed"]): {
            "arm": arm,
            "seed": record.get("drawn_seed", record["seed"]),
            "sample": record["sample"],
            "video": record["video"],
            "value": record["value"],
        }
        for record in read_records(Path(plan.paths.scores(arm, verifier, shard)))
    }


def _told(candidates: list[Record], kept: list[int]) -> str:
    values = [f"{one['value']:.4g}" if one["value"] is not None else "none" for one in candidates]
    places = [next(place for place, one in enumerate(candidates) if one["seed"] == seed) for seed in kept]
    return f"of {', '.join(values)} kept candidate{'s' * (len(places) > 1)} {', '.join(map(str, places))}"
