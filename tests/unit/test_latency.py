"""Latencies from records of timed passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.analysis.latency import PHASES, latency_tables, measured, outlying, ratios, spreads
from fleetcraft.ground.errors import BadInput, BadResult
from fleetcraft.timing.order import interleaved


def record(arm: str, prompt: str, number: int, seconds: float, **other: Any) -> dict[str, Any]:
    where = {"host": "n1", "slot": "n1/node", "stack": "s", "job": "j"}
    about = {"kind": "timings", "arm": arm, "prompt": prompt, "seed": 0, "round": number, "warmup": False}
    return {**about, "valid": True, "where": where, "seconds": {"total": seconds}, **other}


def passes(slowdown: float, noise: float = 0.01, prompts: int = 4, rounds: int = 5) -> list[dict[str, Any]]:
    generator = np.random.default_rng(3)
    found = []
    for prompt in range(prompts):
        length = 1 + prompt
        for number in range(rounds):
            for arm, factor in (("full", 1.0), ("slow", slowdown)):
                seconds = length * factor * float(np.exp(noise * generator.standard_normal()))
                found.append(record(arm, f"prompt {prompt}", number, seconds))
    return found


def test_two_equal_arms_have_an_interval_that_covers_one() -> None:
    (ratio,) = ratios(passes(1.0), "full", "total")
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= 1 <= ratio.high
    assert ratio.high - ratio.low < 0.05


@pytest.mark.parametrize("slowdown", [0.5, 0.9, 1.1, 3.0])
def test_a_known_slowdown_is_found_within_two_percent_and_its_interval_leaves_one_out(slowdown: float) -> None:
    (ratio,) = ratios(passes(slowdown), "full", "total")
    assert ratio.value == pytest.approx(slowdown, rel=0.02)
    assert ratio.low is not None
    assert ratio.high is not None
    assert not ratio.low <= 1 <= ratio.high


def test_one_disturbed_pass_is_shown_and_moves_nothing() -> None:
    records = passes(1.0)
    records[0] = {**records[0], "seconds": {"total": 50.0}}
    (ratio,) = ratios(records, "full", "total")
    assert ratio.value == pytest.approx(1.0, rel=0.02)
    assert {spread.arm: spread.outliers >= 1 for spread in spreads(records, "total")}["full"]
    assert outlying([1.0, 1.01, 0.99, 1.0, 50.0]) == [4]


def test_warm_up_and_disturbed_passes_never_count() -> None:
    records = [
        record("full", "a", 0, 1.0),
        record("full", "a", 0, 9.0, warmup=True),
        record("full", "a", 1, 9.0, valid=False),
    ]
    assert [one["seconds"]["total"] for one in measured(records)] == [1.0]


def test_tables_have_the_arms_in_the_order_of_the_plan_whichever_pass_counts_first() -> None:
    seconds = dict.fromkeys(("total", *PHASES), 1.0)
    records = [
        {**record(arm, prompt, number, 1.0, steps_s=[0.5]), "seconds": seconds}
        for prompt in ("a", "b")
        for number in range(2)
        for arm in ("slow", "full")
    ]
    conditions: dict[str, Any] = {"full": {}, "slow": {}}
    plan = {"conditions": conditions, "baseline": "full", "experiment": {"video": {"frames": 9}}}
    tables = latency_tables([{**records[0], "kind": "surroundings", "load_s": {}}, *records], plan)
    rows = [line.split(",")[:2] for line in tables["latency"].splitlines()]
    assert [arm for arm, phase in rows if phase == "total"] == ["full", "slow"]


def test_a_bulk_record_can_not_enter_a_latency() -> None:
    with pytest.raises(BadInput, match="Bulk generation says nothing of latency"):
        measured([{**record("full", "a", 0, 1.0), "kind": "latents"}])


@pytest.mark.parametrize("name", ["host", "slot", "stack", "job"])
def test_passes_of_different_places_are_not_compared(name: str) -> None:
    records = passes(1.0)
    records[-1] = {**records[-1], "where": {**records[-1]["where"], name: "another"}}
    with pytest.raises(BadResult, match=f"different {name}s"):
        ratios(records, "full", "total")


@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 4))
def test_every_arm_runs_every_round_and_no_arm_always_goes_first(
    arms: int, prompts: int, warmup: int, repeats: int
) -> None:
    names = [f"arm{number}" for number in range(arms)]
    order = list(interleaved(names, prompts, warmup, repeats))
    assert len(order) == len(set(order)) == arms * prompts * (warmup + repeats)
    counted = Counter((one.prompt, one.round) for one in order if not one.warmup)
    assert set(counted.values()) == {arms}
    for first, second in zip(order[::arms], order[arms::arms], strict=False):
        if first.prompt == second.prompt:
            assert first.arm != second.arm
