"""Check an evidence directory, needing nothing but the directory.

Every file has the digest of the manifest and none is beside it; every record file is whole; every planned sample has
its records, with its scores among them, and no other has any; its id is the digest of its condition, prompt and seed;
and what was concluded, the tables and VBench's files, follows from the records.
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
from fleetcraft.evidence.planned import check_choices, check_nothing_else, check_passes, check_samples, check_scores
from fleetcraft.experiment.search import searches_in
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.ground.records import read_records

_KINDS = ("latents", "videos", "scores")

_FORMLESS = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What comes of taking a document for something that it isn't."""


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
    try:
        yield from _check(directory, manifest)
    except FleetcraftError as error:
        yield str(error)
    except _FORMLESS as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        yield f"malformed: something here is not as Fleetcraft writes it ({what})"


def _check(directory: Path, manifest: Path) -> Iterator[str]:
    """Evidence is a stranger's until it is verified: what hasn't its form raises one of `_FORMLESS`."""
    seal = directory.with_suffix(".sha256")
    if seal.is_file() and seal.read_text().partition("  ")[0] != sha256_file(manifest):
        yield f"changed: {MANIFEST} (its SHA-256 is not the one in {seal.name} beside the directory)"
    broken = list(_check_digests(directory, manifest))
    yield from broken
    if not any(finding.startswith(("missing", "changed")) for finding in broken):
        # Of another file than was sealed it would only say the same in other words.
        yield from _check_contents(directory)


def _check_contents(directory: Path) -> Iterator[str]:
    """What the plan asks for, what the records hold, and what was concluded."""
    file = directory / "plan.json"
    if not file.is_file():
        yield f"missing: {file.name}"
        return
    plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    kinds = [*_KINDS, *(["choices"] if searches_in(plan) else [])]
    results = read_results(plan, [directory / f"records/{kind}.jsonl" for kind in kinds])
    yield from check_samples(plan, results)
    yield from check_scores(plan, results)
    yield from check_nothing_else(plan, results)
    yield from check_choices(plan, results)
    concluded = {f"tables/{name}.csv": text for name, text in _tables(results).items()}
    concluded |= {f"vbench/{arm}_eval_results.json": text for arm, text in official_results(results).items()}
    file = directory / "records/timings.jsonl"
    if plan.get("timing") is not None:
        timings = read_records(file)
        yield from check_passes(plan, timings)
        concluded |= {f"tables/{name}.csv": text for name, text in latency_tables(timings, plan).items()}
    elif file.is_file():
        yield f"unplanned: {file.relative_to(directory)}, for nothing was to be timed"
    for name, text in concluded.items():
        file = directory / name
        if not file.is_file():
            yield f"incomplete: {name} is not there"
        elif file.read_bytes() != text.encode():
            yield f"underived: {name} is not what the records give"
    present = [file for place in ("tables", "vbench") for file in sorted(directory.glob(f"{place}/**/*"))]
    for name in [str(file.relative_to(directory)) for file in present if file.is_file()]:
        if name not in concluded:
            yield f"underived: no record gives {name}"


def _tables(results: Results) -> dict[str, str]:
    return {**make_tables(results), "vbench": vbench_table(results), **search_tables(results)}


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
