"""Searches: which candidates there are, which are chosen, what that costs, and what is refused."""

from __future__ import annotations

import copy
import csv
import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from experiments import changed
from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.analysis.search import expected_best, search_tables
from fleetcraft.analysis.tables import Results, make_tables
from fleetcraft.analysis.vbench import vbench_table
from fleetcraft.cli.plan import plan_text
from fleetcraft.cli.summary import summary_text
from fleetcraft.evidence.archive import manifests_of
from fleetcraft.evidence.planned import check_choices, check_nothing_else, check_samples, check_scores
from fleetcraft.experiment.costs import ArmCost, searched_flops
from fleetcraft.experiment.plan import Plan, Sample
from fleetcraft.experiment.search import Choice
from fleetcraft.ground.errors import BadInput, BadResult, Damaged, PurgedScratch
from fleetcraft.ground.records import Record, read_records, write_records
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.search.choice import best, choose
from fleetcraft.search.seeds import candidate_seed
from fleetcraft.stages.choose import choose_in_shard
from fleetcraft.stages.describe import CONTACT_SHEET_CANDIDATES, describe

PlanOf = Callable[[dict[str, Any]], Plan]

VERIFIER = "temporal_flickering"


@pytest.fixture
def searching(small: dict[str, Any]) -> dict[str, Any]:
    """The small experiment with a draft, best of three drafts, and halving from five."""
    small["arms"]["draft"] = small["arms"]["full"] | {"steps": 1}
    small["arms"]["best"] = {
        "search": {"candidates": 3, "rounds": [{"arm": "draft"}], "verifier": VERIFIER, "recommit": "full"}
    }
    small["arms"]["halving"] = {
        "search": {
            "candidates": 5,
            "rounds": [{"arm": "draft"}, {"arm": "cached"}],
            "verifier": VERIFIER,
            "recommit": "full",
        }
    }
    small["scoring"] = {"dimensions": [VERIFIER, "mean_frame_difference"]}
    return small


def write_scores(plan: Plan, arm: str, shard: str, value: Callable[[Sample], float | None]) -> None:
    """The manifest of what the verifier gave an arm."""
    records = []
    for sample in plan.samples(arm, shard):
        record: Record = {
            "kind": "scores",
            "key": plan.score_key(sample, VERIFIER),
            "arm": arm,
            "sample": sample.sample_id,
            "prompt": sample.prompt.text,
            "seed": sample.seed,
            "video": plan.video_key(sample),
            "dimension": VERIFIER,
            "value": value(sample),
            "seconds": {"score": 0.5},
        }
        records.append(record | ({} if sample.drawn_seed == sample.seed else {"drawn_seed": sample.drawn_seed}))
    write_records(Path(plan.paths.scores(arm, VERIFIER, shard)), records)


def by_seed(sample: Sample) -> float:
    """A value that is another for each seed, the same wherever the seed is made."""
    return sample.drawn_seed % 997 / 997


def play(plan: Plan, value: Callable[[Sample], float | None] = by_seed) -> None:
    """Score and choose everything, round by round, as Snakemake would have it done."""
    for shard in plan.shards:
        for choice in plan.searches.choices:
            for arm in plan.searches.entrants(choice):
                write_scores(plan, arm, shard, value)
            choose_in_shard(plan, choice.search, choice.round, shard)


# ---------------------------------------------------------------------- seeds and choices


def test_the_first_candidate_is_the_video_that_the_arm_has_anyway() -> None:
    assert candidate_seed(7, 0) == 7


def test_candidates_are_drawn_from_the_seeds_that_they_were_always_drawn_from() -> None:
    assert [candidate_seed(0, number) for number in (1, 2)] == [5204484516981068, 7307045128273693]


