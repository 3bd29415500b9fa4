"""Whoever dies, at whatever point between two system calls, nothing is lost and nothing is done twice.

Each scenario is run again and again, dying one system call later each time, until it gets through; also with the last
write carried out by half. After each death, others recover the spool and finish its work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from spool_audit import audit, state_files
from spool_doubles import Crash, CrashingFilesystem, HandClock, Verdicts

from fleetcraft.spool import (
    CRASHED,
    BadSpool,
    Controllership,
    Outcome,
    Place,
    Policy,
    Producer,
    Reaper,
    Spool,
    State,
    Station,
    TaskSpec,
    Writer,
    cancel,
    survey,
)

TASKS = [TaskSpec(f"task-{number}", ("true",), "/", retries=1) for number in range(3)]
POLICY = Policy(crashes=10)

Scenario = Callable[[Spool], None]


def spool_with_tasks(root: Path, clock: HandClock) -> Spool:
    spool = Spool.create(root, "crash", POLICY, clock=clock)
    with Writer(spool, "setup") as writer:
        Producer(writer).enqueue(TASKS)
    return spool


def station_of(spool: Spool, host: str) -> Station:
    return Station(Writer(spool, host, host=host, boot="b"))


def claim_all(station: Station) -> None:
    station.claim(lambda request: True, lambda claim: None, len(TASKS))


def enqueue(spool: Spool) -> None:
    with Writer(spool, "victim") as writer:
        Producer(writer).enqueue([*TASKS, TaskSpec("another", ("true",), "/")])


def claim(spool: Spool) -> None:
    claim_all(station_of(spool, "n1"))


def end_with(outcome: Outcome) -> Scenario:
    def scenario(spool: Spool) -> None:
        station = station_of(spool, "n1")
        claim_all(station)
        station.end((claim, station.attempt(claim, outcome, "as told")) for claim in station.claims)

    return scenario


def leave(spool: Spool) -> None:
    station = station_of(spool, "n1")
    claim_all(station)
    station.leave()


def reap(spool: Spool) -> None:
    """The reaper dies while it takes back what a worker of the set-up had."""
    oracle = Verdicts()
    for worker in spool.filesystem.list(spool.layout.running):
        oracle.gone(worker, "node failed")
    with Writer(spool, "victim") as writer:
        reaper = Reaper(writer, oracle, stale_s=0)
        reaper.step()


def cancel_all(spool: Spool) -> None:
    with Writer(spool, "victim") as writer:
        cancel(writer, [spec.id for spec in TASKS])


def resubmit(spool: Spool) -> None:
    with Writer(spool, "victim") as writer:
        Producer(writer).resubmit(TASKS)


def control(spool: Spool) -> None:
    with Writer(spool, "victim") as writer:
        Controllership(writer, patience_s=0).release()


def before_reap(spool: Spool) -> None:
    claim_all(station_of(spool, "n9"))


def before_resubmit(spool: Spool) -> None:
    end_with(Outcome.SUCCEEDED)(spool)


SCENARIOS: dict[str, tuple[Scenario, Scenario | None]] = {
    "enqueue": (enqueue, None),
    "claim": (claim, None),
    "finish": (end_with(Outcome.SUCCEEDED), None),
    "fail": (end_with(Outcome.FAILED), None),
    "interrupt": (end_with(Outcome.INTERRUPTED), None),
    "leave": (leave, None),
    "reap": (reap, before_reap),
    "cancel": (cancel_all, None),
    "resubmit": (resubmit, before_resubmit),
    "control": (control, None),
}


def recorded(place: Place) -> bool:
    """Whether the success of a claimed task's attempt is on record: then only the rename is missing."""
    lines = place.path.read_bytes().split(b"\n")
    return place.state is State.RUNNING and any(
        b'"outcome":"succeeded"' in line and line.endswith(b"}}") for line in lines
    )


def recover_and_finish(spool: Spool, clock: HandClock) -> set[str]:
    """What a restarted controller and a fresh worker do; the ids of tasks that were executed."""
    oracle = Verdicts()
    for worker in spool.filesystem.list(spool.layout.running):
        oracle.gone(worker, CRASHED)
    for lease in spool.filesystem.list(spool.layout.leases):
        oracle.gone(lease.removesuffix(".json"), CRASHED)
    executed = set()
    with Writer(spool, "restarted") as writer:
        Producer(writer).enqueue(TASKS)
        reaper = Reaper(writer, oracle, stale_s=1)
        for _ in range(6):
            reaper.step()
            clock.now_s += 1
        station = station_of(spool, "n2")
        clock.now_s += 1
        while claims := station.claim(lambda request: True, lambda claim: None, 10):
            executed |= {claim.name.id for claim in claims}
            station.end([(claim, station.attempt(claim, Outcome.SUCCEEDED, "done")) for claim in claims])
        station.leave()
        station.writer.close()
        clock.now_s += 1
        for _ in range(6):
            reaper.step()
            clock.now_s += 1
    return executed


@pytest.mark.parametrize("torn", [False, True], ids=["clean", "torn"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_death_at_any_point_loses_and_doubles_nothing(name: str, torn: bool, tmp_path: Path) -> None:
    scenario, preparation = SCENARIOS[name]
    points = 0
    for crash_at in range(1, 400):
        clock = HandClock()
        healthy = spool_with_tasks(tmp_path / str(crash_at), clock)
        if preparation:
            preparation(healthy)
        finished_before = {t for t, place in survey(healthy).items() if place.state is State.DONE}
        filesystem = CrashingFilesystem(crash_at, torn=torn)
        try:
            scenario(Spool.open(healthy.root, filesystem=filesystem, clock=clock))
            died = False
        except Crash:
            died = True
            points += 1
        done = {t for t, place in survey(healthy).items() if place.state is State.DONE or recorded(place)}
        executed = recover_and_finish(healthy, clock)
        assert audit(healthy.root, at_rest=True) == [], f"died at call {crash_at}"
        places = {task: found[0][0] for task, found in state_files(healthy.root).items()}
        assert set(places) >= {spec.id for spec in TASKS}
        if name in ("cancel", "fail"):
            assert set(places.values()) <= {"done", "failed"}
        else:
            assert set(places.values()) == {"done"}, f"died at call {crash_at}"
        if name != "resubmit":
            assert not (done - finished_before) & executed, "a task that had finished was executed again"
        if not died:
            break
    else:
        pytest.fail("the scenario never got through")
    assert points > 5


def test_a_spool_that_is_half_made_is_no_spool_and_can_be_made_again(tmp_path: Path) -> None:
    for crash_at in range(1, 100):
        root = tmp_path / str(crash_at)
        try:
            Spool.create(root, "c", filesystem=CrashingFilesystem(crash_at))
        except Crash:
            if not (root / "spool.json").exists():
                with pytest.raises(BadSpool):
                    Spool.open(root)
            assert Spool.create(root, "c").campaign == "c"
        else:
            break
    else:
        pytest.fail("the spool was never made")
