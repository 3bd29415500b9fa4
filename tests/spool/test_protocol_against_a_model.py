"""The spool's invariants hold whatever producers, workers, reapers and operators do, in any order.

A random sequence of everything that the API offers, on a file system that lies and lags, with workers that vanish and
come back, is compared step by step with a model that is a few dictionaries.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from spool_audit import audit, state_files
from spool_doubles import HandClock, UnreliableFilesystem, Verdicts

from fleetcraft.spool import (
    CRASHED,
    Claim,
    Outcome,
    Producer,
    Reaped,
    Reaper,
    Request,
    ResultScanner,
    Spool,
    Station,
    TaskSpec,
    Writer,
    cancel,
)

IDS = st.sampled_from([f"task-{number}" for number in range(12)])
REQUESTS = st.sampled_from([Request(), Request(threads=2), Request(access="exclusive"), Request(gpus=1, lane="gg")])
FINAL = ("done", "failed", "quarantine")


@dataclass
class ModelTask:
    """What the model knows of a task."""

    retries: int
    state: str = "pending"
    attempt: int = 1
    owner: str | None = None
    failures: list[str] = field(default_factory=list)
    crashes: int = 0
    damaged: bool = False


class SpoolMachine(RuleBasedStateMachine):
    """Drives a spool and a model of it."""

    stations = Bundle("stations")
    zombies = Bundle("zombies")

    @initialize()
    def make(self) -> None:
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)) / "spool"
        self.clock, self.filesystem = HandClock(), UnreliableFilesystem()
        self.spool = Spool.create(self.root, "model", filesystem=self.filesystem, clock=self.clock)
        self.writer = Writer(self.spool, "controller", host="login", boot="b")
        self.producer, self.scanner = Producer(self.writer), ResultScanner(self.spool)
        self.oracle = Verdicts()
        self.reaper = Reaper(self.writer, self.oracle, stale_s=60)
        self.model: dict[str, ModelTask] = {}
        self.living: dict[str, Station] = {}
        self.dead: set[str] = set()
        self.seen: set[tuple[str, int]] = set()
        self.expected_results: set[tuple[str, int]] = set()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root.parent)

    @rule(ids=st.lists(IDS, min_size=1, max_size=6), retries=st.integers(0, 2), request=REQUESTS)
    def enqueue(self, ids: list[str], retries: int, request: Request) -> None:
        report = self.producer.enqueue(
            TaskSpec(task, ("true",), "/", request, priority=500 + len(task) % 2, retries=retries) for task in ids
        )
        fresh = {task for task in ids if task not in self.model}
        assert set(report.new) == fresh
        assert len(report.known) == len(ids) - len(fresh)
        for task in fresh:
            self.model[task] = ModelTask(retries)

    @rule(task=IDS, retries=st.integers(0, 2))
    def resubmit(self, task: str, retries: int) -> None:
        report = self.producer.resubmit([TaskSpec(task, ("true",), "/", retries=retries)])
        known = self.model.get(task)
        if known is not None and known.state in FINAL and not known.damaged:
            assert report.new == (task,)
            self.model[task] = ModelTask(retries, attempt=known.attempt + 1)
        elif known is None or known.state not in FINAL:
            assert report.known == (task,)
        else:
            assert report.new == (task,)
            self.model[task] = ModelTask(retries, attempt=known.attempt + 1, damaged=True)

    @rule(target=stations, host=st.sampled_from(["n1", "n2", "n3"]))
    def start_worker(self, host: str) -> Station:
        station = Station(Writer(self.spool, host, host=host, boot="b"), chance=random.Random(0))
        self.living[station.name] = station
        return station

    @rule(station=stations, limit=st.integers(1, 3))
    def claim(self, station: Station, limit: int) -> None:
        if station.name not in self.living:
            return
        self.clock.now_s += 1
        claimed = station.claim(lambda request: True, lambda claim: None, limit)
        claimed += station.adopt_strays()
        for claim in claimed:
            task = self.model[claim.name.id]
            assert task.state == "pending", f"{claim.name} was claimed and is {task.state}"
            assert claim.name.attempt == task.attempt
            assert (claim.request.access == "exclusive") == (
                task.crashes > 0 or claim.record.spec.request.access == "exclusive"
            ), "after a crash a task runs alone"
            task.state, task.owner = "running", station.name
            log = self.spool.layout.log(claim.name)
            log.parent.mkdir(exist_ok=True)
            log.touch()
        for name, task in self.model.items():
            if task.damaged and task.state == "pending" and self._lies_in(name) == "quarantine":
                task.state = "quarantine"
                self.expected_results.add((name, task.attempt))

    @rule(station=stations, outcome=st.sampled_from(list(Outcome)), pick=st.integers(0, 9))
    def end(self, station: Station, outcome: Outcome, pick: int) -> None:
        if station.name not in self.living or not station.claims or outcome is Outcome.LOST:
            return
        claim = sorted(station.claims, key=lambda claim: str(claim.name))[pick % len(station.claims)]
        settled = station.end([(claim, station.attempt(claim, outcome, "as told"))])
        self._model_end(claim, outcome, "as told", station.writer.host)
        assert [(s.name, s.decision.state.value) for s in settled] == [(claim.name, self.model[claim.name.id].state)]

    @rule(station=consumes(stations))
    def leave(self, station: Station) -> None:
        if station.name not in self.living:
            return
        for claim in station.claims:
            self._model_end(claim, Outcome.RETURNED, "worker left", station.writer.host)
        station.leave()
        del self.living[station.name]

    @rule(target=zombies, station=consumes(stations))
    def vanish(self, station: Station) -> object:
        if station.name not in self.living:
            return multiple()
        del self.living[station.name]
        self.dead.add(station.name)
        return station

    @rule(cause=st.sampled_from([CRASHED, "walltime", "node failed"]), said=st.booleans())
    def reap(self, cause: str, said: bool) -> None:
        """Everybody alive beats, time passes, and the oracle knows, or doesn't, that the others are gone."""
        if said:
            for worker in self.dead:
                self.oracle.gone(worker, cause)
        before = {task: (m.state, m.owner) for task, m in self.model.items()}
        for _ in range(8):
            self.clock.now_s += 15
            for station in self.living.values():
                station.beat()
            report = self.reaper.step()
            assert not set(report.workers) & set(self.living), "a living worker was reaped"
            for worker in report.workers:
                self.dead.discard(worker)
            for task, (state, owner) in before.items():
                if state == "running" and owner in report.workers:
                    self._model_lost(task, cause)
        if said:
            assert not self.dead, "a gone worker was not reaped"
        else:
            assert set(report.waiting) == self.dead

    @rule(station=zombies, outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED]))
    def come_back(self, station: Station, outcome: Outcome) -> None:
        """A worker that everybody thought dead reports what it did."""
        if station.name in self.dead:
            return
        settled = station.end([(claim, station.attempt(claim, outcome, "late")) for claim in station.claims])
        assert settled == [], "the result of an attempt that had been taken back was accepted"
        for act in (station.beat, lambda: station.claim(lambda request: True, lambda claim: None, 1)):
            try:
                act()
            except Reaped:
                continue
            assert act != station.beat, "a reaped worker went on beating"
            assert not station.claims

    @rule(ids=st.sets(IDS, min_size=1, max_size=4))
    def cancel(self, ids: set[str]) -> None:
        report = cancel(self.writer, ids)
        for task in ids:
            known = self.model.get(task)
            if known is None:
                assert task in report.unknown
            elif known.state in FINAL:
                assert task in report.finished
            elif known.state == "pending" and not known.damaged:
                assert task in report.cancelled
                self._finish(task, "failed")
            elif known.state == "running":
                assert task in report.asked
                if known.owner in self.living:
                    station = self.living[known.owner]
                    assert task in station.orders_to_cancel()
                    claim = next(claim for claim in station.claims if claim.name.id == task)
                    station.end([(claim, station.attempt(claim, Outcome.CANCELLED, "cancelled"))])
                    self._finish(task, "failed")
                else:
                    known.cancelled_with = known.owner  # type: ignore[attr-defined]
            else:
                known.state = "quarantine"
                self.expected_results.add((task, known.attempt))

    @rule(task=IDS)
    def damage(self, task: str) -> None:
        """A waiting task's file turns into rubbish."""
        known = self.model.get(task)
        if known is not None and known.state == "pending":
            (_, path), *_ = state_files(self.root)[task]
            path.write_bytes(b"\0\0 rubbish")
            known.damaged = True

    @rule(count=st.integers(1, 2))
    def lie(self, count: int) -> None:
        self.filesystem.lies = count

    @rule(count=st.integers(1, 6))
    def lag(self, count: int) -> None:
        self.filesystem.lagging = count

    @rule(seconds=st.floats(-1e6, 1e6))
    def wall_clock_jumps(self, seconds: float) -> None:
        self.clock.wall_offset_s += seconds

    @rule()
    def poll(self) -> None:
        self.filesystem.lagging = 0
        self.clock.now_s += 10
        for result in self.scanner.poll():
            assert (result.id, result.attempt) not in self.seen, "a result was reported twice"
            self.seen.add((result.id, result.attempt))
        current = {(task, m.attempt) for task, m in self.model.items() if m.state in FINAL}
        assert current <= self.seen, "a result was not reported"
        assert self.seen <= self.expected_results, "something was reported that had not ended"

    @invariant()
    def every_task_is_where_the_model_has_it(self) -> None:
        if not hasattr(self, "root"):
            return
        assert audit(self.root) == []
        found = {task: places[0] for task, places in state_files(self.root).items()}
        assert {task: state for task, (state, _) in found.items()} == {t: m.state for t, m in self.model.items()}
        for task, (_, path) in found.items():
            assert path.name.endswith(f"-a{self.model[task].attempt}")

    def _lies_in(self, task: str) -> str:
        return state_files(self.root)[task][0][0]

    def _finish(self, task: str, state: str) -> None:
        known = self.model[task]
        known.state, known.owner = state, None
        self.expected_results.add((task, known.attempt))

    def _again(self, task: str) -> None:
        known = self.model[task]
        known.state, known.owner, known.attempt = "pending", None, known.attempt + 1

    def _model_end(self, claim: Claim, outcome: Outcome, cause: str, host: str) -> None:
        task = self.model[claim.name.id]
        if outcome is Outcome.SUCCEEDED:
            self._finish(claim.name.id, "done")
        elif outcome is Outcome.CANCELLED:
            self._finish(claim.name.id, "failed")
        elif outcome is Outcome.FAILED:
            task.failures.append(host)
            if len(task.failures) > task.retries or len(set(task.failures)) >= 2:
                self._finish(claim.name.id, "failed")
            else:
                self._again(claim.name.id)
        else:
            self._again(claim.name.id)

    def _model_lost(self, task: str, cause: str) -> None:
        known = self.model[task]
        if getattr(known, "cancelled_with", None) == known.owner:
            self._finish(task, "failed")
            return
        known.crashes += cause == CRASHED
        if cause == CRASHED and known.crashes >= 2:
            self._finish(task, "failed")
        else:
            self._again(task)


SpoolMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("FLEETCRAFT_EXAMPLES", "150")), stateful_step_count=40, deadline=None
)
TestEveryTaskIsInOneStateWhateverHappens = SpoolMachine.TestCase
