"""The agent of one node: claims what fits, runs it, ends it, keeps the lease, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleetcraft.ground.errors import NoSpace
from fleetcraft.ground.machine import boot_id, host_name, own_start
from fleetcraft.ground.processes import adopt_orphans
from fleetcraft.ground.waiting import readable
from fleetcraft.spool import CRASHED, Attempt, Claim, Lease, Outcome, Request, Spool, Station, Writer, drain, is_certain
from fleetcraft.spool.gangs import Summons
from fleetcraft.worker.attempts import Attempts
from fleetcraft.worker.context import attempt_key
from fleetcraft.worker.gangs import Gangs
from fleetcraft.worker.health import NodeHealth, observe_node
from fleetcraft.worker.inventory import Inventory
from fleetcraft.worker.judgement import CANCELLED, judge
from fleetcraft.worker.launcher import UNKILLABLE_S, Starter
from fleetcraft.worker.launchers import Launchers
from fleetcraft.worker.node_lock import NodeLock, node_directory
from fleetcraft.worker.pace import Pace
from fleetcraft.worker.packing import Books, why_not_in_time
from fleetcraft.worker.settings import Settings

_SHORTEST_PAUSE_S = 0.02
_NODE_POLL_S = 0.05
_GANG_POLL_S = 0.5
_BATCH = 16
_STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
_LAUNCHER_RESTARTS = 5
_GPU_IDLE_PATIENCE_S = 60.0
_SIGNAL_S = 0.5
"""How far apart signals to the processes of one step arrive."""


@dataclass(slots=True)
class _Kept:
    """This node is kept for a gang that another worker leads."""

    summons: Summons
    is_empty: bool = False

    @property
    def key(self) -> str:
        return f"gang-{self.summons.key}"


class Agent:
    """A worker. Make it early in a process without threads, and `run` it once.

    Parameters
    ----------
    starters : how kinds of tasks are started, by `TaskSpec.launcher`, each in a launcher process of its own, made when
        it is first needed; "command" is always there.
    prepare : run in the launcher of a kind before it serves.
    early : kinds whose launchers are made at the start, whether a task needs them or not.
    host : what the node is called, where that isn't this machine's own name.
    lock_directory : where the node's lock is, on this machine alone; by default in its memory.
    """

    def __init__(
        self,
        spool: Spool,
        inventory: Inventory,
        settings: Settings | None = None,
        *,
        starters: Mapping[str, Starter] | None = None,
        prepare: Mapping[str, Callable[[], None]] | None = None,
        early: Collection[str] = (),
        host: str | None = None,
        lock_directory: Path | None = None,
    ):
        self._lock_directory = lock_directory
        self._spool, self._clock = spool, spool.clock
        self._settings = settings or Settings()
        self._launchers = Launchers(starters or {}, prepare or {}, self._clock)
        self._early = ("command", *early)
        self._host = host or host_name()
        self._attempts = Attempts(self._launchers, spool, self._host, self._settings.grace_s)
        self._books = Books(inventory, self._settings.lane, self._settings.gang)
        self._health = NodeHealth(self._settings.failing_tasks)
        self._waiting: Claim | None = None
        self._kept: _Kept | None = None
        self._to_start: deque[Claim] = deque()
        self._ahead: deque[Claim] = deque()
        self._pace = Pace()
        self._endings: list[tuple[Claim, Attempt]] = []
        self._trouble_s: float | None = None
        self._avoid: dict[str, float] = {}
        self._stop_cause: str | None = None
        self._drain_cause: str | None = None
        self._signals: deque[int] = deque()
        self._has_entered = False
        self._started_s = self._clock.monotonic()
        self._worked_s = self._started_s
        self._next_claim_s = self._next_beat_s = self._next_control_s = self._started_s
        self._pause_s = _SHORTEST_PAUSE_S

    def run(self) -> str:
        """Serve until told to leave, idle for too long, or near the walltime; why it left.

        On return every child is reaped, every claim settled or given back.

        Raises
        ------
        Reaped : the worker had been declared gone; what it ran is ended.
        """
        adopt_orphans()
        self._node = NodeLock((str(self._spool.root), self._host, boot_id()), self._lock_directory)
        for kind in self._early:
            self._launchers.of(kind)
        self._wakeup, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda received, frame: self._signals.append(received))
        directory = Path(tempfile.mkdtemp(prefix="fleetcraft-worker-", dir=node_directory()))
        try:
            with Writer(self._spool, self._host, host=self._host, boot=boot_id()) as writer:
                self._station = Station(writer, self._lease("serving"))
                self._attempts.open(self._station, directory, self._node.node)
                self._gangs = Gangs(self._spool, writer.name, self._settings)
                return self._serve()
        finally:
            self._launchers.close()
            self._node.close()
            shutil.rmtree(directory)

    def _serve(self) -> str:
        while True:
            try:
                reason = self._step()
                if reason is not None:
                    return reason
                self._trouble_s = None
            except (OSError, NoSpace) as error:
                # A full disk, a file server that restarts: nothing is given up at once, and nothing forgotten.
                now_s = self._clock.monotonic()
                self._trouble_s = self._trouble_s if self._trouble_s is not None else now_s
                if now_s - self._trouble_s > self._settings.patience_s:
                    raise
                print(f"fleetcraft worker: {error}; trying again", file=sys.stderr, flush=True)
                self._clock.sleep(1.0)
                self._next_control_s = now_s

    def _step(self) -> str | None:
        """One round; why to leave, or None to go on. An error leaves everything as it was for the next one."""
        self._handle_events()
        self._handle_signals()
        self._handle_walltime()
        self._beat()
        self._handle_control()
        # What ended is written down after its successors have started: the disk is waited for while they run.
        self._start_what_may()
        if self._may_claim():
            self._claim()
            self._start_what_may()
        self._settle()
        if self._waiting is not None:
            self._start_what_may()
        reason = self._reason_to_leave()
        if reason is not None:
            self._station.leave()
            return reason
        self._wait()
        return None

    def _claim(self) -> None:
        """Look for work; the pause until the next look grows while there is none."""
        now_s = self._clock.monotonic()
        self._avoid = {task: until_s for task, until_s in self._avoid.items() if until_s > now_s}
        threads = self._books.inventory.threads
        most_ahead = self._pace.ahead(threads)

        def fits(request: Request) -> bool:
            if request.nodes > 1:
                return self._is_in_time(request) and self._books.fits(request) and self._gangs.may_lead(request)
            ahead = len(self._ahead) < most_ahead and request.access == "shared" and self._books.could(request)
            return self._is_in_time(request) and (self._books.fits(request) or ahead)

        if self._station.claim(fits, self._take, threads + most_ahead, frozenset(self._avoid)):
            self._worked_s, self._pause_s = now_s, _SHORTEST_PAUSE_S
        else:
            self._pause_s = min(2 * self._pause_s, self._settings.poll_s)
        self._gangs.relax()
        self._next_claim_s = now_s + self._pause_s

    def _is_in_time(self, request: Request) -> bool:
        left_s = self._left_s()
        margin_s = self._settings.walltime_margin_s
        return why_not_in_time(request, None if left_s is None else left_s - margin_s) is None

    def _take(self, claim: Claim) -> None:
        """Have a claim started soon: at once where there is room."""
        if self._books.fits(claim.request):
            self._books.book(attempt_key(claim), claim.request)
            self._to_start.append(claim)
        else:
            self._ahead.append(claim)

    def _may_claim(self) -> bool:
        due = self._clock.monotonic() >= self._next_claim_s and self._trouble_s is None and not self._to_start
        due = due and 2 * len(self._ahead) <= self._pace.ahead(self._books.inventory.threads)
        serving = self._drain_cause is None and self._stop_cause is None and self._books.exclusive is None
        if not due or not serving:
            return False
        held = self._node.holds
        if not self._node.enter():
            self._next_claim_s = self._clock.monotonic() + _NODE_POLL_S
            return False
        self._has_entered = self._has_entered or held != self._node.holds
        return True

    def _start_what_may(self) -> None:
        leaves = self._stop_cause or self._drain_cause
        if self._ahead and (leaves or self._books.exclusive is not None):
            self._give_back_ahead(leaves or "an exclusive task came")
        for claim in tuple(self._ahead):
            if self._books.is_full():
                break
            if self._books.fits(claim.request):
                self._ahead.remove(claim)
                self._take(claim)
        if self._stop_cause is not None:
            while self._to_start:
                self._end(self._to_start.popleft(), Outcome.RETURNED, self._stop_cause)
        while self._to_start:
            claim = self._to_start.popleft()
            if claim.request.nodes > 1 and not self._gangs.lead(claim):
                self._end(claim, Outcome.RETURNED, "too few nodes for its gang")
            elif claim.request.access == "exclusive":
                self._waiting = claim
                key = attempt_key(claim)
                if neighbours := self._books.neighbours(key):
                    self._station.writer.note("waits alone", task=claim.name.id, neighbours=neighbours)
            else:
                self._start(claim, {})
        if self._waiting is not None:
            self._start_waiting(self._waiting)
        elif self._kept is not None:
            self._keep_node(self._kept)
        idle = not self._attempts.running and not self._to_start and not self._ahead and self._books.exclusive is None
        if idle and self._node.holds != "nothing":
            self._node.leave()
        if self._books.exclusive is None:
            self._node.open_gate()

    def _start_waiting(self, claim: Claim) -> None:
        """Start the exclusive task that was claimed once the node is empty, and the nodes of its gang are."""
        is_gang = claim.request.nodes > 1
        if is_gang and self._gangs.is_late():
            self._waiting = None
            self._avoid[claim.name.id] = self._clock.monotonic() + self._settings.avoid_s
            self._end(claim, Outcome.RETURNED, "its gang did not come together in time")
        elif self._is_empty() and (not is_gang or self._gangs.is_complete()):
            self._waiting = None
            self._station.writer.note("node alone")
            self._start_alone(claim)

    def _is_empty(self) -> bool:
        """Whether this worker has the node to itself, and runs nothing; asks for it."""
        self._node.ask_alone()
        return not self._attempts.running and not self._endings and self._node.be_alone()

    def _keep_node(self, kept: _Kept) -> None:
        """Let this worker's tasks finish for another one's gang, and say when they have."""
        if not kept.is_empty and self._is_empty():
            kept.is_empty = True
            self._station.writer.note(
                "gang joined", task=kept.summons.task, attempt=kept.summons.attempt, leader=kept.summons.leader
            )
            self._next_beat_s = self._clock.monotonic()
            self._beat()

    def _follow_summons(self) -> None:
        """Keep the node for a gang, or have it back."""
        serves = self._stop_cause is None and self._drain_cause is None
        changed = self._gangs.listen(serves and self._books.exclusive is None and self._waiting is None)
        if changed and self._gangs.joined is not None:
            self._kept = _Kept(self._gangs.joined)
            self._books.book(self._kept.key, Request(access="exclusive"))
        elif changed:
            self._have_node_back()

    def _have_node_back(self) -> None:
        if self._kept is not None:
            if self._kept.is_empty:
                self._station.writer.note("gang left", task=self._kept.summons.task, attempt=self._kept.summons.attempt)
            self._books.release(self._kept.key)
            self._kept = None
            self._worked_s = self._next_claim_s = self._clock.monotonic()

    def _give_back_ahead(self, cause: str) -> None:
        while self._ahead:
            claim = self._ahead.popleft()
            self._endings.append((claim, self._station.attempt(claim, Outcome.RETURNED, cause)))

    def _start_alone(self, claim: Claim) -> None:
        """Start an exclusive task once its devices are idle; a node whose devices are not is drained.

        It has waited for its neighbours, so there may be too little time left for it by now.
        """
        if not self._is_in_time(claim.request):
            self._end(claim, Outcome.RETURNED, "too little time left when its neighbours had finished")
            return
        share = self._books.share(attempt_key(claim))
        deadline_s = self._clock.monotonic() + _GPU_IDLE_PATIENCE_S
        observed = observe_node(share.gpus)
        while observed["gpu_processes"] and self._clock.monotonic() < deadline_s:
            if self._signals:
                self._waiting = claim
                return
            self._clock.sleep(1.0)
            self._beat()
            observed = observe_node(share.gpus)
        if observed["gpu_processes"]:
            self._drain(f"its GPUs are used by others: {observed['gpu_processes']}")
            self._end(claim, Outcome.RETURNED, "the node's GPUs were not idle")
            return
        self._start(claim, {"before": observed, "neighbours_at_start": sorted(self._attempts.running)})

    def _start(self, claim: Claim, observed: dict[str, Any]) -> None:
        if not self._attempts.knows(claim):
            self._end(claim, Outcome.FAILED, f"this worker has no launcher {claim.record.spec.launcher!r}")
            return
        variables = self._gangs.begin() if claim.request.nodes > 1 else {}
        if self._has_entered and self._node.holds == "share":
            self._station.writer.note("node entered")
            self._has_entered = False
        self._attempts.start(claim, self._books.share(attempt_key(claim)), observed, variables)

    def _wait(self) -> None:
        """Until something happens or is due."""
        now_s = self._clock.monotonic()
        due_s = [self._next_beat_s, self._next_control_s]
        if self._drain_cause is None and self._stop_cause is None and self._books.exclusive is None:
            due_s.append(self._next_claim_s)
        if self._endings or self._to_start:
            due_s.append(now_s)
        if (self._waiting is not None or self._kept is not None) and not self._attempts.running:
            is_gang = self._waiting is None or self._waiting.request.nodes > 1
            due_s.append(now_s + (_GANG_POLL_S if is_gang else _NODE_POLL_S))
        if self._settings.idle_timeout_s is not None and not self._attempts.running:
            due_s.append(self._worked_s + self._settings.idle_timeout_s)
        left_s = self._left_s()
        if left_s is not None:
            due_s.append(max(now_s + 0.05, now_s + left_s - self._settings.walltime_margin_s))
        if self._signals:
            due_s.append(now_s)
        ready = self._poll(0)
        if not ready:
            # The line that decides about a task is durable already; its rename may follow when there is time.
            self._station.writer.sync()
            ready = self._poll(min(due_s) - self._clock.monotonic())
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        self._attempts.hear(ready)

    def _poll(self, timeout_s: float) -> set[int]:
        """Descriptors of the signals and of launchers that have something to say."""
        return readable([self._wakeup, *self._attempts.descriptors()], timeout_s)

    def _handle_events(self) -> None:
        events = self._attempts.events
        while events:
            self._handle_event(events[0])
            events.popleft()

    def _handle_event(self, event: dict[str, Any]) -> None:
        if "died" in event:
            self._launcher_died(event["died"])
            return
        key = event.get("ended") or event["refused"]
        run = self._attempts.running[key]
        if "refused" in event:
            self._finish_run(key, Outcome.FAILED, event["problem"], event)
            return
        if event["unkillable"]:
            self._drain(f"a process of {key} could not be killed within {UNKILLABLE_S:.0f} s")
        stop_cause = run.stop_cause
        if stop_cause is None and event["exit_code"] in _STOPPED:
            stop_cause = self._stop_signal_pending()
        outcome, cause = judge(run.claim.record.spec, run.claim.request, event, stop_cause)
        if outcome is Outcome.FAILED and run.claim.request.nodes > 1 and (lost := self._lost_member()) is not None:
            outcome, cause = Outcome.INTERRUPTED, f"{lost} left its gang"
        self._finish_run(key, outcome, cause, event)

    def _lost_member(self) -> str | None:
        """A member of the gang whose node was lost; None where the gang failed by itself.

        That a node is lost shows in the gang's program first. So every member has to show a further heartbeat.
        """
        before = self._gangs.counters()
        deadline_s = self._clock.monotonic() + 3 * self._settings.heartbeat_s + self._settings.control_s
        while (left := self._gangs.unconfirmed(before)) and self._clock.monotonic() < deadline_s and not self._signals:
            self._beat()
            self._clock.sleep(min(0.5, self._settings.heartbeat_s / 2))
        return left[0] if left else None

    def _stop_signal_pending(self) -> str | None:
        """A batch system signals the whole step: a task can die of it a moment before this worker gets its own."""
        deadline_s = self._clock.monotonic() + _SIGNAL_S
        while self._stop_cause is None and not self._signals and self._clock.monotonic() < deadline_s:
            self._clock.sleep(0.02)
        return "worker stopped" if self._stop_cause or any(s != signal.SIGUSR1 for s in self._signals) else None

    def _finish_run(self, key: str, outcome: Outcome, cause: str, event: dict[str, Any]) -> None:
        run, ending = self._attempts.finish(key, outcome, cause, event)
        self._books.release(key)
        self._gangs.end(run.claim)
        self._endings.append((run.claim, ending))
        now_s = self._clock.monotonic()
        self._pace.ended(now_s - run.started_s)
        self._next_claim_s, self._pause_s, self._worked_s = now_s, _SHORTEST_PAUSE_S, now_s
        self._judge_node(run.claim.name.id, ending)

    def _judge_node(self, task_id: str, ending: Attempt) -> None:
        if ending.outcome is Outcome.SUCCEEDED:
            self._health.succeeded()
        elif ending.outcome is Outcome.FAILED and not is_certain(ending):
            if self._station.has_company():
                self._avoid[task_id] = self._clock.monotonic() + self._settings.avoid_s
            reason = self._health.failed(task_id, ending.cause)
            if reason is not None:
                self._drain(reason)

    def _end(self, claim: Claim, outcome: Outcome, cause: str) -> None:
        """End a claim that was booked and isn't running."""
        self._books.release(attempt_key(claim))
        self._gangs.end(claim)
        self._endings.append((claim, self._station.attempt(claim, outcome, cause)))

    def _settle(self) -> None:
        """Write down what ended: at once, or a batch together while more ends without a pause."""
        if not self._endings or (len(self._endings) < _BATCH and self._poll(0)):
            return
        self._station.end(self._endings, sync=False)
        self._endings = []

    def _handle_signals(self) -> None:
        while self._signals:
            number = self._signals.popleft()
            if number == signal.SIGUSR1:
                self._drain_cause = self._drain_cause or "asked by signal"
            else:
                self._stop("worker stopped")

    def _handle_control(self) -> None:
        now_s = self._clock.monotonic()
        if now_s < self._next_control_s:
            return
        self._next_control_s = now_s + self._settings.control_s
        self._drain_cause = self._drain_cause or self._station.drain_reason()
        self._reconcile()
        self._follow_summons()
        for task_id in self._station.orders_to_cancel():
            self._attempts.stop(CANCELLED, task_id)
            for claim in [claim for claim in self._ahead if claim.name.id == task_id]:
                self._ahead.remove(claim)
                self._endings.append((claim, self._station.attempt(claim, Outcome.CANCELLED, CANCELLED)))
            if self._waiting is not None and self._waiting.name.id == task_id:
                self._end(self._waiting, Outcome.CANCELLED, CANCELLED)
                self._waiting = None

    def _reconcile(self) -> None:
        """Find claims that this worker has without going on with them: the file system denied them, or an error came.

        Where there is no room for one by now, it goes back.
        """
        self._station.adopt_strays()
        known = {*self._attempts.running, *(attempt_key(claim) for claim, _ in self._endings)}
        known.update(map(attempt_key, self._to_start), map(attempt_key, self._ahead))
        if self._waiting is not None:
            known.add(attempt_key(self._waiting))
        for claim in self._station.claims:
            key = attempt_key(claim)
            if key in known:
                continue
            serving = self._stop_cause is None and self._drain_cause is None
            if self._books.has(key):
                self._to_start.append(claim)
            elif serving and self._is_in_time(claim.request) and self._books.fits(claim.request) and self._node.enter():
                self._take(claim)
            else:
                self._endings.append((claim, self._station.attempt(claim, Outcome.RETURNED, "no room")))

    def _handle_walltime(self) -> None:
        left_s = self._left_s()
        if left_s is not None and left_s <= self._settings.walltime_margin_s:
            self._stop("walltime")

    def _stop(self, cause: str) -> None:
        """End what runs and leave; nothing of it counts against the tasks."""
        if self._stop_cause is not None:
            return
        self._stop_cause = cause
        self._attempts.stop(cause)
        if self._waiting is not None:
            self._end(self._waiting, Outcome.RETURNED, cause)
            self._waiting = None
        self._gangs.desert()
        self._have_node_back()

    def _drain(self, reason: str) -> None:
        """Take this node out of service: this worker, and those that would start here."""
        if self._drain_cause is None:
            self._drain_cause = reason
            drain(self._spool, self._host, reason)
            self._station.writer.note("drained", reason=reason)

    def _reason_to_leave(self) -> str | None:
        if self._attempts.running or self._endings or self._to_start or self._ahead:
            return None
        if self._waiting is not None or self._kept is not None:
            return None
        if self._stop_cause is not None:
            return self._stop_cause
        if self._drain_cause is not None:
            return self._drain_cause
        idle_s = self._clock.monotonic() - self._worked_s
        if self._settings.idle_timeout_s is not None and idle_s >= self._settings.idle_timeout_s:
            return f"idle for {idle_s:.0f} s"
        return None

    def _beat(self) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._next_beat_s:
            leaving = self._stop_cause is not None
            state: Literal["serving", "draining", "leaving"] = (
                "leaving" if leaving else "draining" if self._drain_cause is not None else "serving"
            )
            self._station.beat(self._lease(state))
            self._next_beat_s = now_s + self._settings.heartbeat_s

    def _lease(self, state: Literal["serving", "draining", "leaving"]) -> Lease:
        processes = [(os.getpid(), own_start()), *self._launchers.processes()]
        running = self._attempts.as_lease()
        if self._waiting is not None:
            running.append({"id": self._waiting.name.id, "attempt": self._waiting.name.attempt, "waits": True})
        if self._kept is not None:
            summons = self._kept.summons
            running.append(
                {
                    "id": summons.task,
                    "attempt": summons.attempt,
                    "leader": summons.leader,
                    "ready": self._kept.is_empty,
                }
            )
        left_s = self._left_s()
        return Lease(
            worker="",
            counter=0,
            host=self._host,
            boot=boot_id(),
            processes=tuple(processes),
            state=state,
            reason=self._stop_cause or self._drain_cause or "",
            capacity={
                **self._books.inventory.as_capacity(),
                "lane": self._settings.lane,
                "gang": self._settings.gang,
            },
            free=self._books.free(),
            running=tuple(running),
            identity=dict(self._settings.identity),
            walltime_left_s=None if left_s is None else round(left_s - self._settings.walltime_margin_s, 1),
        )

    def _left_s(self) -> float | None:
        if self._settings.walltime_s is None:
            return None
        return self._started_s + self._settings.walltime_s - self._clock.monotonic()

    def _launcher_died(self, kind: str) -> None:
        """End what it ran; a new one is made when it is needed."""
        if not self._launchers.bury(kind):
            self._drain(f"processes of a dead launcher could not be killed within {UNKILLABLE_S:.0f} s")
        for key in [key for key, run in self._attempts.running.items() if run.launcher == kind]:
            self._finish_run(key, Outcome.LOST, CRASHED, {})
        if self._launchers.deaths > _LAUNCHER_RESTARTS:
            self._drain(f"its launcher died {self._launchers.deaths} times")
