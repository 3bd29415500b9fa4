"""What a spool promises, rule by rule."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from spool_audit import audit, state_files
from spool_doubles import CountingFilesystem, HandClock, UnreliableFilesystem, Verdicts

from fleetcraft.ground.errors import BadInput, NoSpace
from fleetcraft.spool import (
    CRASHED,
    Attempt,
    BadSpool,
    Controllership,
    Filesystem,
    Lease,
    LeaseWatch,
    Liveness,
    Outcome,
    Policy,
    Producer,
    Reaped,
    Reaper,
    Request,
    ResultScanner,
    Spool,
    SpoolBusy,
    State,
    Station,
    TaskName,
    TaskSpec,
    Verdict,
    Writer,
    decide,
    read_journals,
    survey,
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def spool(tmp_path: Path, clock: HandClock) -> Spool:
    return Spool.create(tmp_path / "spool", "test", clock=clock)


def task(task_id: str, **fields: object) -> TaskSpec:
    return TaskSpec(task_id, ("true",), "/", **fields)  # type: ignore[arg-type]


def enqueue(spool: Spool, *specs: TaskSpec) -> None:
    with Writer(spool, "test") as writer:
        Producer(writer).enqueue(specs)


def station(spool: Spool, host: str = "n1") -> Station:
    return Station(Writer(spool, host, host=host, boot="b"))


def claim(one: Station, limit: int = 1, fits: object = lambda request: True) -> list[str]:
    return [claim.name.id for claim in one.claim(fits, lambda claim: None, limit)]  # type: ignore[arg-type]


def end(one: Station, outcome: Outcome = Outcome.SUCCEEDED, cause: str = "as told") -> None:
    one.end([(claim, one.attempt(claim, outcome, cause)) for claim in one.claims])


# ---- the spool itself


def test_a_spool_belongs_to_one_campaign(spool: Spool) -> None:
    assert Spool.create(spool.root, "test").campaign == "test"
    with pytest.raises(BadSpool, match="of its own"):
        Spool.create(spool.root, "other")


def test_a_spool_of_another_version_is_refused_with_what_to_do(spool: Spool) -> None:
    description = json.loads(spool.layout.description.read_text())
    spool.layout.description.write_text(json.dumps({**description, "version": 99}))
    with pytest.raises(BadSpool, match=r"99.*works with version 1"):
        Spool.open(spool.root)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "other"}', '{"format": "fleetcraft-spool", "version": 1}']
)
def test_rubbish_in_place_of_the_description_is_explained(spool: Spool, content: str) -> None:
    spool.layout.description.write_text(content)
    with pytest.raises(BadSpool, match="can't be understood"):
        Spool.open(spool.root)


def test_a_directory_that_is_no_spool_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadSpool, match=r"spool\.json is missing"):
        Spool.open(tmp_path)


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    class Full(Filesystem):
        def before(self, call: str, path: Path) -> None:
            if call == "write":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    root = Spool.create(tmp_path / "s", "c").root
    with Writer(Spool.open(root, filesystem=Full()), "w") as writer, pytest.raises(NoSpace, match="Free space"):
        Producer(writer).enqueue([task("t")])


def test_a_read_only_spool_is_explained(tmp_path: Path) -> None:
    class ReadOnly(Filesystem):
        def before(self, call: str, path: Path) -> None:
            if call in ("mkdir", "write"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with pytest.raises(BadInput, match="can't be written"):
        Spool.create(tmp_path / "s", "c", filesystem=ReadOnly())


def test_no_directory_grows_beyond_a_thousand_entries(spool: Spool) -> None:
    enqueue(spool, *(task(f"t{number}") for number in range(2600)))
    assert audit(spool.root) == []
    one = station(spool)
    while claim(one, 50):
        end(one)
    assert audit(spool.root) == []
    assert Counter(places[0][0] for places in state_files(spool.root).values()) == {"done": 2600}
    one.leave()
    assert [p for p in spool.layout.pending.rglob("*") if p.is_dir() and p.parent.parent == spool.layout.pending] == []


def test_journals_and_results_of_many_writers_are_grouped(spool: Spool) -> None:
    for _ in range(1100):
        with Writer(spool, "w") as writer:
            writer.note("here")
    assert audit(spool.root) == []
    assert sum(entry["event"] == "here" for entry in read_journals(spool.root)) == 1100


def test_a_poll_costs_the_same_with_a_hundred_and_with_ten_thousand_tasks_waiting(tmp_path: Path) -> None:
    costs = []
    for tasks in (100, 10_000):
        filesystem = CountingFilesystem()
        spool = Spool.create(tmp_path / str(tasks), "c", filesystem=filesystem)
        enqueue(spool, *(task(f"t{number}") for number in range(tasks)))
        scanner, one = ResultScanner(spool), station(spool)
        filesystem.calls.clear()
        scanner.poll()
        polled = dict(filesystem.calls)
        filesystem.calls.clear()
        assert len(claim(one)) == 1
        costs.append((polled, dict(filesystem.calls)))
    assert costs[0] == costs[1]


# ---- enqueueing


def test_enqueueing_again_changes_nothing_in_whatever_state_the_task_is(spool: Spool) -> None:
    enqueue(spool, *(task(f"t{number}") for number in range(4)))
    one = station(spool)
    assert len(claim(one, 3)) == 3
    first, second, _ = one.claims
    one.end([(first, one.attempt(first, Outcome.SUCCEEDED, "")), (second, one.attempt(second, Outcome.FAILED, ""))])
    before = state_files(spool.root)
    with Writer(spool, "again") as writer:
        report = Producer(writer).enqueue(task(f"t{number}", priority=900) for number in range(5))
    assert report.new == ("t4",)
    after = state_files(spool.root)
    del after["t4"]
    assert after == before


def test_two_producers_at_once_enqueue_a_task_once(spool: Spool) -> None:
    with Writer(spool, "a") as a, Writer(spool, "b") as b:
        first, second = Producer(a), Producer(b)
        reports = [first.enqueue([task("t")]), second.enqueue([task("t"), task("u")])]
    assert [report.new for report in reports] == [("t",), ("u",)]
    assert audit(spool.root) == []


def test_what_was_half_enqueued_is_completed_by_the_next_producer(spool: Spool) -> None:
    enqueue(spool, task("t"))
    (path,) = (place.path for place in survey(spool).values())
    draft = spool.layout.staging_of("000-dead-0123456789ab") / "t"
    draft.parent.mkdir()
    path.rename(draft)
    with Writer(spool, "next") as writer:
        assert Producer(writer).enqueue([task("t")]).known == ("t",)
    assert survey(spool)["t"].state is State.PENDING


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ()},
        {"directory": "relative"},
        {"priority": 1000},
        {"retries": -1},
        {"id": "../x"},
        {"id": ""},
        {"id": "a b"},
    ],
)
def test_a_task_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        TaskSpec(**{"id": "t", "command": ("true",), "directory": "/", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"threads": 0},
        {"mem_mb": -1},
        {"runtime_s": 0},
        {"nodes": 0},
        {"access": "odd"},
        {"lane": "a-b"},
        {"gpus": 1.5},
        {"nodes": 2},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Request(**fields)  # type: ignore[arg-type]


def test_a_request_is_told_by_the_name_of_its_class(spool: Spool) -> None:
    request = Request(2, 3000, 1, 4000, 500, 6, "exclusive", "gh.gpu")
    assert Request.of_class(request.class_name) == request
    assert Request.of_class("lost+found") is None
    assert Request.of_class("c1-m0-g0-v0-r60-n2-shared") is None


def test_a_task_name_is_read_back_whatever_its_id(spool: Spool) -> None:
    for task_id in ("a", "a-a1", "500-x-a3", "rule=generate,arm=full", "9"):
        name = TaskName(7, task_id, 12)
        assert TaskName.parse(str(name)) == name
    assert TaskName.parse("stray") is None


def test_too_many_different_requests_are_refused_with_what_to_do(spool: Spool) -> None:
    with pytest.raises(BadInput, match="Round"):
        enqueue(spool, *(task(f"t{number}", request=Request(mem_mb=number)) for number in range(501)))


# ---- claiming


def test_higher_priority_goes_first_then_what_is_hardest_to_place(spool: Spool) -> None:
    enqueue(
        spool,
        task("small"),
        task("urgent", priority=900),
        task("alone", request=Request(access="exclusive")),
        task("large", request=Request(threads=8)),
    )
    assert claim(station(spool), 4) == ["urgent", "alone", "large", "small"]


def test_a_worker_claims_only_what_fits(spool: Spool) -> None:
    enqueue(spool, task("small"), task("large", request=Request(threads=8)))
    assert claim(station(spool), 5, lambda request: request.threads < 8) == ["small"]


def test_two_workers_never_claim_the_same_task(spool: Spool) -> None:
    enqueue(spool, *(task(f"t{number}") for number in range(100)))
    workers = [station(spool, f"n{number}") for number in range(4)]
    claimed: list[str] = []
    while round_of := [task_id for one in workers for task_id in claim(one, 3)]:
        claimed += round_of
    assert sorted(claimed) == sorted(f"t{number}" for number in range(100))


def test_a_claim_that_the_file_system_denies_is_owned_all_the_same(tmp_path: Path, clock: HandClock) -> None:
    filesystem = UnreliableFilesystem()
    spool = Spool.create(tmp_path / "s", "c", filesystem=filesystem, clock=clock)
    enqueue(spool, task("t"))
    one = station(spool)
    filesystem.lies = 1
    assert claim(one) == ["t"]


def test_a_claim_is_made_once_even_where_a_lagging_listing_still_shows_the_task(
    tmp_path: Path, clock: HandClock
) -> None:
    filesystem = UnreliableFilesystem()
    spool = Spool.create(tmp_path / "s", "c", filesystem=filesystem, clock=clock)
    enqueue(spool, task("t"))
    one = station(spool)
    assert claim(one) == ["t"]
    clock.now_s += 1
    filesystem.lagging = 3
    assert claim(one) == []


def test_a_stray_file_among_the_waiting_is_put_aside_and_reported(spool: Spool) -> None:
    enqueue(spool, task("t"))
    (bucket,) = (place.path.parent for place in survey(spool).values())
    (bucket / "notes.txt").write_text("x")
    one = station(spool)
    assert claim(one, 5) == ["t"]
    (result,) = ResultScanner(spool).poll()
    assert (result.id, result.state) == ("notes.txt", State.QUARANTINE)


# ---- ending


def test_a_late_result_is_recorded_and_refused(spool: Spool, clock: HandClock) -> None:
    enqueue(spool, task("t"))
    slow, oracle = station(spool, "n1"), Verdicts()
    claim(slow)
    late = slow.claims
    oracle.gone(slow.name, "node failed")
    with Writer(spool, "c") as writer:
        reaper = Reaper(writer, oracle, stale_s=10)
        reaper.step()
        clock.now_s += 4
        assert reaper.step().workers == {}
        for _ in range(3):
            clock.now_s += 4
            reaper.step()
    assert survey(spool)["t"].name.attempt == 2
    assert slow.end([(late[0], slow.attempt(late[0], Outcome.SUCCEEDED, "late"))]) == []
    slow.writer.sync()
    assert [entry["event"] for entry in read_journals(spool.root)].count("refused") == 1
    with pytest.raises(Reaped):
        slow.beat()


def decide_after(*endings: tuple[Outcome, str, str], retries: int = 0, policy: Policy | None = None) -> State:
    history = [Attempt(number, *rest[:2], "w", rest[2]) for number, rest in enumerate(endings, 1)]
    return decide(task("t", retries=retries), history[:-1], history[-1], policy or Policy()).state


def test_only_what_the_task_did_counts_against_its_retries() -> None:
    failed = (Outcome.FAILED, "exit code 1", "n1")
    for fault in (Outcome.INTERRUPTED, Outcome.RETURNED, Outcome.LOST):
        assert decide_after(*[(fault, "walltime", "n1")] * 50, failed, retries=1) is State.PENDING
    assert decide_after(failed, retries=1) is State.PENDING
    assert decide_after(failed, (Outcome.LOST, "walltime", "n1"), failed, retries=1) is State.FAILED


def test_a_task_that_fails_on_two_nodes_is_failed() -> None:
    one, other = (Outcome.FAILED, "exit code 1", "n1"), (Outcome.FAILED, "exit code 1", "n2")
    assert decide_after(one, one, one, retries=9) is State.PENDING
    assert decide_after(one, other, retries=9) is State.FAILED


def test_a_task_whose_worker_dies_under_it_twice_is_failed() -> None:
    crash = (Outcome.LOST, CRASHED, "n1")
    assert decide_after(crash) is State.PENDING
    assert decide_after(crash, (Outcome.LOST, "node failed", "n1")) is State.PENDING
    assert decide_after(crash, crash) is State.FAILED


def test_no_task_is_tried_for_ever() -> None:
    lost = (Outcome.LOST, "preempted", "n1")
    assert decide_after(*[lost] * 9, policy=Policy(attempts=10)) is State.PENDING
    assert decide_after(*[lost] * 10, policy=Policy(attempts=10)) is State.FAILED


def test_after_a_crash_a_task_runs_alone(spool: Spool) -> None:
    enqueue(spool, task("t"))
    one = station(spool)
    claim(one)
    end(one, Outcome.LOST, CRASHED)
    assert "exclusive" in str(survey(spool)["t"].path)
    claim(one)
    assert one.claims[0].request.access == "exclusive"


def test_an_ended_task_can_be_enqueued_anew_with_all_its_retries(spool: Spool) -> None:
    enqueue(spool, task("t", retries=1))
    one = station(spool)
    for _ in range(2):
        claim(one)
        end(one, Outcome.FAILED)
    assert survey(spool)["t"].state is State.FAILED
    with Writer(spool, "c") as writer:
        assert Producer(writer).resubmit([task("t", retries=1, priority=7)]).new == ("t",)
    assert str(survey(spool)["t"].name) == "007-t-a3"
    claim(one)
    end(one, Outcome.FAILED)
    assert survey(spool)["t"].state is State.PENDING


# ---- who is alive


def test_standing_still_is_judged_by_the_observers_own_clock_and_not_while_it_slept() -> None:
    watch = LeaseWatch(stale_s=30)
    assert not watch.observe("w", 1, 0)
    assert not watch.observe("w", 1, 1000), "one long gap of the observer is no proof"
    assert not watch.observe("w", 1, -5000), "a clock that jumps back is no proof"
    assert not watch.observe("w", 1, 5000)
    assert not watch.observe("w", 2, 5010), "it moves"
    answers = [watch.observe("w", 2, 5010 + 10 * step) for step in (1, 2, 3)]
    assert answers == [False, False, True]


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.ALIVE])
def test_a_worker_that_stands_still_keeps_its_claims_unless_it_is_known_to_be_gone(
    spool: Spool, clock: HandClock, verdict: Verdict
) -> None:
    enqueue(spool, task("t"))
    one = station(spool)
    claim(one)
    with Writer(spool, "c") as writer:
        reaper = Reaper(writer, Verdicts({one.name: Liveness(verdict)}), stale_s=10)
        for _ in range(20):
            clock.now_s += 3
            report = reaper.step()
    assert report.waiting == {one.name: verdict.value}
    assert survey(spool)["t"].state is State.RUNNING


def test_a_worker_that_beats_keeps_its_claims_whatever_the_oracle_says(spool: Spool, clock: HandClock) -> None:
    enqueue(spool, task("t"))
    one = station(spool)
    claim(one)
    oracle = Verdicts()
    oracle.gone(one.name, "node failed")
    with Writer(spool, "c") as writer:
        reaper = Reaper(writer, oracle, stale_s=10)
        for _ in range(20):
            clock.now_s += 3
            one.beat()
            assert reaper.step().workers == {}
    assert oracle.asked == [], "nobody is asked about a worker that lives"


def test_a_lease_says_what_its_worker_wants_said(spool: Spool) -> None:
    one = station(spool)
    one.beat(Lease("", 0, "", "", capacity={"threads": 4}, identity={"job": 7}))
    from fleetcraft.spool import read_leases

    lease = read_leases(spool)[one.name]
    assert (lease.counter, lease.host, lease.capacity["threads"], lease.identity["job"]) == (2, "n1", 4, 7)


def test_a_second_controller_is_refused_and_a_dead_one_replaced(spool: Spool, clock: HandClock) -> None:
    with Writer(spool, "one") as one, Writer(spool, "two") as two:
        first = Controllership(one)
        with pytest.raises(SpoolBusy, match="controls this spool"):
            Controllership(two)
        content = json.loads(spool.layout.controller.read_text())
        spool.layout.controller.write_text(json.dumps({**content, "start": content["start"] - 1}))
        second = Controllership(two)
        second.beat()
        with pytest.raises(SpoolBusy):
            first.beat()
        second.release()
        Controllership(one).release()


def test_a_controller_elsewhere_is_replaced_only_after_it_was_seen_standing_still(
    spool: Spool, clock: HandClock
) -> None:
    with Writer(spool, "far", host="login9", boot="z") as far, Writer(spool, "here") as here:
        Controllership(far)
        began_s = clock.now_s
        Controllership(here, patience_s=30)
        assert clock.now_s - began_s >= 30


# ---- results


def test_each_result_is_reported_once_and_a_new_scanner_starts_from_the_beginning(
    spool: Spool, clock: HandClock
) -> None:
    enqueue(spool, *(task(f"t{number}") for number in range(1200)))
    scanner, one, seen = ResultScanner(spool), station(spool), []
    while claim(one, 100):
        end(one)
        seen += [result.id for result in scanner.poll()]
        clock.now_s += 50
    seen += [result.id for result in scanner.poll()]
    assert sorted(seen) == sorted(f"t{number}" for number in range(1200))
    assert len(ResultScanner(spool).poll()) == 1200


def test_full_buckets_are_not_read_again(tmp_path: Path, clock: HandClock) -> None:
    filesystem = CountingFilesystem()
    spool = Spool.create(tmp_path / "s", "c", filesystem=filesystem, clock=clock)
    enqueue(spool, *(task(f"t{number}") for number in range(2100)))
    scanner, one = ResultScanner(spool), station(spool)
    while claim(one, 500):
        end(one)
    scanner.poll()
    clock.now_s += 200
    scanner.poll()
    filesystem.calls.clear()
    assert scanner.poll() == []
    # The leases, three states, one crew, one writer, and the one bucket that can still grow.
    assert dict(filesystem.calls) == {"list": 7}


def test_a_poll_does_not_look_again_and_again_at_workers_that_have_left(tmp_path: Path, clock: HandClock) -> None:
    filesystem = CountingFilesystem()
    spool = Spool.create(tmp_path / "s", "c", filesystem=filesystem, clock=clock)
    enqueue(spool, *(task(f"t{number}") for number in range(50)))
    for number in range(50):
        one = station(spool, f"n{number}")
        claim(one)
        end(one)
        one.leave()
    scanner = ResultScanner(spool)
    assert len(scanner.poll()) == 50
    for _ in range(30):
        clock.now_s += 10
        scanner.poll()
    clock.now_s += 1
    filesystem.calls.clear()
    scanner.poll()
    assert dict(filesystem.calls) == {"list": 5}


def test_a_claim_that_was_never_started_is_not_to_blame_for_its_workers_death(spool: Spool, clock: HandClock) -> None:
    enqueue(spool, task("started"), task("waiting"))
    one, oracle = station(spool), Verdicts()
    claim(one, 2)
    log = spool.layout.log(TaskName(500, "started", 1))
    log.parent.mkdir()
    log.touch()
    oracle.gone(one.name, CRASHED)
    with Writer(spool, "c") as writer:
        reaper = Reaper(writer, oracle, stale_s=0)
        reaper.step()
    outcomes = {entry["task"]: entry["outcome"] for entry in read_journals(spool.root) if entry["event"] == "settled"}
    assert outcomes == {"started": "lost", "waiting": "returned"}


def test_a_worker_that_died_before_its_first_lease_leaves_nothing(spool: Spool, clock: HandClock) -> None:
    spool.layout.claims_of("000-n1-0123456789ab").mkdir()
    with Writer(spool, "c") as writer:
        reaper = Reaper(writer, Verdicts(), stale_s=10)
        for _ in range(6):
            clock.now_s += 3
            reaper.step()
    assert audit(spool.root, at_rest=True) == []


def test_many_are_cancelled_together(spool: Spool) -> None:
    from fleetcraft.spool import cancel

    enqueue(spool, *(task(f"t{number}") for number in range(700)))
    with Writer(spool, "c") as writer:
        report = cancel(writer, [f"t{number}" for number in range(700)])
    assert len(report.cancelled) == 700
    assert {result.problem for result in ResultScanner(spool).poll()} == {"cancelled"}
    assert audit(spool.root) == []
