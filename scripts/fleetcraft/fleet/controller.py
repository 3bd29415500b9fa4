"""The controller of a fleet: asks Slurm, decides, submits, and keeps the records. One question to Slurm an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from fleetcraft.fleet.budget import read_balance
from fleetcraft.fleet.decision import Decision, Hold, Living, Submit, Usage, Work, decide
from fleetcraft.fleet.demand import waiting, work
from fleetcraft.fleet.errors import FleetStopped, NoAnswer, NoSlurm, Rejected
from fleetcraft.fleet.history import History
from fleetcraft.fleet.leaving import LEAVING_S, WORD_S, Leaving
from fleetcraft.fleet.oracle import SlurmOracle
from fleetcraft.fleet.records import Record, Records
from fleetcraft.fleet.script import Software, write_scripts
from fleetcraft.fleet.settings import FleetSettings
from fleetcraft.fleet.slurm import RUNNING, Job, Jobs, Runner, Slurm
from fleetcraft.ground.errors import BadInput
from fleetcraft.spool import Oracle, Spool, Writer, aborted, drain, drained, read_leases

_FAILURES = 3
"""So many allocations of a lane that come to nothing in a row, and it is paused."""

_LOST_S = 120.0
"""How long a job is looked for by its name that may have been submitted."""

_SILENCE_S = 3600.0
"""How long Slurm may say nothing while no worker lives."""

_INSISTING_S = 45.0
"""How long it is tried to cancel allocations while Slurm gives no answer."""

_LOOK_S = 1.0
"""Between looks for work, when there is nothing to ask Slurm about."""


class FleetController:
    """Sees to it that there are allocations while there is work.

    Parameters
    ----------
    others : who knows about workers that aren't of Slurm.
    say : told in a sentence what happened.
    poll_s : between two questions to Slurm; None as the fleet file says. Tests alone give another one.
    """

    def __init__(
        self,
        spool: Spool,
        fleet: FleetSettings,
        software: Software,
        others: Oracle,
        *,
        slurm: Slurm | None = None,
        runner: Runner | None = None,
        say: Callable[[str], None] = print,
        poll_s: float | None = None,
    ):
        self._spool, self._fleet, self._software, self._say = spool, fleet, software, say
        self._clock = spool.clock
        self._runner = runner
        self._slurm = slurm or Slurm(self._clock, runner)
        self._slurm.require()
        self._poll_s = fleet.site.poll_s if poll_s is None else poll_s
        self._records = Records(spool)
        self._history = History(spool)
        self._writer = Writer(spool, "fleet")
        self.oracle = SlurmOracle(self._slurm, self._records, self._clock, others)
        self.stale_s = 3 * fleet.workers.heartbeat_s
        self._living = [record for record in self._records.read() if record.state != "ended"]
        self._submitting_s: dict[str, float] = {}
        self._next_s = self._clock.monotonic()
        self._silent_since_s: float | None = None
        self._rejections: Counter[str] = Counter()
        self._barren: Counter[str] = Counter()
        self._not_before_s: dict[str, float] = {}
        self._paused: dict[str, str] = {}
        self._said: dict[str, str] = {}
        for record in self._living:
            self._say(f"Allocation {record.job or record.name} of lane {record.lane} is taken over.")

    @property
    def living(self) -> Sequence[Record]:
        """Allocations that haven't ended, as far as is known."""
        return tuple(self._living)

    def step(self) -> None:
        """Do what is due: at most one question to Slurm an interval, and what follows from its answer.

        Raises
        ------
        FleetStopped : work waits, nothing lives that could do it, and nothing will come.
        NoSlurm : this machine has no Slurm.
        """
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            return
        if not self._living and not self.oracle.wants and not any(waiting(self._spool).values()):
            self._next_s = now_s + _LOOK_S
            return
        self._next_s = now_s + self._poll_s
        self._history.read()
        try:
            jobs = self.oracle.ask()
        except NoAnswer as error:
            self._bear_silence(error, now_s)
            return
        self._silent_since_s = None
        self._said.pop("", None)
        if jobs is None:
            return
        self._note_jobs(jobs)
        self._act(jobs)
        self._writer.sync()

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """Let the workers of every allocation leave, cancel what is left, and have it buried: all within bounds.

        Parameters
        ----------
        meanwhile : called again and again; steps the reaper.

        Raises
        ------
        FleetStopped : something is left, and how to get rid of it.
        """
        try:
            if self._living:
                self._leave(meanwhile)
        finally:
            self._writer.close()

    def close(self) -> None:
        """Leave the allocations to whoever controls next."""
        self._writer.close()

    # What Slurm says
    def _note_jobs(self, jobs: Jobs) -> None:
        for strange in jobs.by_id.values():
            if not strange.is_known_state:
                self._say_once(
                    f"job {strange.id}", f"Job {strange.id} is in state {strange.state}, which isn't known here."
                )
        for record in list(self._living):
            job = job_of(record, jobs)
            if record.job is None and job is not None:
                self._replace(record, replace(record, job=job.id, state="submitted"))
                self._say(f"Allocation {job.id} of lane {record.lane} was submitted after all.")
            elif record.job is None:
                since_s = self._submitting_s.setdefault(record.token, self._clock.monotonic())
                if jobs.asked_s - since_s >= _LOST_S:
                    self._end(record, "never submitted", counts=True)
                continue
            if job is None or job.has_ended:
                self._end(record, job.state.lower() if job is not None else "ended", counts=True)

    def _bear_silence(self, error: NoAnswer, now_s: float) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        self._say_once("", f"Nothing is submitted meanwhile: {error}")
        lasted_s = now_s - self._silent_since_s
        if lasted_s > _SILENCE_S and not read_leases(self._spool):
            raise FleetStopped(
                f"Slurm has not answered for {lasted_s:.0f} s, and there is no worker ({error.problem})",
                remedy="Start again when it does: what is done is kept",
            ) from error

    # What follows
    def _act(self, jobs: Jobs) -> None:
        found, decisions = self._decide(jobs)
        for decision in decisions:
            if isinstance(decision, Submit):
                self._said.pop(decision.lane, None)
                self._submit(decision)
            else:
                self._say_once(decision.lane, f"Lane {decision.lane}: nothing is submitted, because {decision.reason}.")
        if not self._living:
            self._judge_end(found, decisions)

    def _decide(self, jobs: Jobs) -> tuple[list[Work], list[Decision]]:
        found = work(self._spool, self._history)
        if aborted(self._spool) is not None:
            return found, []
        usage = usage_of(jobs, self._living)
        living = shapes_of(self._living, jobs, self._fleet, self._records)
        now_s = self._clock.monotonic()
        held = {
            name: Hold(name, "it was rejected and is tried again in a while", passes=True)
            for name, until_s in self._not_before_s.items()
            if until_s > now_s
        }
        held |= {name: Hold(name, reason, passes=False) for name, reason in self._paused.items()}
        decisions = decide(found, self._fleet, living, usage, float("inf"), held)
        if self._fleet.budget is not None and any(isinstance(decision, Submit) for decision in decisions):
            decisions = decide(found, self._fleet, living, usage, self._funds(), held)
        return found, decisions

    def _funds(self) -> float | None:
        """What may still be spent. What has been submitted may not be in the balance yet, so it is subtracted."""
        assert self._fleet.budget is not None
        try:
            balance = read_balance(self._fleet.budget, self._runner)
        except NoAnswer as error:
            self._say_once("balance", f"Nothing is submitted meanwhile: {error}")
            return None
        except BadInput as error:
            raise FleetStopped(str(error).rstrip("."), remedy="Then start again") from error
        return balance - self._fleet.budget.headroom - sum(record.cost for record in self._living)

    def _submit(self, decision: Submit) -> None:
        lane = self._fleet.lanes[decision.lane]
        record = self._records.new(decision.lane, decision.nodes, 60 * lane.walltime_min, decision.cost)
        directory = self._records.directory(record)
        avoided = self._drained_hosts()
        script = write_scripts(directory, record, self._fleet, self._spool.root, self._software, avoided)
        # Before it is submitted: if this controller is killed now, the next one finds the job by its name.
        self._records.write(record)
        self._living.append(record)
        self._submitting_s[record.token] = self._clock.monotonic()
        try:
            job = self._slurm.submit(script)
        except NoAnswer as error:
            self._say(f"Lane {decision.lane}: {error}")
            return
        except Rejected as error:
            self._end(record, f"rejected: {error.problem}", counts=False)
            self._note_rejection(decision.lane, error)
            return
        self._rejections[decision.lane] = 0
        self._replace(record, replace(record, job=job, state="submitted"))
        self._writer.note(
            "allocation submitted",
            allocation=record.token,
            job=job,
            lane=record.lane,
            nodes=record.nodes,
            cost=record.cost,
            reason=decision.reason,
        )
        self._say(
            f"Lane {decision.lane}: allocation {job} of {decision.nodes} nodes for {lane.walltime_min} minutes was "
            f"submitted ({decision.reason})."
        )

    def _note_rejection(self, lane: str, error: Rejected) -> None:
        self._rejections[lane] += 1
        count = self._rejections[lane]
        self._say(f"Lane {lane}: {error}")
        if count >= _FAILURES:
            self._paused[lane] = f"it was rejected {count} times in a row, at last because {error.problem}"
        else:
            self._not_before_s[lane] = self._clock.monotonic() + self._poll_s * 2**count

    def _drained_hosts(self) -> list[str]:
        """Nodes on which no worker of this campaign may serve any more."""
        return sorted(set(drained(self._spool)) & self._history.hosts)

    def _end(self, record: Record, ending: str, *, counts: bool) -> None:
        """An allocation has ended. One that came to nothing is counted, so that they aren't submitted without end."""
        self._history.read()
        attempts = self._history.attempts[record.token]
        self._replace(record, replace(record, state="ended", ending=ending))
        self._living = [other for other in self._living if other.token != record.token]
        self._writer.note(
            "allocation ended",
            allocation=record.token,
            job=record.job,
            lane=record.lane,
            ending=ending,
            attempts=attempts,
        )
        if not counts:
            return
        self._say(f"Allocation {record.job or record.name} of lane {record.lane} has ended ({ending}).")
        served = self._history.served(record.token)
        if attempts:
            self._barren[record.lane] = 0
        elif not served or self._is_wanted(record.lane):
            self._barren[record.lane] += 1
            count = self._barren[record.lane]
            if count >= _FAILURES:
                what = "without having run a task" if served else "before any worker came up"
                self._paused[record.lane] = (
                    f"{count} allocations in a row ended {what} (the last one: {ending}); "
                    f"{self._records.log_tail(record)}\n   "
                )

    def _is_wanted(self, lane: str) -> bool:
        """Whether tasks wait that this lane could serve."""
        settings = self._fleet.lanes.get(lane)
        found = work(self._spool, self._history)
        return settings is not None and any(settings.refusal(lane, w.request) is None for w in found)

    def _judge_end(self, found: Sequence[Work], decisions: Sequence[Decision]) -> None:
        """Nothing lives: say so, and end it, where nothing is going to change that."""
        if not any(waiting(self._spool).values()) or read_leases(self._spool):
            return
        reason = aborted(self._spool)
        if reason is not None:
            raise FleetStopped(
                f"the run is aborted ({reason})",
                file=self._spool.root,
                remedy="Take it back with `fleetcraft abort --resume` and start again",
            )
        holds = [decision for decision in decisions if isinstance(decision, Hold)]
        if len(holds) != len(decisions) or any(hold.passes for hold in holds):
            return
        reasons = [f"lane {hold.lane}: {hold.reason}" for hold in holds]
        reasons = reasons or [refusal for w in found if (refusal := self._fleet.refusal(w.request)) is not None]
        raise FleetStopped(
            f"tasks wait and no allocation is submitted for them: {'; '.join(reasons)}",
            file=self._spool.root,
            remedy="Remove the cause and start again: what is done is kept",
        )

    def _leave(self, meanwhile: Callable[[], object]) -> None:
        tokens = {record.token for record in self._living}
        leaving = Leaving(self._spool, self.oracle, tokens, self._poll_s, meanwhile)
        serving = {lease.identity["allocation"] for lease in leaving.present().values()}
        # Those without a worker first: none is to come up any more.
        self._cancel([record for record in self._living if record.token not in serving])
        leaving.ask(self._clock.monotonic() + LEAVING_S)
        self._cancel(self._living)
        if not leaving.hear(self._clock.monotonic() + WORD_S):
            raise FleetStopped(
                f"nobody knows yet whether these workers are gone: {', '.join(sorted(leaving.present()))}",
                file=self._spool.root,
                remedy="Their allocations are cancelled; what they had is taken back when you start again",
            )

    def _cancel(self, records: Sequence[Record]) -> None:
        """Cancel allocations, and insist within bounds until Slurm has heard it."""
        tokens = {record.token for record in records}
        deadline_s = self._clock.monotonic() + _INSISTING_S
        while True:
            try:
                if any(record.job is None for record in self._living if record.token in tokens):
                    self._note_jobs(self._slurm.jobs())
                numbers = [r.job for r in self._living if r.token in tokens and r.job is not None]
                self._slurm.cancel(numbers)
                break
            except NoAnswer as error:
                if self._clock.monotonic() >= deadline_s:
                    names = ", ".join(str(r.job or r.name) for r in self._living if r.token in tokens)
                    raise FleetStopped(
                        f"allocations could not be cancelled: {names} ({error.problem})",
                        remedy="They leave when they are idle; `fleetcraft fleet release` cancels them later",
                    ) from error
                self._clock.sleep(min(5.0, self._poll_s))
        for record in [record for record in self._living if record.token in tokens]:
            self._end(record, "released", counts=False)

    def _replace(self, old: Record, new: Record) -> None:
        self._records.write(new)
        self._living = [new if record.token == old.token else record for record in self._living]

    def _say_once(self, key: str, sentence: str) -> None:
        """Say what isn't the same as the last time."""
        if self._said.get(key) != sentence:
            self._said[key] = sentence
            self._say(sentence)


