"""Check an evidence directory, needing nothing but the directory.

Every file has the digest of the manifest and none is beside it; every record file is whole; every planned sample has
its records, and its id is the digest of its condition, prompt and seed; and what was concluded, the tables and VBench's
files, follows from the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetcraft.analysis.latency import latency_tables
from fleetcraft.analysis.search import search_tables
from fleetcraft.analysis.tables import Results, make_tables, read_results
from fleetcraft.analysis.vbench import official_results, vbench_table
from fleetcraft.evidence.archive import MANIFEST
from fleetcraft.experiment.conditions import conditions_of
from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.search import Candidate, Choice, candidates, entrants, searches_in
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.shards import SuiteShards
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadInput, BadResult, FleetcraftError
from fleetcraft.ground.records import iterate_records
from fleetcraft.search.choice import choose
from fleetcraft.search.seeds import candidate_seed

_KINDS = ("latents", "videos", "scores")


def verify(directory: Path) -> Iterator[str]:
    """Yield what is wrong, one sentence a finding; nothing where all is well.

    Raises BadInput where this is no evidence directory at all.
    """
    manifest = directory / MANIFEST
    if not manifest.is_file():
        raise BadInput(
            f"this is no evidence directory: it has no {MANIFEST}",
            file=directory,
            remedy="Name the directory `evidence` under a campaign's work directory",
        )
    seal = directory.with_suffix(".sha256")
    if seal.is_file() and seal.read_text().partition("  ")[0] != sha256_file(manifest):
        yield f"changed: {MANIFEST} (its SHA-256 is not the one in {seal.name} beside the directory)"
    broken = list(_check_digests(directory, manifest))
    yield from broken
    if any(finding.startswith(("missing", "changed")) for finding in broken):
        return  # what follows would only repeat it in other words
    try:
        plan: dict[str, Any] = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
        searched = any("search" in condition for condition in plan["conditions"].values())
        kinds = [*_KINDS, "choices"] if searched else _KINDS
        results = read_results(plan, [directory / f"records/{kind}.jsonl" for kind in kinds])
    except FleetcraftError as error:
        yield str(error)
        return
    yield from _check_samples(plan, results)
    yield from _check_choices(plan, results)
    tables = {**make_tables(results), "vbench": vbench_table(results), **search_tables(results)}
    timings = directory / "records/timings.jsonl"
    if timings.is_file():
        tables |= latency_tables(iterate_records(timings), plan)
    concluded = {f"tables/{name}.csv": text for name, text in tables.items()}
    concluded |= {f"vbench/{arm}_eval_results.json": text for arm, text in official_results(results).items()}
    for name, text in concluded.items():
        file = directory / name
        if not file.is_file():
            yield f"incomplete: {name} is not there"
        elif file.read_text(encoding="utf-8") != text:
            yield f"underived: {name} is not what the records give"


def _check_digests(directory: Path, manifest: Path) -> Iterator[str]:
    listed = {}
    for line in manifest.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    for name, digest in listed.items():
        file = directory / name
        if not file.is_file():
            yield f"missing: {name}"
        elif sha256_file(file) != digest:
            yield f"changed: {name} (its SHA-256 is not the one in {MANIFEST})"
    for file in sorted(directory.rglob("*")):
        name = str(file.relative_to(directory))
        if file.is_file() and name != MANIFEST and name not in listed:
            yield f"unlisted: {name}"


def _check_samples(plan: dict[str, Any], results: Results) -> Iterator[str]:
    prompts = [Prompt(prompt["text"], frozenset(prompt["dimensions"])) for prompt in plan["prompts"]]
    shards = SuiteShards(prompts, Seeds.of_plan(plan), plan["experiment"]["shard_size"])
    conditions, drawn = conditions_of(plan["conditions"]), candidates(searches_in(plan))
    for arm in dict.fromkeys([*conditions, *drawn]):
        condition = conditions[arm if arm in conditions else drawn[arm].made_in]
        for shard in shards.values():
            for position, (prompt, seed) in enumerate((prompt.text, seed) for prompt, seed in shard.pairs):
                about = (arm, prompt, seed)
                drawn_seed = _drawn_seed(results, drawn[arm], prompt, seed) if arm in drawn else seed
                if drawn_seed is None:
                    continue  # the choice isn't there, which is a finding of its own
                expected = condition.sample_id(prompt, drawn_seed, position)
                for kind in condition.kinds:
                    record = getattr(results, kind).get(about)
                    if record is None:
                        yield f"incomplete: no {kind} record for arm {arm!r}, prompt {prompt!r}, seed {seed}"
                    elif record["sample"] != expected:
                        yield f"mismatched: a {kind} record is of sample {record['sample']}, planned was {expected}"
    for dimension, records in results.scores.items():
        for about, record in records.items():
            video = results.videos.get(about)
            if video is None or video["key"] != record["video"]:
                yield f"mismatched: {dimension} of sample {record['sample']} is not of the recorded video"


def _drawn_seed(results: Results, candidate: Candidate, prompt: str, seed: int) -> int | None:
    """What the noise of a candidate, or of a winner, was to be drawn from; None where the records don't say."""
    if not isinstance(candidate.draws, Choice):
        return candidate_seed(seed, candidate.draws)
    choice = results.choices.get((candidate.draws.search, candidate.draws.round, prompt, seed))
    return None if choice is None or len(choice["kept"]) <= candidate.place else choice["kept"][candidate.place]


def _check_choices(plan: dict[str, Any], results: Results) -> Iterator[str]:
    """Every choice is among the candidates that were planned, by their recorded scores, as the search says."""
    for name, search in searches_in(plan).items():
        for number, (arms, (_, keep)) in enumerate(zip(entrants(name, search), search.counts, strict=True), 1):
            for prompt, seed in results.planned:
                about = f"round {number} of {name!r}, prompt {prompt!r}, seed {seed}"
                choice = results.choices.get((name, number, prompt, seed))
                if choice is None:
                    yield f"incomplete: no record of what was chosen in {about}"
                    continue
                scores = [results.scores[search.verifier].get((arm, prompt, seed)) for arm in arms]
                scored = [(one["sample"], one["video"], one["value"]) for one in scores if one is not None]
                recorded = [(one["sample"], one["video"], one["value"]) for one in choice["candidates"]]
                if recorded != scored:
                    yield f"mismatched: the candidates of {about} are not those with their recorded scores"
                    continue
                try:
                    derived = choose(choice["candidates"], keep, search.prefer)
                except BadResult as error:
                    yield f"underived: what was chosen in {about}: {error}"
                    continue
                if choice["kept"] != derived:
                    yield f"underived: what was chosen in {about} is not what the scores of {search.verifier} give"
