"""Which allocations are submitted: by example, and for any work, lanes and limits."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcraft.fleet.decision import Decision, Hold, Living, Submit, Usage, Work, decide, slots
from fleetcraft.fleet.settings import FleetSettings
from fleetcraft.spool import Request

INFINITE = float("inf")


def lane(most: int = 4, least: int = 1, **changes: Any) -> dict[str, Any]:
    node = {"cores": 4, "memory_mb": 8000, "gpus": 2, "gpu_mem_mb": 1000}
    base = {"partition": "p", "account": None, "nodes": {"min": least, "max": most}, "walltime_min": 120, "node": node}
    return base | changes


def fleet(lanes: dict[str, Any] | None = None, nodes: int = 16, **site: Any) -> FleetSettings:
    return FleetSettings.model_validate(
        {"lanes": lanes or {"main": lane()}, "site": {"nodes": nodes, **site}, "workers": {"caches": "/c"}}
    )


def work(count: int, task_s: float = 600, **request: Any) -> Work:
    if request.get("nodes", 1) > 1:
        request["access"] = "exclusive"
    return Work(Request(**{"runtime_s": 3600, **request}), count, task_s)


def nodes(decisions: list[Decision]) -> dict[str, int]:
    return {decision.lane: decision.nodes for decision in decisions if isinstance(decision, Submit)}


def held(decisions: list[Decision]) -> dict[str, str]:
    return {decision.lane: decision.reason for decision in decisions if isinstance(decision, Hold)}


def test_without_work_nothing_is_submitted() -> None:
    assert decide([], fleet(), [], Usage(), INFINITE) == []
    assert decide([work(0)], fleet(), [], Usage(), INFINITE) == []


def test_no_more_nodes_than_there_is_work_for() -> None:
    one_gpu_each = work(5, gpus=1)
    assert nodes(decide([one_gpu_each], fleet(), [], Usage(), INFINITE)) == {"main": 3}


def test_short_tasks_ask_for_few_nodes_once_their_duration_is_known() -> None:
    unknown, known = work(80, 3600), work(80, 6)
    assert nodes(decide([unknown], fleet(), [], Usage(), INFINITE)) == {"main": 4}
    assert nodes(decide([known], fleet(), [], Usage(), INFINITE)) == {"main": 1}


def test_what_lives_does_its_share() -> None:
    there = [Living("main", 2, 3600)]
    assert decide([work(8)], fleet(), there, Usage(1, 1, 2), INFINITE) == []
    more = decide([work(12)], fleet({"main": lane(max_allocations=2)}), there, Usage(1, 1, 2), INFINITE)
    assert nodes(more) == {"main": 1}


def test_a_follow_on_comes_when_work_outlasts_the_walltime_and_not_before() -> None:
    settings_ = fleet({"main": lane(max_allocations=2)})
    fits, outlasts = work(16 * 3), work(16 * 12)
    there = [Living("main", 4, 3600)]
    assert nodes(decide([fits], settings_, there, Usage(1, 1, 4), INFINITE)) == {}
    assert nodes(decide([outlasts], settings_, there, Usage(1, 1, 4), INFINITE)) == {"main": 4}
    assert "as many as are allowed" in held(decide([outlasts], fleet(), there, Usage(1, 1, 4), INFINITE))["main"]


def test_a_lane_does_not_wait_for_a_larger_one_that_has_no_room() -> None:
    lanes = {"large": lane(12, 12), "small": lane(8, 8)}
    decisions = decide([work(400)], fleet(lanes, nodes=12), [], Usage(1, 1, 4), INFINITE)
    assert nodes(decisions) == {"small": 8}
    assert "needs 12 nodes" in held(decisions)["large"]


def test_work_that_fills_no_shape_runs_all_the_same_where_nothing_else_will_run_it() -> None:
    lanes = {"large": lane(4, 4)}
    assert nodes(decide([work(1)], fleet(lanes), [], Usage(), INFINITE)) == {"large": 4}
    assert nodes(decide([work(1)], fleet(lanes), [Living("large", 4, 3700)], Usage(1, 1, 4), INFINITE)) == {}
    lanes["small"] = lane(1, 1)
    assert nodes(decide([work(1)], fleet(lanes), [], Usage(), INFINITE)) == {"small": 1}


def test_a_task_goes_to_its_lane_alone() -> None:
    lanes = {"one": lane(), "two": lane()}
    assert nodes(decide([work(4, lane="two")], fleet(lanes), [], Usage(), INFINITE)) == {"two": 1}


def test_an_allocation_with_too_little_time_left_counts_for_nothing() -> None:
    settings_ = fleet({"main": lane(max_allocations=2)})
    assert nodes(decide([work(4)], settings_, [Living("main", 1, 3599)], Usage(1, 1, 1), INFINITE)) == {"main": 1}


def test_a_gang_gets_all_of_its_nodes_or_none() -> None:
    gang = work(1, nodes=3)
    assert nodes(decide([gang], fleet(), [], Usage(), INFINITE)) == {"main": 3}
    assert nodes(decide([gang], fleet(nodes=2), [], Usage(), INFINITE)) == {}


def test_the_limits_of_the_site_hold_with_the_jobs_of_other_campaigns() -> None:
    busy = work(100)
    assert nodes(decide([busy], fleet(), [], Usage(1, 1, 14), INFINITE)) == {"main": 2}
    assert "jobs are submitted" in held(decide([busy], fleet(jobs_submitted=3), [], Usage(3, 1, 3), INFINITE))["main"]
    assert "jobs run" in held(decide([busy], fleet(jobs_running=2), [], Usage(2, 2, 3), INFINITE))["main"]


def test_the_budget_shrinks_an_allocation_and_then_stops_them() -> None:
    busy = work(100)
    assert nodes(decide([busy], fleet(), [], Usage(), 5)) == {"main": 2}
    stopped = decide([busy], fleet(), [], Usage(), 1.9)
    assert "budget is exhausted" in held(stopped)["main"]
    assert [decision.passes for decision in stopped if isinstance(decision, Hold)] == [False]
    unknown = decide([busy], fleet(), [], Usage(), None)
    assert [decision.passes for decision in unknown if isinstance(decision, Hold)] == [True]


def test_a_paused_lane_leaves_the_work_to_the_others() -> None:
    lanes = {"broken": lane(), "good": lane()}
    decisions = decide(
        [work(4)], fleet(lanes), [], Usage(), INFINITE, {"broken": Hold("broken", "rejected 3 times", False)}
    )
    assert nodes(decisions) == {"good": 1}
    assert held(decisions) == {"broken": "rejected 3 times"}


requests = st.builds(
    # A gang has its nodes to itself.
    lambda access, nodes, **rest: Request(access="exclusive" if nodes > 1 else access, nodes=nodes, **rest),
    threads=st.integers(1, 4),
    mem_mb=st.integers(0, 8000),
    gpus=st.integers(0, 2),
    gpu_mem_mb=st.sampled_from([0, 500, 1000]),
    runtime_s=st.integers(1, 20_000),
    nodes=st.sampled_from([1, 1, 1, 3]),
    access=st.sampled_from(["shared", "exclusive"]),
    lane=st.sampled_from([None, "a", "b"]),
)
works = st.lists(st.builds(Work, requests, st.integers(0, 500), st.floats(0.1, 20_000)), max_size=6)
shapes = st.tuples(st.integers(1, 6), st.integers(0, 6)).map(lambda pair: {"min": pair[0], "max": sum(pair)})
lanes_ = st.fixed_dictionaries(
    {
        name: st.builds(
            lambda shape, count, walltime: lane(nodes=shape, max_allocations=count, walltime_min=walltime),
            shapes,
            st.integers(1, 3),
            st.integers(5, 600),
        )
        for name in ("a", "b")
    }
)
livings = st.lists(
    st.builds(Living, st.sampled_from(["a", "b", "gone"]), st.integers(0, 12), st.floats(-10, 36_000)), max_size=4
)
usages = st.builds(Usage, st.integers(0, 10), st.integers(0, 10), st.integers(0, 30))


@settings(max_examples=300)
@given(works, lanes_, livings, usages, st.one_of(st.none(), st.floats(0, 500)), st.integers(12, 40))
def test_no_limit_is_ever_broken_and_nothing_is_submitted_without_work(
    work_: list[Work],
    lanes: dict[str, Any],
    living: list[Living],
    usage: Usage,
    funds: float | None,
    most: int,
) -> None:
    settings_ = fleet(lanes, nodes=most, jobs_submitted=6, jobs_running=5)
    decisions = decide(work_, settings_, living, usage, funds)
    submitted = [decision for decision in decisions if isinstance(decision, Submit)]
    assert len({decision.lane for decision in decisions}) == len(decisions)
    assert sum(s.nodes for s in submitted) <= max(0, most - usage.nodes)
    assert len(submitted) <= max(0, 6 - usage.jobs)
    assert not submitted or usage.running < 5
    assert sum(s.cost for s in submitted) <= (funds or 0) + 1e-6
    for s in submitted:
        shape = settings_.lanes[s.lane]
        assert shape.nodes.min <= s.nodes <= shape.nodes.max
        assert sum(a.lane == s.lane for a in living) < shape.max_allocations
        servable = [w for w in work_ if w.count and w.request.lane in (None, s.lane)]
        servable = [w for w in servable if shape.refusal(s.lane, w.request) is None]
        assert servable
        useful = sum(math.ceil(w.count / slots(w.request, shape.node)) for w in servable)
        assert s.nodes <= max(useful, shape.nodes.min)


@settings(max_examples=300)
@given(works, lanes_)
def test_where_nothing_stands_in_the_way_all_work_that_can_be_served_gets_an_allocation(
    work_: list[Work], lanes: dict[str, Any]
) -> None:
    settings_ = fleet(lanes, nodes=1000)
    submitted = nodes(decide(work_, settings_, [], Usage(), INFINITE))
    for w in work_:
        if w.count and settings_.refusal(w.request) is None:
            assert any(
                w.request.lane in (None, name)
                and w.request.nodes <= submitted[name]
                and settings_.lanes[name].refusal(name, w.request) is None
                for name in submitted
            )


@settings(max_examples=200, deadline=None)
@given(works, lanes_, usages)
def test_what_was_decided_settles(work_: list[Work], lanes: dict[str, Any], usage: Usage) -> None:
    """With what was submitted living, the same work asks for no more in a lane that may have only one."""
    for shape in lanes.values():
        shape["max_allocations"] = 1
    settings_ = fleet(lanes, nodes=1000, jobs_submitted=100, jobs_running=100)
    first = [d for d in decide(work_, settings_, [], usage, INFINITE) if isinstance(d, Submit)]
    living = [Living(s.lane, s.nodes, settings_.lanes[s.lane].usable_s) for s in first]
    again = decide(work_, settings_, living, usage, INFINITE)
    assert not {d.lane for d in again if isinstance(d, Submit)} & {s.lane for s in first}