def job_of(record: Record, jobs: Jobs) -> Job | None:
    """The job of an allocation, by its number, or by its name where nobody saw the number."""
    if record.job is not None:
        return jobs.by_id.get(record.job)
    return next((job for job in jobs.by_id.values() if job.name == record.name), None)


def usage_of(jobs: Jobs, living: Sequence[Record]) -> Usage:
    """What the user has in Slurm; allocations that Slurm doesn't show yet are counted, too."""
    there = [job for job in jobs.by_id.values() if not job.has_ended]
    unseen = [record for record in living if job_of(record, jobs) is None]
    return Usage(
        len(there) + len(unseen),
        sum(job.state in RUNNING for job in there),
        sum(job.nodes for job in there) + sum(record.nodes for record in unseen),
    )


def shapes_of(living: Sequence[Record], jobs: Jobs | None, fleet: FleetSettings, records: Records) -> list[Living]:
    """Living allocations, with the nodes and the time that they have for tasks."""
    shapes = []
    for record in living:
        lane = fleet.lanes.get(record.lane)
        if lane is None:
            continue
        job = job_of(record, jobs) if jobs is not None else None
        nodes, left_s = record.nodes, lane.usable_s
        if job is not None and not job.is_waiting:
            nodes = max(0, job.nodes - len(records.exits(record))) if job.state != "COMPLETING" else 0
            if job.left_s is not None:
                left_s = job.left_s - lane.walltime_margin_s
        shapes.append(Living(record.lane, nodes, left_s))
    return shapes


