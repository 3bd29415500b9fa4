"""A controller's session with its spool: what it submitted, what has ended, and what an earlier controller left."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from fleetcraft.spool import (
    FINAL_STATES,
    Controllership,
    Oracle,
    Place,
    Producer,
    Reaper,
    Request,
    Result,
    ResultScanner,
    Spool,
    SpoolBusy,
    State,
    TaskName,
    TaskSpec,
    UnreadableTask,
    Writer,
    cancel,
    read_leases,
    read_task,
    survey,
)
from fleetcraft.worker.eligibility import nobody_can

MAKER = "snakemake"
"""What this executor's tasks are labelled with; others of the same spool are left alone."""

_BEAT_S = 10.0
_CANCEL_S = 20.0
_RESUBMIT_S = 1.0


class Session:
    """Not thread-safe: whoever uses it from several threads uses a lock.

    Raises
    ------
    SpoolBusy : another controller has this spool.
    """

    def __init__(self, spool: Spool):
        self.spool = spool
        self._writer = Writer(spool, "controller")
        try:
            self._control = Controllership(self._writer)
        except BaseException:
            self._writer.close()
            raise
        self._producer = Producer(self._writer)
        self._scanner = ResultScanner(spool)
        self._news: dict[str, Result] = {}
        self._past: dict[str, tuple[State, int, str]] = {}
        self._waiting: set[str] = set()
        self._to_resubmit: dict[str, TaskSpec] = {}
        self._adoptable: dict[str, frozenset[str]] = {}
        self._left: set[str] = set()
        self._unwanted: set[str] = set()
        self._reaper: Reaper | None = None
        now_s = spool.clock.monotonic()
        self._next_beat_s = now_s + _BEAT_S
        self._next_reap_s = self._next_resubmit_s = self._next_withdraw_s = now_s
        self._reap_s = _BEAT_S

    def adopt_from(self, adoptable: Mapping[str, frozenset[str]]) -> None:
        """Look at what an earlier controller left, and cancel of it what isn't to run any more.

        Parameters
        ----------
        adoptable : job that is to run → those before it that are to run as well. A task whose inputs are made anew is
            of no use, however far it has come.
        """
        self._adoptable = dict(adoptable)
        self._note_results()
        for task_id, place in survey(self.spool).items():
            if place.state in FINAL_STATES:
                continue
            labels = self._labels(task_id)
            if labels.get("maker") != MAKER:
                continue
            if self._is_adoptable(_members(labels)):
                self._left.add(task_id)
            else:
                self._unwanted.add(task_id)
        if self._unwanted:
            cancel(self._writer, self._unwanted)

    def watch_workers(self, oracle: Oracle, stale_s: float) -> None:
        """Take back what workers had claimed that are gone."""
        self._reaper = Reaper(self._writer, oracle, stale_s)
        self._reap_s = stale_s / 3

    def may_have_ended(self, members: Collection[str]) -> bool:
        """Whether the end of such a task could be one that nobody has seen yet."""
        return self.has_past and self._is_adoptable(members)

    @property
    def has_past(self) -> bool:
        """Whether any task of this spool has ended."""
        return bool(self._past)

    def done_as(self, task_id: str) -> str | None:
        """The fingerprint of a task that was done before this session; None for any other."""
        state, _, done_as = self._past.get(task_id, (State.PENDING, 0, ""))
        return done_as if state is State.DONE else None

    def submit(self, specs: Sequence[TaskSpec], ended_meanwhile: Collection[str]) -> None:
        """Have tasks executed. Those that the spool knows already are gone on with where they can be.

        Parameters
        ----------
        ended_meanwhile : ids of tasks that seem to have ended while this controller started.
        """
        by_id = {spec.id: spec for spec in specs}
        self._waiting.update(by_id)
        known = self._producer.enqueue(specs).known
        again: dict[str, TaskSpec] = {}
        unseen = []
        for task_id in known:
            spec = by_id[task_id]
            if task_id not in self._past:
                unseen.append(task_id)
                continue
            state, attempt, done_as = self._past[task_id]
            was_left = task_id in self._left or task_id in ended_meanwhile
            if state is State.DONE and was_left and done_as == spec.labels["fingerprint"]:
                self._news[task_id] = Result(
                    task_id, state, attempt, self.spool.layout.index(task_id), None, None, "found done"
                )
            else:
                again[task_id] = spec
        self._go_on_with(unseen, by_id, again)
        self._to_resubmit |= again
        self._resubmit()
        self._left.difference_update(by_id)
        self._unwanted.difference_update(by_id)
        for spec in specs:
            # Adopted once at most: whatever is asked for later is asked for because it is to run again.
            for member in spec.labels["members"]:
                self._adoptable.pop(member, None)

    def keep_up(self) -> None:
        """Do what is due by time: show that this controller lives, and take back what gone workers had."""
        now_s = self.spool.clock.monotonic()
        if now_s >= self._next_beat_s:
            self._control.beat()
            self._next_beat_s = now_s + _BEAT_S
        if self._reaper is not None and now_s >= self._next_reap_s:
            self._reaper.step()
            self._next_reap_s = now_s + self._reap_s

    def look(self) -> bool:
        """Take in what happened; whether any task ended."""
        self.keep_up()
        now_s = self.spool.clock.monotonic()
        news = self._note_results()
        if self._to_resubmit and now_s >= self._next_resubmit_s:
            self._resubmit()
            self._next_resubmit_s = now_s + _RESUBMIT_S
        return news

    def take(self, ids: Collection[str]) -> dict[str, Result]:
        """The results of these tasks, as far as they have ended."""
        ended = [task_id for task_id in self._news if task_id in ids and task_id not in self._to_resubmit]
        self._waiting.difference_update(ended)
        return {task_id: self._news.pop(task_id) for task_id in ended}

    def cancel_all(self) -> set[str]:
        """Cancel what was submitted and hasn't ended; wait, within bounds, for what runs. Which of it runs still."""
        self._to_resubmit.clear()
        left = set(self._waiting)
        deadline_s = self.spool.clock.monotonic() + _CANCEL_S
        while left:
            report = cancel(self._writer, left)
            left = {*report.asked, *report.unsettled}
            if self.spool.clock.monotonic() >= deadline_s:
                break
            if left:
                # Whatever else goes wrong, what is left is cancelled.
                with contextlib.suppress(SpoolBusy, OSError):
                    self.keep_up()
                self.spool.clock.sleep(0.2)
        return left

    def withdraw(self) -> set[str]:
        """Cancel what only waits of what was submitted, and let the rest end; ids of what was cancelled.

        Call it again and again: what runs can come back. It looks once a second at most.
        """
        now_s = self.spool.clock.monotonic()
        if now_s < self._next_withdraw_s:
            return set()
        self._next_withdraw_s = now_s + _RESUBMIT_S
        withdrawn = set(self._to_resubmit)
        self._to_resubmit.clear()
        withdrawn.update(cancel(self._writer, self._waiting - withdrawn, running=False).cancelled)
        self._waiting -= withdrawn
        return withdrawn

    def nobody_can(self, request: Request) -> str | None:
        """Why none of the workers that are there could ever serve a request; None if one could, or none is there."""
        return nobody_can(read_leases(self.spool), request)

    def close(self) -> None:
        """Give up control."""
        try:
            # A worker that was ended before it saw the order has given its task back.
            if left := self._unwanted - self._past.keys():
                cancel(self._writer, left)
            # Where another controller has taken over meanwhile, there is none left to give up.
            with contextlib.suppress(SpoolBusy):
                self._control.release()
        finally:
            self._writer.close()

    def _note_results(self) -> bool:
        results = self._scanner.poll()
        for result in results:
            done_as = str(result.record.spec.labels.get("fingerprint")) if result.record else ""
            self._past[result.id] = (result.state, result.attempt, done_as)
            if result.id in self._waiting:
                self._news[result.id] = result
        return bool(results)

    def _go_on_with(self, ids: Sequence[str], specs: Mapping[str, TaskSpec], again: dict[str, TaskSpec]) -> None:
        """Adopt tasks that wait or run and are the same; the others are ended first, and enqueued anew then."""
        wrong = []
        for task_id in ids:
            labels = self._labels(task_id)
            if not (self._is_adoptable(_members(labels)) and _is_same(labels, specs[task_id])):
                wrong.append(task_id)
                again[task_id] = specs[task_id]
        if wrong:
            cancel(self._writer, wrong)

    def _resubmit(self) -> None:
        if self._to_resubmit:
            for task_id in self._producer.resubmit(list(self._to_resubmit.values())).new:
                del self._to_resubmit[task_id]
                self._past.pop(task_id, None)
                self._news.pop(task_id, None)

    def _is_adoptable(self, members: Collection[str]) -> bool:
        inside = set(members)
        return bool(inside) and all(
            member in self._adoptable and self._adoptable[member] <= inside for member in inside
        )

    def _labels(self, task_id: str) -> Mapping[str, object]:
        """What a task is labelled with; nothing where it can't be read."""
        place = Place(State.PENDING, TaskName(0, task_id, 1), self.spool.layout.index(task_id))
        try:
            record = read_task(self.spool, place)
        except UnreadableTask:
            return {}
        return record.spec.labels if record is not None else {}


def _members(labels: Mapping[str, object]) -> list[str]:
    members = labels.get("members")
    return members if isinstance(members, list) else []


def _is_same(labels: Mapping[str, object], spec: TaskSpec) -> bool:
    return bool(labels.get("fingerprint") == spec.labels["fingerprint"])
