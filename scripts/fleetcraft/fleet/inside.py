"""A fleet inside an allocation that exists already: a worker a node, each its own step, while there is work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleetcraft.fleet.demand import waiting
from fleetcraft.fleet.errors import FleetStopped, NoAnswer
from fleetcraft.fleet.leaving import LEAVING_S, WORD_S, Leaving
from fleetcraft.fleet.oracle import SlurmOracle
from fleetcraft.fleet.records import Records
from fleetcraft.fleet.script import Software, render_worker
from fleetcraft.fleet.settings import FleetSettings, Lane
from fleetcraft.fleet.slurm import Job, Slurm
from fleetcraft.ground.errors import BadEnvironment, BadInput, nearest
from fleetcraft.ground.files import write_text
from fleetcraft.spool import Oracle, Request, Spool, Writer, aborted, drained
from fleetcraft.worker.packing import why_not_in_time

HEAD_ENDED = "FLEETCRAFT_HEAD_ENDED"
"""Names the file that tells the script of a head job that the walltime ended it."""

_FAILED_STARTS = 3
_SRUN_S = 15.0
"""How long an srun may outlive its step."""

_AFTERWARDS_S = 5.0
"""What is left of the walltime for Snakemake to end, and for a head job to submit its successor."""

_LOOK_S = 1.0
"""Between looks for nodes without a worker."""


@dataclass(slots=True)
class _Place:
    """A node of the allocation, and the srun of its worker."""

    node: str
    srun: subprocess.Popen[bytes] | None = None


class InsideController:
    """Starts workers on the nodes of the allocation that this process is in.

    Parameters
    ----------
    lane : whose description holds for these nodes; None for the first lane of the allocation's partition.

    Raises
    ------
    BadEnvironment : this process isn't in an allocation.
    """

    def __init__(
        self,
        spool: Spool,
        fleet: FleetSettings,
        lane: str | None,
        software: Software,
        others: Oracle,
        *,
        say: Callable[[str], None] = print,
        poll_s: float | None = None,
    ):
        if "SLURM_JOB_ID" not in os.environ:
            raise BadEnvironment(
                "this is not inside an allocation of Slurm (SLURM_JOB_ID isn't set)",
                key="--spool-fleet",
                value="inside",
                remedy="Get one with salloc, use `fleetcraft launch`, or another profile",
            )
        self._spool, self._fleet, self._say = spool, fleet, say
        self._clock = spool.clock
        self._slurm = Slurm(self._clock)
        self._job_id = int(os.environ["SLURM_JOB_ID"])
        self._job = self._own_job()
        self.lane = _lane_name(fleet, lane, self._job.partition)
        self._lane: Lane = fleet.lanes[self.lane]
        self._poll_s = fleet.site.poll_s if poll_s is None else poll_s
        left_s = self._job.left_s
        self._end_s = None if left_s is None else self._clock.monotonic() + left_s
        self._end_wall_s = self._clock.wall() + (left_s if left_s is not None else 10 * 365 * 86400)
        records = Records(spool)
        record = records.new(self.lane, self._job.nodes, int(left_s or 0), 0.0)
        self._token = record.token
        self._directory = records.directory(record)
        self._script = self._directory / "worker.sh"
        write_text(
            self._script, render_worker(record.token, self.lane, self._lane, fleet.workers, spool.root, software)
        )
        self._places = [_Place(node) for node in self._slurm.host_names(os.environ["SLURM_JOB_NODELIST"])]
        self._failed_starts = 0
        self._over: str | None = None
        self._useless_since_s: float | None = None
        self._next_look_s = self._clock.monotonic()
        self._next_s = self._clock.monotonic() + self._poll_s
        self._writer = Writer(spool, "fleet")
        self.oracle = SlurmOracle(self._slurm, records, self._clock, others)
        self.stale_s = 3 * fleet.workers.heartbeat_s
        self._say(f"Workers are started on {len(self._places)} nodes of job {self._job_id} (lane {self.lane}).")

    def step(self) -> None:
        """See to it that every node has a worker, and that the reaper knows what Slurm says.

        Raises
        ------
        FleetStopped : the walltime is near or leaves no time for what waits, or workers don't come up.
        """
        now_s = self._clock.monotonic()
        self._check_walltime(now_s)
        self._stop_if_over()
        if self.oracle.wants:
            self._ask()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        self._check_use(now_s)
        self._stop_if_over()
        avoided = drained(self._spool)
        missing = [place for place in self._places if not self._serves(place) and place.node not in avoided]
        reason = aborted(self._spool)
        if reason is not None or len(avoided.keys() & {place.node for place in self._places}) == len(self._places):
            if not any(self._serves(place) for place in self._places):
                raise FleetStopped(
                    f"no worker may serve here any more: {reason or 'all nodes are drained'}",
                    file=self._spool.root,
                    remedy="Take it back with `fleetcraft abort --resume` or `fleetcraft drain --lift`; start again",
                )
            return
        if missing and any(waiting(self._spool).values()):
            for place in missing:
                self._start(place)

    def stop(self, meanwhile: Callable[[], object]) -> None:
        """End the workers: TERM to each step; the steps of those that don't leave are cancelled, and buried.

        Parameters
        ----------
        meanwhile : called again and again; steps the reaper.

        Raises
        ------
        FleetStopped : nobody knows yet whether some workers are gone.
        """
        leaving = Leaving(self._spool, self.oracle, {self._token}, self._poll_s, meanwhile)
        serving = {str(lease.identity["node"]) for lease in leaving.present().values()}
        present = [place for place in self._places if self._serves(place)]
        try:
            for place in present:
                # To an srun, TERM means to kill its step. Its worker has claimed nothing yet.
                if place.srun is not None and place.node not in serving:
                    place.srun.send_signal(signal.SIGTERM)
            leaving.ask(self._in_time(LEAVING_S))
            for lease in leaving.present().values():
                with contextlib.suppress(NoAnswer):
                    self._slurm.cancel_step(int(lease.identity["job"]), str(lease.identity["step"]))
            deadline_s = self._clock.monotonic() + _SRUN_S
            for srun in (place.srun for place in present if place.srun is not None):
                try:
                    srun.wait(max(0.1, deadline_s - self._clock.monotonic()))
                except subprocess.TimeoutExpired:
                    srun.kill()
                    srun.wait()
            if not leaving.hear(self._in_time(WORD_S)):
                raise FleetStopped(
                    f"nobody knows yet whether these workers are gone: {', '.join(sorted(leaving.present()))}",
                    file=self._spool.root,
                    remedy="What they had is taken back when you start again",
                )
        finally:
            self._writer.close()

    def _in_time(self, patience_s: float) -> float:
        """Until when something may be waited for: the walltime leaves some time for what follows."""
        until_s = self._clock.monotonic() + patience_s
        return until_s if self._end_s is None else min(until_s, self._end_s - _AFTERWARDS_S)

    def _own_job(self) -> Job:
        try:
            job = self._slurm.jobs().by_id.get(self._job_id)
        except NoAnswer as error:
            raise FleetStopped(f"nothing is known of this allocation: {error.problem}", remedy="Start again") from error
        if job is None or job.has_ended:
            raise BadEnvironment(
                f"Slurm knows no running job {self._job_id}, which SLURM_JOB_ID names",
                remedy="Start this inside of a living allocation",
            )
        return job

    def _check_walltime(self, now_s: float) -> None:
        """Workers end by themselves at their margin; what is left then is for another time."""
        if self._end_s is not None and self._end_s - now_s <= self._lane.walltime_margin_s:
            self._over = f"the walltime of job {self._job_id} ends"

    def _check_use(self, now_s: float) -> None:
        """Nodes don't idle until the walltime: where nothing runs, and nothing can begin any more, this is over too."""
        if self._has_use(now_s):
            self._useless_since_s = None
        elif self._useless_since_s is None:
            self._useless_since_s = now_s
        elif now_s - self._useless_since_s >= self._lane.idle_timeout_s:
            self._over = f"what waits can't end before the walltime of job {self._job_id}"

    def _has_use(self, now_s: float) -> bool:
        filesystem, layout = self._spool.filesystem, self._spool.layout
        if self._end_s is None:
            return True
        if any(filesystem.list(layout.claims_of(worker)) for worker in filesystem.list(layout.running)):
            return True
        left_s = self._end_s - now_s - self._lane.walltime_margin_s
        requests = [Request.of_class(name) for name, count in waiting(self._spool).items() if count]
        in_time = [r is None or why_not_in_time(r, left_s) is None for r in requests]
        return not in_time or any(in_time)

    def _stop_if_over(self) -> None:
        if self._over is None:
            return
        if HEAD_ENDED in os.environ:
            Path(os.environ[HEAD_ENDED]).parent.mkdir(parents=True, exist_ok=True)
            Path(os.environ[HEAD_ENDED]).touch()
        raise FleetStopped(
            f"{self._over}; what was not finished is not lost",
            file=self._spool.root,
            remedy="Start again in another allocation",
        )

    def _ask(self) -> None:
        """One question an interval."""
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._poll_s
        try:
            self.oracle.ask()
        except NoAnswer as error:
            self._say(str(error))

    @staticmethod
    def _serves(place: _Place) -> bool:
        return place.srun is not None and place.srun.poll() is None

    def _start(self, place: _Place) -> None:
        if place.srun is not None and place.srun.returncode != 0:
            self._failed_starts += 1
            if self._failed_starts >= _FAILED_STARTS * len(self._places):
                tail = self._log(place.node).read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
                raise FleetStopped(
                    "workers end again and again; the last one's log ends:\n    " + "\n    ".join(tail) + "\n   ",
                    file=self._log(place.node),
                    remedy="Remove the cause that it names, and start again",
                )
        elif place.srun is not None:
            self._failed_starts = 0
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_STEPS}
        with self._log(place.node).open("ab") as log:
            place.srun = _srun(place.node, self._script, {**environment, "FLEETCRAFT_END_S": self._end_text()}, log)

    def _end_text(self) -> str:
        return str(int(self._end_wall_s))

    def _log(self, node: str) -> Path:
        return self._directory / f"{node}.log"


_NOT_FOR_STEPS = frozenset({"SLURM_EXPORT_ENV", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_PER_TASK"})
"""What was asked for this process's own step or script, and would be asked for the workers' steps again."""


def _srun(node: str, script: Path, environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--kill-on-bad-exit=0"]
    command += ["--export=ALL", "--input=none", "/bin/bash", str(script)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _lane_name(fleet: FleetSettings, wanted: str | None, partition: str) -> str:
    if wanted is not None:
        if wanted not in fleet.lanes:
            raise BadInput(f"there is no lane {wanted!r}", key="--spool-lane", remedy=nearest(wanted, fleet.lanes))
        return wanted
    return next((name for name, lane in fleet.lanes.items() if lane.partition == partition), next(iter(fleet.lanes)))