def preview(
    spool: Spool, fleet: FleetSettings, slurm: Slurm | None = None
) -> tuple[list[Work], list[Decision], list[str]]:
    """What a controller would decide now, and what is uncertain about it; writes nothing and submits nothing."""
    history, remarks = History(spool), []
    history.read()
    slurm = slurm or Slurm(spool.clock)
    try:
        jobs = slurm.jobs()
        usage = usage_of(jobs, ())
    except (NoAnswer, NoSlurm) as error:
        jobs, usage = None, Usage()
        remarks.append(f"Without what Slurm says of your other jobs: {error}")
    records = Records(spool)
    living = [record for record in records.read() if record.state != "ended"]
    if jobs is not None:
        living = [r for r in living if (job := job_of(r, jobs)) is not None and not job.has_ended]
    funds: float | None = float("inf")
    if fleet.budget is not None:
        try:
            funds = read_balance(fleet.budget) - fleet.budget.headroom - sum(record.cost for record in living)
            remarks.append(f"{funds:,.1f} are left of the budget above the headroom and what is submitted.")
        except NoAnswer as error:
            funds = None
            remarks.append(str(error))
    found = work(spool, history)
    shapes = shapes_of(living, jobs, fleet, records)
    return found, decide(found, fleet, shapes, usage, funds), remarks