@given(st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_no_two_candidates_of_a_campaign_have_one_seed(seeds: set[int]) -> None:
    drawn = [candidate_seed(seed, number) for seed in seeds for number in range(32)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**63 for seed in drawn)


VALUES = st.lists(st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8)


@given(VALUES, st.integers(1, 8), st.sampled_from(["highest", "lowest"]))
def test_the_kept_are_the_best_and_of_equals_the_first(values: list[float | None], keep: int, prefer: str) -> None:
    kept = best(values, keep, prefer)
    valued = [place for place, value in enumerate(values) if value is not None]
    assert len(kept) == min(keep, len(valued))
    assert len(set(kept)) == len(kept)

    def rank(place: int) -> tuple[float, int]:
        value = values[place]
        assert value is not None
        return (-value if prefer == "highest" else value), place

    assert kept == sorted(valued, key=rank)[: len(kept)]


def test_a_video_without_a_value_is_never_chosen_and_too_few_of_them_are_an_error() -> None:
    candidates = [{"seed": 1, "value": None}, {"seed": 2, "value": 0.1}, {"seed": 3, "value": None}]
    assert choose(candidates, 1, "highest") == [2]
    with pytest.raises(BadResult, match="2 of 3 candidates are to be kept, and the verifier has values for 1"):
        choose(candidates, 2, "highest")


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6).flatmap(
        lambda values: st.tuples(st.just(values), st.integers(1, len(values)))
    ),
    st.sampled_from(["highest", "lowest"]),
)
def test_the_best_of_so_many_is_the_mean_over_all_ways_to_draw_them(
    drawn: tuple[list[float], int], prefer: str
) -> None:
    values, count = drawn
    pick = max if prefer == "highest" else min
    expected = fmean(pick(draw) for draw in itertools.combinations(values, count))
    assert expected_best(values, count, prefer) == pytest.approx(expected, abs=1e-9)


# ---------------------------------------------------------------------- plans


