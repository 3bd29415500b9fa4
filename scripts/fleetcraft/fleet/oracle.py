"""Which workers are gone, by Slurm's word.

A worker's step is its process: it is gone when Slurm, asked after the question had come up, lists it no more, or has
taken its node away from the job (the step of a lost node can stay on the list until the job ends). No answer means
nothing. Why it went is said by Slurm itself, in the job's state or in the log of the step; where nobody explains
it, the task may have been the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetcraft.fleet.errors import FleetStopped, NoAnswer, NoSlurm
from fleetcraft.fleet.records import Records
from fleetcraft.fleet.slurm import Job, Jobs, Slurm, Steps
from fleetcraft.ground.clock import Clock
from fleetcraft.spool import CRASHED, Lease, Liveness, Oracle, Verdict

_STATES = {
    "TIMEOUT": "walltime",
    "DEADLINE": "walltime",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node lost",
    "BOOT_FAIL": "node lost",
    "CANCELLED": "allocation cancelled",
    "REVOKED": "allocation cancelled",
}


@dataclass(slots=True)
class SlurmOracle:
    """Answers from what Slurm said last. Being asked for a verdict, it asks Slurm for nothing but the names of nodes.

    Parameters
    ----------
    others : who knows about workers that aren't of Slurm.
    jobs, steps : the last answers, by `ask`, which the controller calls once an interval.
    """

    slurm: Slurm
    records: Records
    clock: Clock
    others: Oracle
    jobs: Jobs | None = None
    steps: Steps | None = None
    _asked_s: dict[str, float] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _asked_steps: bool = False

    def ask(self) -> Jobs | None:
        """Put one question to Slurm: about jobs, or, where it is needed, about steps by turns; the jobs it told of.

        Raises
        ------
        NoAnswer : there was none, and nothing follows from it.
        """
        self._asked_steps = bool(self._open) and not self._asked_steps
        if self._asked_steps:
            self.steps = self.slurm.steps()
            return None
        self.jobs = self.slurm.jobs()
        return self.jobs

    @property
    def wants(self) -> bool:
        """Whether anybody was asked about who is still without an answer."""
        return bool(self._asked_s)

    def __call__(self, worker: str, lease: Lease | None) -> Liveness:
        """The verdict on a worker whose heartbeat stands still."""
        if lease is None or lease.identity.get("fleet") != "slurm":
            return self.others(worker, lease)
        try:
            job_id, step = int(lease.identity["job"]), str(lease.identity["step"])
        except (KeyError, TypeError, ValueError):
            return Liveness(Verdict.UNKNOWN)
        asked_s = self._asked_s.setdefault(worker, self.clock.monotonic())
        if self.jobs is None or self.jobs.asked_s < asked_s:
            return Liveness(Verdict.UNKNOWN)
        job = self.jobs.by_id.get(job_id)
        if job is not None and not job.has_ended and self._has_node(job, lease.host):
            if self.steps is None or self.steps.asked_s < asked_s:
                self._open.add(worker)
                return Liveness(Verdict.UNKNOWN)
            if (job_id, step) in self.steps.running:
                self._forget(worker)
                return Liveness(Verdict.ALIVE)
        cause = self._cause(lease, job_id, step, job)
        self._forget(worker)
        return Liveness(Verdict.GONE, cause)

    def _forget(self, worker: str) -> None:
        """Whoever asks again gets an answer of Slurm that is younger than this."""
        self._asked_s.pop(worker, None)
        self._open.discard(worker)

    def _cause(self, lease: Lease, job_id: int, step: str, job: Job | None) -> str:
        token = str(lease.identity.get("allocation", ""))
        said = self.records.step_ending(token, lease.host, job_id, step)
        if said is not None and said != "step cancelled":
            return said
        if job is not None and job.state in _STATES:
            return _STATES[job.state]
        if job is not None and not job.has_ended and not self._has_node(job, lease.host):
            return "node lost"
        if said is not None:
            return said
        record = next((record for record in self.records.read() if record.token == token), None)
        if job is None and record is not None and lease.host not in self.records.exits(record):
            # Nobody saw this worker end, and Slurm has forgotten its job: not the doing of a task that anybody knows.
            return record.ending or "allocation is gone"
        return CRASHED

    def _has_node(self, job: Job, node: str) -> bool:
        if not job.node_names:
            return True
        try:
            return node in self.slurm.host_names(job.node_names)
        except (NoAnswer, NoSlurm, FleetStopped):
            return True