def release(spool: Spool, slurm: Slurm, only: Sequence[int] = (), *, drain_only: bool = False) -> list[str]:
    """Give living allocations back, or those `only`; what was done, a line each.

    Raises
    ------
    BadInput : one of `only` isn't a living allocation of this spool.
    """
    records = Records(spool)
    jobs = slurm.jobs()
    living: dict[int, tuple[Record, Job]] = {}
    for record in records.read():
        job = job_of(record, jobs)
        if record.state != "ended" and job is not None and not job.has_ended:
            living[job.id] = (record, job)
    for number in only:
        if number not in living:
            raise BadInput(
                "this is no living allocation of this spool", value=number, remedy="`fleetcraft fleet list` shows them"
            )
    chosen = {number: pair for number, pair in living.items() if not only or number in only}
    lines = []
    for number, (record, job) in chosen.items():
        if drain_only and not job.is_waiting:
            for name, lease in read_leases(spool).items():
                if lease.identity.get("allocation") == record.token:
                    drain(spool, name, "its allocation is to be given back")
            lines.append(f"job {number}: its workers finish what they run, and leave")
            continue
        slurm.cancel([number])
        if record.job is None or job.is_waiting:
            records.write(replace(record, job=number, state="ended", ending="released"))
        lines.append(f"job {number}: cancelled")
    return lines or ["no allocation lives"]
