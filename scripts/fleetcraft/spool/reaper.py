"""Taking back what gone workers had claimed, and tidying what writers that were cut off left behind."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetcraft.spool import control
from fleetcraft.spool.gangs import tidy_gangs
from fleetcraft.spool.layout import WriterName
from fleetcraft.spool.leases import LeaseWatch, Liveness, Oracle, Verdict, read_lease
from fleetcraft.spool.names import TaskName
from fleetcraft.spool.producer import complete_staging
from fleetcraft.spool.settle import Ending, Settled, quarantine, settle
from fleetcraft.spool.task import Attempt, Outcome
from fleetcraft.spool.writer import Writer

_ROUNDS = 5


@dataclass(slots=True)
class ReaperReport:
    """What one step of the reaper did.

    Parameters
    ----------
    workers : those that are gone, with the cause; their claims were taken back.
    settled : what became of their claims.
    waiting : workers whose leases stand still while nobody says that they are gone, with what is said.
    completed : tasks whose enqueueing was completed.
    """

    workers: dict[str, str] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    completed: list[str] = field(default_factory=list)


class Reaper:
    """Takes claims back from workers whose counter stands still and whom the oracle calls gone: both, never one alone.

    Several reapers can work on one spool.

    Parameters
    ----------
    oracle : asked about each worker that stands still, once a step.
    stale_s : how long a counter must have stood still on this machine's monotonic clock.
    """

    def __init__(self, writer: Writer, oracle: Oracle, stale_s: float):
        self._writer = writer
        self._spool = writer.spool
        self._oracle = oracle
        self._watch = LeaseWatch(stale_s)
        self._drafts = LeaseWatch(stale_s)

    def step(self) -> ReaperReport:
        """One look at all workers and at what was left behind; call it as often as leases are to be judged."""
        layout, filesystem = self._spool.layout, self._spool.filesystem
        report = ReaperReport()
        now_s = self._spool.clock.monotonic()
        leased = {name.removesuffix(".json") for name in filesystem.list(layout.leases) if name.endswith(".json")}
        workers = set(filesystem.list(layout.running)) | leased
        for worker in sorted(workers):
            lease = read_lease(self._spool, worker)
            if not self._watch.observe(worker, lease.counter if lease else None, now_s):
                continue
            if lease is None and filesystem.remove_directory(layout.claims_of(worker)):
                # It died before its first lease, which comes before any claim.
                report.workers[worker] = "never began"
                continue
            liveness: Liveness = self._oracle(worker, lease)
            if liveness.verdict is not Verdict.GONE:
                report.waiting[worker] = liveness.verdict.value
                continue
            self._take_back(worker, lease.host if lease else "unknown", liveness.cause, report)
        self._watch.keep(workers - set(report.workers))
        tidy_gangs(self._spool)
        report.completed = complete_staging(self._writer)
        self._tidy(now_s)
        self._writer.sync()
        return report

    def _take_back(self, worker: str, host: str, cause: str, report: ReaperReport) -> None:
        layout, filesystem = self._spool.layout, self._spool.filesystem
        directory = layout.claims_of(worker)
        # Written before any claim is taken back: whoever proves from the journal what ran when needs it first.
        self._writer.note("worker gone", worker=worker, of_host=host, cause=cause)
        for _ in range(_ROUNDS):
            # A listing may lag behind; that the directory can be removed is the server's word that it is empty.
            names = filesystem.list(directory)
            orders = control.orders_to_cancel(self._spool, worker)
            endings = []
            for text in names:
                name = TaskName.parse(text)
                if name is None:
                    quarantine(self._writer, directory / text, text, "this isn't a task's name")
                    continue
                neighbours = {"neighbours": len(names) - 1}
                if name.id in orders:
                    ending = Attempt(name.attempt, Outcome.CANCELLED, "cancelled", worker, host)
                else:
                    ending = self._lost(name, cause, worker, host, neighbours)
                endings.append(Ending(directory / text, name, ending))
            report.settled += [settled for settled in settle(self._writer, endings) if settled is not None]
            self._writer.sync()
            if filesystem.remove_directory(directory):
                break
        else:
            report.waiting[worker] = "its claims could not all be taken back yet"
            return
        for task_id in control.orders_to_cancel(self._spool, worker):
            control.drop_order(self._spool, worker, task_id)
        filesystem.remove_directory(layout.cancels_of(worker))
        filesystem.remove(layout.lease(worker))
        filesystem.remove(layout.drains / worker)
        report.workers[worker] = cause

    def _lost(self, name: TaskName, cause: str, worker: str, host: str, observed: dict[str, int]) -> Attempt:
        """The end of a claim whose worker is gone. Without a log it was never started, so it isn't to blame."""
        log = self._spool.layout.log(name)
        if not self._spool.filesystem.exists(log):
            return Attempt(name.attempt, Outcome.RETURNED, cause, worker, host)
        relative = str(log.relative_to(self._spool.root))
        return Attempt(name.attempt, Outcome.LOST, cause, worker, host, log=relative, observed=observed)

    def _tidy(self, now_s: float) -> None:
        """Remove drafts that nobody goes on with, and orders to workers that are no more.

        A draft is judged like a lease. If its writer only slept, it finds the draft gone and writes it again.
        """
        layout, filesystem = self._spool.layout, self._spool.filesystem
        seen = set()
        for entry in filesystem.list(layout.staging):
            directory = layout.staging / entry
            if WriterName.parse(entry) is None:
                if self._drafts.observe(entry, 0, now_s):
                    filesystem.remove(directory)
                seen.add(entry)
                continue
            drafts = filesystem.list(directory)
            for draft in drafts:
                key = f"{entry}/{draft}"
                seen.add(key)
                if filesystem.links(directory / draft) == 1 and self._drafts.observe(key, 0, now_s):
                    filesystem.remove(directory / draft)
            key = f"{entry}/"
            seen.add(key)
            if self._drafts.observe(key, len(drafts), now_s) and not drafts:
                filesystem.remove_directory(directory)
        self._drafts.keep(seen)
        for worker in filesystem.list(layout.cancels):
            if filesystem.exists(layout.claims_of(worker)):
                continue
            for task_id in control.orders_to_cancel(self._spool, worker):
                control.drop_order(self._spool, worker, task_id)
            filesystem.remove_directory(layout.cancels_of(worker))
