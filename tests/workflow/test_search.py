"""The demo of a search: run to its end, taken up again, and enlarged."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import SEARCH_DEMO, Campaign

from fleetcraft.ground.records import Record, read_records


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The demo, run to its end. Never changed: tests copy it."""
    directory = tmp_path_factory.mktemp("searched") / "campaign"
    directory.mkdir()
    document = yaml.safe_load(SEARCH_DEMO.read_text()) | {"paths": {"scratch": "scratch", "work": "work"}}
    campaign = Campaign(directory, document)
    campaign.write()
    run = campaign.complete()
    assert run.jobs == campaign.plan().jobs
    return campaign


@pytest.fixture
def campaign(searched: Campaign, tmp_path: Path) -> Campaign:
    """A copy of the finished demo, to be changed."""
    return searched.copy_to(tmp_path / "campaign")


def table(campaign: Campaign, name: str) -> list[dict[str, str]]:
    with (campaign.directory / f"work/demo-search/tables/{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def manifests(campaign: Campaign, kind: str, arm: str) -> list[Record]:
    directory = campaign.directory / f"scratch/demo-search/{kind}/{arm}"
    return [record for file in sorted(directory.rglob("*.jsonl")) for record in read_records(file)]


def test_a_search_ends_with_quality_against_compute(searched: Campaign) -> None:
    totals = {row["arm"]: row for row in table(searched, "search") if row["step"] == "total"}
    # Drafts take a quarter of the full steps, and half of them a half.
    assert float(totals["halving"]["flops_to_baseline"]) == pytest.approx(3 / 4 + 2 / 2 + 1, abs=0.01)
    rounds = [row for row in table(searched, "search") if row["step"].startswith("round")]
    assert all(float(row["mean_of_kept"]) > float(row["mean"]) for row in rounds)
    assert (searched.directory / "work/demo-search/figures/search.png").stat().st_size > 10_000
    summary = searched.fleetcraft("summary", str(searched.experiment))
    lines = [line.split() for line in summary.output.splitlines()]
    shares = {words[0]: words[2] for words in lines if len(words) == 3 and words[2].endswith("%")}
    assert [shares[arm] for arm in ("full", "half", "draft", "halving")] == ["100%", "50%", "25%", "275%"]


def test_every_choice_is_in_the_evidence_and_follows_from_its_scores(searched: Campaign) -> None:
    verified = searched.fleetcraft("verify", "work/demo-search/evidence")
    assert verified.status == 0, verified.output
    choices = read_records(searched.directory / "work/demo-search/evidence/records/choices.jsonl")
    assert len(choices) == 2 * 4
    for choice in choices:
        best = max(choice["candidates"], key=lambda candidate: candidate["value"])
        assert choice["kept"][0] == best["seed"]
    audited = searched.fleetcraft("audit", str(searched.experiment))
    assert audited.status == 0, audited.output


def test_a_winner_is_what_its_seed_gives_in_the_full_arm(campaign: Campaign) -> None:
    winner = next(record for record in manifests(campaign, "latents", "halving") if "drawn_seed" in record)
    shutil.rmtree(campaign.directory / "scratch")
    alone: dict[str, Any] = campaign.document | {"name": "alone", "seeds": [winner["drawn_seed"]], "shard_size": 1}
    alone["arms"] = {"full": campaign.document["arms"]["full"]}
    campaign.write(alone)
    plan = campaign.plan()
    shard = next(
        name for name, shard in plan.shards.items() if winner["prompt"] in {prompt.text for prompt in shard.prompts}
    )
    run = campaign.snakemake(plan.paths.latents("full", shard))
    assert run.status == 0, run.output
    (made,) = read_records(campaign.directory / plan.paths.latents("full", shard))
    assert (made["sample"], made["values_sha256"]) == (winner["sample"], winner["values_sha256"])


def test_lost_choices_and_candidates_are_made_again_without_computing_anything(campaign: Campaign) -> None:
    before = campaign.artifacts()
    scratch = campaign.directory / "scratch/demo-search"
    lost = ["choices", *(f"{kind}/draft@1" for kind in ("latents", "videos", "scores"))]
    for name in lost:
        shutil.rmtree(scratch / name)
    run = campaign.complete()
    assert run.jobs["choose"] == 2
    assert all(any((scratch / name).rglob("*.jsonl")) for name in lost)
    assert campaign.artifacts() == before


def test_another_candidate_makes_only_itself_and_the_winners_that_it_changes(campaign: Campaign) -> None:
    before = campaign.artifacts()
    campaign.document["arms"]["halving"]["search"] |= {
        "candidates": 4,
        "rounds": [{"arm": "draft", "keep": 2}, {"arm": "half"}],
    }
    campaign.write()
    campaign.complete()
    after = campaign.artifacts()
    assert after["latents"].items() >= before["latents"].items()
    made = after["latents"].keys() - before["latents"].keys()
    candidates = {record["sample"] for record in manifests(campaign, "latents", "draft@3")}
    assert len(candidates) == 4
    chosen = {
        record["sample"]
        for arm in ("halving@2.0", "halving@2.1", "halving")
        for record in manifests(campaign, "latents", arm)
    }
    assert made == candidates | (chosen - before["latents"].keys())