def test_what_searches_have_in_common_is_made_once(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(searching)
    assert plan.searches.entrants(Choice("best", 1)) == ["draft", "draft@1", "draft@2"]
    assert plan.searches.entrants(Choice("halving", 1)) == ["draft", "draft@1", "draft@2", "draft@3", "draft@4"]
    assert plan.searches.entrants(Choice("halving", 2)) == ["halving@2.0", "halving@2.1", "halving@2.2"]
    assert len(plan.made_arms) == len(set(plan.made_arms)) == 3 + 4 + 3 + 2
    assert plan.jobs["generate"] == 12 * len(plan.shards)
    assert plan.jobs["choose"] == 3 * len(plan.shards)
    assert plan.jobs["score"] == (5 * 2 + 4 + 3) * len(plan.shards), "candidates are scored by their verifier alone"


def test_a_candidate_is_a_sample_of_its_arm_from_another_seed(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(searching)
    seeds = [candidate_seed(0, 3), candidate_seed(1, 3)]
    twin = plan_of(changed(searching, "seeds", seeds))
    ids = {sample.sample_id for shard in twin.shards for sample in twin.samples("draft", shard)}
    assert {sample.sample_id for shard in plan.shards for sample in plan.samples("draft@3", shard)} == ids


def test_searches_change_nothing_of_other_arms(
    small: dict[str, Any], searching: dict[str, Any], plan_of: PlanOf
) -> None:
    plain = copy.deepcopy(searching)
    del plain["arms"]["best"], plain["arms"]["halving"]
    with_searches, without = plan_of(searching), plan_of(plain)
    for shard in without.shards:
        for arm in without.arms:
            assert with_searches.samples(arm, shard) == without.samples(arm, shard)
            assert with_searches.videos_digest(arm, shard) == without.videos_digest(arm, shard)


def test_what_a_winner_is_follows_from_the_scores(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(searching)
    play(plan)
    for shard in plan.shards:
        for arm, count in (("best", 3), ("halving", 5)):
            for sample in plan.samples(arm, shard):
                drawn = [candidate_seed(sample.seed, number) for number in range(count)]
                assert sample.drawn_seed == max(drawn, key=lambda seed: seed % 997)
                condition = plan.conditions["full"]
                assert sample.sample_id == condition.sample_id(sample.prompt.text, sample.drawn_seed, sample.position)


def test_a_search_may_prefer_the_lowest(searching: dict[str, Any], plan_of: PlanOf) -> None:
    searching["arms"]["best"]["search"]["prefer"] = "lowest"
    plan = plan_of(searching)
    play(plan)
    for sample in plan.samples("best", next(iter(plan.shards))):
        drawn = [candidate_seed(sample.seed, number) for number in range(3)]
        assert sample.drawn_seed == min(drawn, key=lambda seed: seed % 997)


@pytest.mark.parametrize(
    ("verifier", "better", "worse"),
    [("mean_frame_difference", "lowest", "highest"), (VERIFIER, "highest", "lowest")],
)
def test_a_search_prefers_what_is_better_in_its_dimension_and_the_contrary_is_remarked_on(
    searching: dict[str, Any], plan_of: PlanOf, verifier: str, better: str, worse: str
) -> None:
    search = searching["arms"]["best"]["search"]
    search["verifier"] = verifier
    plan, said = plan_of(searching), plan_of(changed(searching, "arms.best.search.prefer", better))
    assert plan.experiment.searches["best"].prefer == better
    assert plan.remarks == said.remarks == []
    assert plan.digest == said.digest
    contrary = plan_of(changed(searching, "arms.best.search.prefer", worse))
    assert contrary.experiment.searches["best"].prefer == worse
    assert contrary.digest != plan.digest
    (remark,) = contrary.remarks
    assert remark == f"best chooses the {worse} {verifier}, as its `prefer` says, and the {better} is better"
    assert f"  {remark}\n" in plan_text(contrary)


def test_labels_say_in_words_which_scores_are_better() -> None:
    said = {
        name: "lowest" if "lower is" in dimension.label else "highest"
        for name, dimension in DIMENSIONS.items()
        if "er is " in dimension.label
    }
    assert said == {name: DIMENSIONS[name].better for name in said}
    assert {name for name, dimension in DIMENSIONS.items() if dimension.better == "lowest"} <= said.keys()


def test_a_search_whose_verifier_is_missing_has_that_one_problem(searching: dict[str, Any], plan_of: PlanOf) -> None:
    del searching["arms"]["best"]["search"]["verifier"]
    with pytest.raises(BadInput, match=r"'arms\.best\.search\.verifier': this key is missing\."):
        plan_of(searching)


def test_the_survivors_of_a_round_are_the_candidates_of_the_next(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(searching)
    play(plan)
    for shard in plan.shards:
        survivors = [plan.samples(f"halving@2.{place}", shard) for place in range(3)]
        for of_one in zip(*survivors, strict=True):
            drawn = [candidate_seed(of_one[0].seed, number) for number in range(5)]
            assert [sample.drawn_seed for sample in of_one] == sorted(drawn, key=lambda seed: -(seed % 997))[:3]


def test_before_the_choice_there_are_no_winners_and_jobs_still_have_their_digests(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    plan = plan_of(searching)
    shard = next(iter(plan.shards))
    with pytest.raises(PurgedScratch, match="has gone"):
        plan.samples("best", shard)
    before = plan.generate_digest("best", shard)
    play(plan)
    assert plan_of(searching).generate_digest("best", shard) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arms.best.search.candidates", 4),
        ("arms.best.search.prefer", "lowest"),
        ("arms.best.search.verifier", "mean_frame_difference"),
        ("arms.draft.steps", 2),
        ("encoder.crf", 30),
    ],
)
def test_what_decides_a_choice_chooses_anew(
    searching: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    plan = plan_of(searching)
    play(plan)
    after = plan_of(changed(searching, key, value))
    for shard in plan.shards:
        assert after.generate_digest("best", shard) != plan.generate_digest("best", shard)
        with pytest.raises(PurgedScratch, match="among other candidates than those of now"):
            after.samples("best", shard)


def test_an_arm_that_takes_no_part_chooses_nothing_anew(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan, after = plan_of(searching), plan_of(changed(searching, "arms.cached.steps", 3))
    for shard in plan.shards:
        assert after.generate_digest("best", shard) == plan.generate_digest("best", shard)
        assert after.generate_digest("halving", shard) != plan.generate_digest("halving", shard)


def test_a_damaged_choice_is_no_choice(searching: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(searching)
    play(plan)
    shard = next(iter(plan.shards))
    file = Path(plan.paths.choices("best", "1", shard))
    file.write_text(file.read_text().replace('"kept":[', '"kept":[1,'))
    with pytest.raises(Damaged):
        plan.samples("best", shard)


def test_jobs_are_told_the_seed_to_draw_from_and_the_one_that_tables_know(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    plan = plan_of(searching)
    play(plan)
    shard = next(iter(plan.shards))
    for arm in ("draft@2", "best", "halving@2.0"):
        job = describe(plan, "generate", {"arm": arm, "shard": shard})
        for labels, sample in zip(job.samples, plan.samples(arm, shard), strict=True):
            assert labels["seed"] == sample.drawn_seed
            assert labels.get("for_seed", labels["seed"]) == sample.seed
            assert labels["arm"] == arm
    draft = describe(plan, "generate", {"arm": "draft", "shard": shard})
    candidate = describe(plan, "generate", {"arm": "draft@2", "shard": shard})
    assert candidate.settings == draft.settings


def lower_later(sample: Sample) -> float:
    """The better a draft, the lower is what the second round gives it."""
    return -by_seed(sample) if sample.arm.startswith("halving@2.") else by_seed(sample)


def test_the_sheet_of_candidates_has_what_later_rounds_gave_those_that_went_on(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    plan = plan_of(searching)
    play(plan, lower_later)
    for sample in describe(plan, "candidate_sheet", {"arm": "halving"}).samples:
        candidates = sample["candidates"]
        assert [one["then"] for one in candidates] == [[-one["value"]] for one in candidates[:3]] + [[], []]
        assert [one["seed"] for one in candidates].index(sample["seed"]) == 2
    sheet = describe(plan, "candidate_sheet", {"arm": "best"})
    assert all(one["then"] == [] for sample in sheet.samples for one in sample["candidates"])


def test_the_sheet_of_candidates_shows_the_winner_also_where_not_all_fit(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    searching["arms"]["halving"]["search"] |= {"candidates": 20}
    plan = plan_of(searching)
    play(plan, lower_later)
    for sample in describe(plan, "candidate_sheet", {"arm": "halving"}).samples:
        assert len(sample["candidates"]) == CONTACT_SHEET_CANDIDATES
        assert sample["candidates"][-1]["seed"] == sample["seed"]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("key", "value", "named", "said"),
    [
        ("arms.best.search.candidates", 1, "arms.best.search.candidates", "greater than or equal to 2"),
        ("arms.best.search.rounds", [], "arms.best.search.rounds", "at least 1 item"),
        ("arms.best.search.rounds", [{"arm": "draught"}], "arms.best.search.rounds.0.arm", "'draft'"),
        ("arms.best.search.rounds", [{"arm": "halving"}], "arms.best.search.rounds.0.arm", "no generated arm"),
        ("arms.best.search.rounds", [{"arm": "draft", "keep": 2}], "arms.best.search.rounds.0.keep", "the winner"),
        (
            "arms.best.search.rounds",
            [{"arm": "draft", "keep": 3}, {"arm": "cached"}],
            "arms.best.search.rounds.0.keep",
            "nothing is chosen",
        ),
        (
            "arms.halving.search.rounds",
            [{"arm": "draft"}, {"arm": "draft"}],
            "arms.halving.search.rounds.0.arm",
            "would see what the earlier has seen",
        ),
        ("arms.best.search.recommit", "ful", "arms.best.search.recommit", "'full'"),
        ("arms.best.search.verifier", "ssim", "arms.best.search.verifier", "none of `scoring.dimensions`"),
        ("arms.best.search.prefer", "best", "arms.best.search.prefer", "'highest' or 'lowest'"),
        ("arms.best.search.verifer", VERIFIER, "arms.best.search.verifer", "verifier"),
        ("arms.best.model", "tiny", "arms.best.model", "search"),
        ("arms.full.batch", 2, "arms.best.search.recommit", "a batch of 2"),
        ("baseline", "best", "baseline", "compare it with an arm that isn't"),
        ("encoder_comparison", {"preset": "h264-crf18", "crf": 30, "arm": "best"}, "encoder_comparison.arm", "search"),
    ],
)
def test_a_search_that_could_not_be_is_refused_with_its_key(
    searching: dict[str, Any], plan_of: PlanOf, key: str, value: object, named: str, said: str
) -> None:
    with pytest.raises(BadInput) as caught:
        plan_of(changed(searching, key, value))
    assert caught.value.key == named
    assert said in str(caught.value)


def test_a_verifier_that_compares_with_the_baseline_is_refused(searching: dict[str, Any], plan_of: PlanOf) -> None:
    searching["scoring"]["dimensions"].append("ssim")
    assert DIMENSIONS["ssim"].pairwise
    searching["arms"]["best"]["search"]["verifier"] = "ssim"
    with pytest.raises(BadInput, match="which candidates of other seeds don't have") as caught:
        plan_of(searching)
    assert caught.value.key == "arms.best.search.verifier"


def test_arms_of_two_models_are_refused(searching: dict[str, Any], plan_of: PlanOf) -> None:
    searching["models"]["other"] = {"family": "wan", "source": {"tiny": True, "seed": 1}}
    searching["arms"]["draft"]["model"] = "other"
    with pytest.raises(BadInput, match="a seed of one says nothing of the other's video"):
        plan_of(searching)


def test_a_verifier_for_some_of_the_prompts_is_refused(searching: dict[str, Any], plan_of: PlanOf) -> None:
    searching["prompts"] = {"suite": "vbench"}
    with pytest.raises(BadInput, match="no score to choose by") as caught:
        plan_of(searching)
    assert caught.value.key == "arms.best.search.verifier"
    plan_of(changed(searching, "prompts", {"suite": "vbench", "dimensions": [VERIFIER]}))


def test_videos_of_further_seeds_are_searched_where_their_dimension_is_the_verifier(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    searching["prompts"] = {"suite": "vbench", "dimensions": [VERIFIER], "limit": 3}
    searching["further_seeds"] = {VERIFIER: [7]}
    plan = plan_of(searching)
    for choice in plan.searches.choices:
        for arm in plan.searches.entrants(choice):
            assert plan.scored_shards(arm, VERIFIER) == list(plan.shards)
    for arm in ("best", "halving"):
        searching["arms"][arm]["search"]["verifier"] = "mean_frame_difference"
    with pytest.raises(BadInput, match="videos of further seeds are scored in their dimension alone") as caught:
        plan_of(searching)
    assert caught.value.key == "arms.best.search.verifier"


# ---------------------------------------------------------------------- tables and evidence


FLOPS = {"draft": 100, "cached": 300, "full": 1000}
DEVICE_S = {"draft": 1.0, "cached": 3.0, "full": 10.0}


def results_of(plan: Plan) -> Results:
    """Records as a campaign would have left them, with costs that are easy to add up."""
    results = Results(plan.document())
    for arm in [*plan.arms, *plan.searches.hidden]:
        made_in = plan.searches.made_in(arm)
        for shard in plan.shards:
            for sample in plan.samples(arm, shard):
                about = {"arm": arm, "sample": sample.sample_id, "prompt": sample.prompt.text, "seed": sample.seed}
                work = {"flops_computed": FLOPS[made_in], "flops_possible": FLOPS[made_in]}
                seconds = {"denoise": DEVICE_S[made_in] - 0.25}
                encoder = {"codec": "h264", "pixel_format": "yuv420p", "crf": 18}
                key = plan.video_key(sample)
                latents = about | {"kind": "latents", "work": work, "seconds": seconds}
                video = about | {"kind": "videos", "key": key, "sha256": key, "bytes": 1, "encoder": encoder}
                video["shape"] = [5, 32, 32, 3]
                results.add([latents, video | {"decoded": {"seconds": {"decode": 0.25}}, "seconds": {"encode": 9.0}}])
            if arm not in plan.experiment.searches:
                results.add(read_records(Path(plan.paths.scores(arm, VERIFIER, shard))))
            else:
                write_scores(plan, arm, shard, by_seed)
                results.add(read_records(Path(plan.paths.scores(arm, VERIFIER, shard))))
    for choice in plan.searches.choices:
        for shard in plan.shards:
            results.add(read_records(Path(plan.paths.choices(choice.search, str(choice.round), shard))))
    return results


@pytest.fixture
def played(searching: dict[str, Any], plan_of: PlanOf) -> tuple[Plan, Results]:
    """A search that was played to its end."""
    searching["scoring"]["dimensions"] = [VERIFIER]
    plan = plan_of(searching)
    play(plan)
    for shard in plan.shards:
        for arm in ("full", "cached"):
            write_scores(plan, arm, shard, by_seed)
    return plan, results_of(plan)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_account_of_a_search_adds_up(played: tuple[Plan, Results]) -> None:
    _, results = played
    rows = {(row["arm"], row["step"]): row for row in rows_of(search_tables(results)["search"])}
    flops = {key: int(row["flops_per_video"]) for key, row in rows.items()}
    assert flops["best", "round 1"] == 3 * 100
    assert flops["best", "recommit"] == 1000
    assert flops["best", "total"] == 1300
    assert flops["halving", "round 1"] == 5 * 100
    assert flops["halving", "round 2"] == 3 * 300
    assert flops["halving", "total"] == 2400
    assert rows["halving", "total"]["flops_to_baseline"] == "2.400"
    assert float(rows["best", "total"]["device_seconds_per_video"]) == pytest.approx(13.0)
    assert [rows["halving", step]["kept"] for step in ("round 1", "round 2")] == ["3", "1"]
    assert float(rows["best", "round 1"]["mean_of_kept"]) > float(rows["best", "round 1"]["mean"])


@pytest.mark.parametrize(
    ("arm", "search", "flops"),
    [
        ("best", {"candidates": 4, "rounds": [{"arm": "full"}], "recommit": "full"}, 4000),
        ("halving", {"recommit": "cached"}, 5 * 100 + 3 * 300),
        ("halving", {"recommit": "draft"}, 5 * 100 + 3 * 300),
    ],
)
def test_a_winner_that_a_round_has_made_is_charged_once(
    searching: dict[str, Any], plan_of: PlanOf, arm: str, search: dict[str, Any], flops: int
) -> None:
    searching["scoring"]["dimensions"] = [VERIFIER]
    searching["arms"][arm]["search"] |= search
    plan = plan_of(searching)
    play(plan)
    for shard in plan.shards:
        for other in ("full", "cached", "draft"):
            write_scores(plan, other, shard, by_seed)
    results = results_of(plan)
    made = {
        record["sample"]: record["work"]["flops_computed"]
        for (owner, _, _), record in results.latents.items()
        if owner in {arm, *(name for number in (1, 2) for name in entrants_of(plan, arm, number))}
    }
    assert sum(made.values()) == flops * plan.samples_of_arm, "of all samples that the search has, each once"
    tables = search_tables(results)
    rows = {row["step"]: row for row in rows_of(tables["search"]) if row["arm"] == arm}
    assert int(rows["total"]["flops_per_video"]) == flops
    assert int(rows["recommit"]["flops_per_video"]) == 0
    assert float(rows["recommit"]["device_seconds_per_video"]) == 0
    (winners,) = (
        row for row in rows_of(tables["search_quality"]) if (row["arm"], row["videos_are"]) == (arm, "recommitted")
    )
    assert int(winners["flops_per_video"]) == flops
    planned = searched_flops(plan, {name: made_at(FLOPS[name]) for name in FLOPS})
    assert planned[arm] == flops


def entrants_of(plan: Plan, arm: str, number: int) -> list[str]:
    return plan.searches.entrants(Choice(arm, number)) if number <= len(plan.experiment.searches[arm].rounds) else []


def made_at(flops: int) -> ArmCost:
    return ArmCost(forwards=1, rows=1, forward_flops=flops, sample_flops=flops, weights={})


def test_tables_of_arms_are_the_same_without_the_records_of_candidates(played: tuple[Plan, Results]) -> None:
    plan, results = played
    for record in results.latents.values():
        record["work"]["flops_possible"] += 1  # the cache of one arm has skipped something
    own = Results(plan.document())
    for kind in ("latents", "videos"):
        for about, record in getattr(results, kind).items():
            if about[0] in plan.arms:
                getattr(own, kind)[about] = record
    for dimension, records in results.scores.items():
        own.scores[dimension] = {about: record for about, record in records.items() if about[0] in plan.arms}
    own.memory = {about: held for about, held in results.memory.items() if about[0] in plan.arms}
    assert len(own.videos) < len(results.videos)
    assert make_tables(own) == make_tables(results)
    assert vbench_table(own) == vbench_table(results)
    named = {file for files in manifests_of(plan, candidates=False).values() for file in map(str, files)}
    assert not any(f"/{arm}/" in file for arm in plan.searches.hidden for file in named)
    assert {plan.paths.latents(arm, shard) for arm in plan.arms for shard in plan.shards} <= named
    assert {plan.paths.scores(arm, VERIFIER, shard) for arm in plan.arms for shard in plan.shards} <= named


def test_scores_of_winners_against_videos_of_another_noise_are_remarked_on(
    searching: dict[str, Any], plan_of: PlanOf
) -> None:
    assert plan_of(searching).remarks == []
    searching["scoring"]["dimensions"] += ["psnr", "ssim"]
    plan = plan_of(searching)
    said = "best: psnr, ssim compare each winner with full's video, which is of another noise"
    assert said in plan.remarks[0]
    assert said in plan_text(plan)
    table = Path(plan.paths.table("scores"))
    table.parent.mkdir(parents=True)
    table.write_text("arm,dimension,videos,mean,low,high\nbest,psnr,6,9.0,8.0,10.0\nbest,ssim,6,0.2,0.1,0.3\n")
    assert "compare winners with full's videos of another noise:\n  best: psnr, ssim" in (
        summary_text(plan.experiment, plan.digest, ["experiment.yaml"])
    )


def test_more_candidates_are_better_by_their_verifier_and_cost_more(played: tuple[Plan, Results]) -> None:
    _, results = played
    rows = rows_of(search_tables(results)["search_quality"])
    curve = [row for row in rows if row["arm"] == "halving" and row["videos_are"] == "best of candidates"]
    assert [int(row["candidates"]) for row in curve] == [1, 2, 4, 5]
    means = [float(row["mean"]) for row in curve]
    assert means == sorted(means)
    assert [int(row["flops_per_video"]) for row in curve] == [100, 200, 400, 500]
    winners = [row for row in rows if row["videos_are"] == "recommitted"]
    assert {row["arm"]: int(row["flops_per_video"]) for row in winners} == {"best": 1300, "halving": 2400}
    assert {row["arm"] for row in rows if row["videos_are"] == "as they are"} == {"full", "cached", "draft"}


def test_a_campaign_without_searches_has_no_tables_of_them(small: dict[str, Any], plan_of: PlanOf) -> None:
    assert search_tables(Results(plan_of(small).document())) == {}


def findings(plan: Plan, results: Results) -> list[str]:
    document = plan.document()
    return [
        *check_samples(document, results),
        *check_scores(document, results),
        *check_nothing_else(document, results),
        *check_choices(document, results),
    ]


def test_the_evidence_of_a_search_is_checked_to_its_choices(played: tuple[Plan, Results]) -> None:
    plan, results = played
    assert findings(plan, results) == []


def test_two_records_of_one_choice_are_an_error(played: tuple[Plan, Results]) -> None:
    _, results = played
    with pytest.raises(Damaged, match="two choices records for arm 'best'"):
        results.add([next(record for about, record in results.choices.items() if about[0] == "best")])


def _another_winner(results: Results) -> None:
    record = results.choices[next(about for about in results.choices if about[0] == "best")]
    record["kept"] = [next(one["seed"] for one in record["candidates"] if one["seed"] not in record["kept"])]


def _another_value(results: Results) -> None:
    record = results.choices[next(about for about in results.choices if about[0] == "best")]
    record["candidates"][0]["value"] += 1


def _no_choice(results: Results) -> None:
    del results.choices[next(about for about in results.choices if about[:2] == ("halving", 2))]


def _no_candidate(results: Results) -> None:
    del results.latents[next(about for about in results.latents if about[0] == "draft@2")]


def _no_score(results: Results) -> None:
    """The best candidate has lost its score."""
    about, record = next((about, record) for about, record in results.choices.items() if about[0] == "best")
    (lost,) = [one for one in record["candidates"] if one["seed"] in record["kept"]]
    del results.scores[VERIFIER][lost["arm"], about[2], about[3]]


def _fewer_candidates(results: Results) -> None:
    """The best candidate is left out of everything, and the next one wins."""
    _no_score(results)
    record = results.choices[next(about for about in results.choices if about[0] == "best")]
    record["candidates"] = [one for one in record["candidates"] if one["seed"] not in record["kept"]]
    record["kept"] = choose(record["candidates"], 1, "highest")


def _exchanged_seeds(results: Results) -> None:
    """A loser passes as the winner."""
    record = results.choices[next(about for about in results.choices if about[0] == "best")]
    winner = next(one for one in record["candidates"] if one["seed"] in record["kept"])
    loser = next(one for one in record["candidates"] if one is not winner)
    winner["seed"], loser["seed"] = loser["seed"], winner["seed"]
    record["kept"] = [winner["seed"]]


def _exchanged_survivors(results: Results) -> None:
    record = results.choices[next(about for about in results.choices if about[:2] == ("halving", 2))]
    first, second, _ = record["candidates"]
    first["seed"], second["seed"] = second["seed"], first["seed"]


def _another_dimension(results: Results) -> None:
    results.scores["beauty"] = results.scores[VERIFIER].copy()


def _another_choice(results: Results) -> None:
    about, record = next((about, record) for about, record in results.choices.items() if about[0] == "best")
    results.choices["best", 2, about[2], about[3]] = record


def _no_values(results: Results) -> None:
    for about, record in results.choices.items():
        if about[:2] == ("best", 1):
            for one in record["candidates"]:
                one["value"] = results.scores[VERIFIER][one["arm"], about[2], about[3]]["value"] = None


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (_no_values, ["the verifier has values for 0"]),
        (_another_winner, ["is not what the scores of temporal_flickering give", "planned was"]),
        (_another_value, ["are not those with their recorded scores"]),
        (_no_choice, ["no record of what was chosen in round 2 of 'halving'"]),
        (_no_candidate, ["no latents record for arm 'draft@2'"]),
        (_no_score, [f"no scores record of {VERIFIER} for arm 'draft", f"no score of {VERIFIER} for draft"]),
        (_fewer_candidates, [f"no scores record of {VERIFIER}", "chosen among 2 candidates, planned were 3"]),
        (_exchanged_seeds, ["not drawn from the seeds that they were to be"]),
        (_exchanged_survivors, ["not drawn from the seeds that they were to be"]),
        (_another_dimension, ["unplanned: a scores record of beauty for arm 'draft@2'"]),
        (_another_choice, ["unplanned: a choices record of round 2 for arm 'best'"]),
    ],
)
def test_a_forged_search_is_found(
    played: tuple[Plan, Results], forge: Callable[[Results], None], said: Sequence[str]
) -> None:
    plan, results = played
    forge(results)
    found = findings(plan, results)
    assert all(any(one in finding for finding in found) for one in said), found
    assert search_tables(results), "what is forged is looked at to the end"
