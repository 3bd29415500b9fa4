"""The executor: jobs become tasks of a spool, results of tasks become ends of jobs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.ground.paths import SPOOLS
from fleetcraft.ground.repository import CHECKOUT, CHECKOUT_VARIABLE
from fleetcraft.spool import Result, Spool, SpoolBusy, State, TaskSpec, is_certain
from fleetcraft.worker.liveness import LocalOracle
from fleetcraft.worker.overview import by_class
from fleetcraft.worker.warm import LAUNCHER
from snakemake_executor_plugin_spool.command import Commands
from snakemake_executor_plugin_spool.failure import describe_failure
from snakemake_executor_plugin_spool.fleet import Fleet, FleetFailed, LocalFleet, NoFleet, local_capacities
from snakemake_executor_plugin_spool.identity import (
    fingerprint,
    member_key,
    members_of,
    outputs_to_sync,
    stream_of,
    task_id,
)
from snakemake_executor_plugin_spool.request import is_open, priority_of, request_of
from snakemake_executor_plugin_spool.session import MAKER, Session
from snakemake_executor_plugin_spool.slurm_fleet import InsideFleet, SlurmFleet
from snakemake_executor_plugin_spool.sources import Sources, freeze

_SHORTEST_PAUSE_S = 0.05
_TROUBLE_S = 600.0
"""How long a spool that can't be read is put up with: a file server that restarts takes minutes."""

_LOWER = "Lower the rule's threads or resources (--set-threads, --set-resources), or use larger workers"

_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


class Executor(RemoteExecutor):
    """Hands jobs to workers through a spool."""

    def __init__(self, workflow: Any, logger: Any):
        # The waiting thread starts inside of the base's constructor, and looks for results at once: whatever it touches
        # is here. Should it die, Snakemake would wait for ever.
        self._session: Session | None = None
        self._clock = SystemClock()
        self._pause_s = _SHORTEST_PAUSE_S
        self._mutex = threading.Lock()
        self._trouble_since_s: float | None = None
        self._starts_no_more = False
        self._withdrawn: set[str] = set()
        self._hears_termination = False
        self._failed: dict[str, str] = {}
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        """Open the spool, take control of it, freeze the sources, and see what an earlier controller left."""
        settings = self.workflow.executor_settings
        try:
            campaign = _campaign(self.workflow)
            spool = Spool.create((settings.dir or SPOOLS / campaign).absolute(), campaign)
            session = Session(spool)
            try:
                self._sources = freeze(self.workflow, spool.root / "sources")
                self._config = _configuration(self.workflow, self.envvars())
                self._environment = _job_environment(self._sources, self.envvars())
                self._commands = Commands(
                    self.workflow, self.common_settings, self._sources, spool.root / "sources" / "inputs"
                )
                adoptable = self._adoptable()
                session.adopt_from(adoptable)
                self._complete_records(session)
                self._fleet = self._make_fleet(spool)
                session.watch_workers(self._fleet.oracle, self._fleet.stale_s)
                self._refuse_what_fits_nowhere()
                if adoptable:
                    # Workers get ready while Snakemake looks for the first jobs.
                    self._fleet.tend()
            except BaseException:
                session.close()
                raise
        except FleetcraftError as error:
            self.wait = False
            raise WorkflowError(str(error)) from error
        self._session = session
        self.logger.info(f"Jobs go through the spool {spool.root}.")

    def run_job(self, job: Any) -> None:
        """One job; Snakemake hands them over in batches."""
        self.run_jobs([job])

    def run_jobs(self, jobs: list[Any]) -> None:
        """Enqueue jobs, in one batch. One that no worker could ever run ends here, and says so."""
        session = self._open_session()
        self._hear_termination()
        specs: dict[str, TaskSpec] = {}
        infos: dict[str, SubmittedJobInfo] = {}
        refused: list[tuple[SubmittedJobInfo, str]] = []
        for job in jobs:
            self.run_job_pre(job)
            try:
                spec = self._spec(job)
                self._check_capacity(spec)
            except (FleetcraftError, WorkflowError) as error:
                refused.append((SubmittedJobInfo(job=job), f"{error}\n"))
                continue
            specs[spec.id] = spec
            infos[spec.id] = SubmittedJobInfo(job=job, external_jobid=spec.id)
        ended_meanwhile = {key for key, info in infos.items() if self._ended_meanwhile(info.job)}
        for info in infos.values():
            # Before the task can run: if this controller is killed, the next one knows by it what became of the task.
            info.job.register(external_jobid=info.external_jobid)
        problem = ""
        try:
            with self._mutex:
                session.submit(list(specs.values()), ended_meanwhile)
        except (FleetcraftError, OSError) as error:
            problem = f"its task could not be enqueued: {error}\n"
        for info in infos.values():
            if problem:
                refused.append((info, problem))
            else:
                self.report_job_submission(info, register_job=False)
        for info, message in refused:
            self._report_error(info, message)
        self._pause_s = _SHORTEST_PAUSE_S

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report those that have ended, and give the others back: all of them, whatever goes wrong."""
        ended: dict[str, Result] = {}
        problem: str | None = None
        if self._session is not None:
            try:
                async with self.status_rate_limiter:
                    with self._mutex:
                        if self._starts_no_more:
                            self._withdrawn |= self._session.withdraw()
                        ended = self._look(self._session, active_jobs)
                        if len(ended) < len(active_jobs):
                            self._fleet.tend()
                self._trouble_since_s = None
            except (FleetFailed, SpoolBusy) as error:
                problem = f"{error}\n"
            except Exception as error:  # noqa: BLE001 - Snakemake would shut down and leave every job alone
                problem = self._judge_trouble(error)
        withdrawn = sum(info.external_jobid in self._withdrawn for info in active_jobs)
        if withdrawn:
            left = len(active_jobs) - withdrawn - len(ended)
            self.logger.info(f"{withdrawn} jobs that only waited are withdrawn; {left} that run are waited for.")
        for info in active_jobs:
            result = ended.get(info.external_jobid or "")
            if info.external_jobid in self._withdrawn:
                # Not a failure: no message for each, and nothing to be tried again.
                info.job.attempt = info.job.restart_times + 1
                self.workflow.scheduler.error_callback(info.job)
            elif result is None and problem is None:
                yield info
            elif result is None:
                self._report_error(info, problem or "")
            elif result.state is State.DONE:
                self._failed.pop(result.id, None)
                self.report_job_success(info)
            else:
                ending = result.ending
                # One that was cancelled didn't fail, and has no class.
                self._failed[result.id] = (ending.failure_class or ending.outcome.value) if ending else "unclassified"
                if result.ending is not None and is_certain(result.ending):
                    # Whatever retries are left, Snakemake is not to try it again.
                    info.job.attempt = info.job.restart_times + 1
                self._report_error(info, self._explain(info, result))
        self.next_seconds_between_status_checks = self._pause_s

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel what waits, and end what runs; returns when both is done, or after a bounded time."""
        if self._session is None:
            return
        with self._mutex:
            # Its workers end their tasks and give them back, where nothing keeps them from being cancelled.
            self._stop_fleet(self._session)
            # All of them: Snakemake takes its list away while it asks for results.
            left = self._session.cancel_all()
        if left:
            self.logger.warning(f"Still ending when this was left: {', '.join(sorted(left))}.")

    def shutdown(self) -> None:
        """End the workers and give up control."""
        super().shutdown()
        if self._failed:
            self.logger.error(f"Jobs that failed, by class: {by_class(Counter(self._failed.values()))}.")
        session, self._session = self._session, None
        if session is not None:
            try:
                self._stop_fleet(session)
            finally:
                session.close()

    def _stop_fleet(self, session: Session) -> None:
        """End its workers. What can't be ended is told of, and keeps nothing else from being ended."""

        def keep_up() -> None:
            # Neither a file server in trouble nor another controller is a reason to leave allocations behind.
            with contextlib.suppress(FleetcraftError, OSError):
                session.keep_up()

        try:
            self._fleet.stop(keep_up)
        except FleetFailed as error:
            self.logger.error(str(error))

    def _look(self, session: Session, active_jobs: list[SubmittedJobInfo]) -> dict[str, Result]:
        """One round: heartbeat, what workers left behind, results of these jobs."""
        if session.look():
            self._pause_s = _SHORTEST_PAUSE_S
        else:
            self._pause_s = min(1.3 * self._pause_s, self.workflow.executor_settings.poll)
        return session.take({info.external_jobid for info in active_jobs if info.external_jobid})

    def _judge_trouble(self, error: Exception) -> str | None:
        """What is to be done about an error of a round: None to try again, or the reason to give the jobs up."""
        now_s = self._clock.monotonic()
        if self._trouble_since_s is None:
            self._trouble_since_s = now_s
            self.logger.warning(f"The spool can't be read ({error!r}); trying again.")
        self._pause_s = max(self._pause_s, 1.0)
        lasted_s = now_s - self._trouble_since_s
        if lasted_s < _TROUBLE_S:
            return None
        return f"The spool could not be read for {lasted_s:.0f} s, at last because of {error!r}.\n"

    def _explain(self, info: SubmittedJobInfo, result: Result) -> str:
        """Why a job failed."""
        try:
            return describe_failure(result, self._open_session().spool.root, [str(log) for log in info.job.log])
        except OSError as error:
            return f"{info.external_jobid} failed ({result.problem}), and its log can't be read: {error}\n"

    def _hear_termination(self) -> None:
        """On SIGTERM Snakemake waits for all that it submitted: see to it that this is no more than what runs.

        Its scheduler sets its handler after it has made the executors; so this is done when jobs come, in its thread.
        """
        if self._hears_termination or threading.current_thread() is not threading.main_thread():
            return
        self._hears_termination = True
        before = signal.getsignal(signal.SIGTERM)

        def hear(number: int, frame: Any) -> None:
            self._starts_no_more = True
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, hear)

    def _report_error(self, info: SubmittedJobInfo, message: str) -> None:
        if not self.workflow.execution_settings.keep_going and info.job.restart_times < info.job.attempt:
            # Snakemake starts no further job, and waits for those that it submitted.
            self._starts_no_more = True
        if info.job.is_group():
            # Snakemake prints a message with single jobs only.
            self.logger.error(message)
        self.report_job_error(info, msg=message)

    def _spec(self, job: Any) -> TaskSpec:
        directory = self.workflow.workdir_init
        members = members_of(job)
        identifier = task_id(job, members, directory)
        unneeded = list(self.workflow.dag.get_unneeded_temp_files(job))
        # The base class would have every job wait for a directory that goes when the controller does.
        job_args = super(RemoteExecutor, self).get_job_args(job, cores=max(1, int(job.threads)))
        return TaskSpec(
            id=identifier,
            command=self._commands.command(job, job_args, identifier),
            directory=directory,
            request=request_of(job, self.workflow.executor_settings.runtime),
            priority=priority_of(job),
            # Snakemake counts retries: it may give the next attempt other resources.
            retries=0,
            environment=self._environment,
            outputs=outputs_to_sync(job, unneeded),
            stream=stream_of(members),
            launcher=LAUNCHER if self._commands.is_plain else "command",
            group=job.groupid if job.is_group() else job.rule.name,
            labels={
                "maker": MAKER,
                "members": members,
                "fingerprint": fingerprint(job, self._sources.digest, self._config),
            },
        )

    def _refuse_what_fits_nowhere(self) -> None:
        """Fail before anything has run where a rule's jobs ask for more than any worker will have.

        One job stands for all of a rule. What depends on its inputs or attempt is looked at when it is submitted.
        """
        one_a_rule = {job.rule.name: job for job in self.dag.needrun_jobs() if not job.is_local and not job.group}
        problems = []
        for name, job in sorted(one_a_rule.items()):
            if is_open(job):
                continue
            try:
                request = request_of(job, self.workflow.executor_settings.runtime)
                reason = self._fleet.refusal(request)
            except BadInput as error:
                problems.append(str(error))
            else:
                problems += [f"rule {name}: {reason}"] if reason is not None else []
        if problems:
            raise BadInput("\n".join(["this fleet can't run the jobs of some rules:", *problems]), remedy=_LOWER)

    def _check_capacity(self, spec: TaskSpec) -> None:
        """Say at once that a task can't be run here."""
        if not self._fleet.is_known:
            reason = self._open_session().nobody_can(spec.request)
            if reason is not None:
                self.logger.warning(f"{spec.id} waits for another worker than those that are there: {reason}.")
            return
        reason = self._fleet.refusal(spec.request)
        if reason is not None:
            raise BadInput(f"no worker of this fleet can ever run this job: {reason}", remedy=_LOWER)

    def _ended_meanwhile(self, job: Any) -> bool:
        """Whether this job, to all appearance, ended after Snakemake had looked and found that it is to run.

        It lacked its outputs then, and has them now. (The mark of incomplete outputs doesn't tell: the job itself
        removes it.)
        """
        if not self._open_session().may_have_ended(members_of(job)):
            return False
        jobs = job.jobs if job.is_group() else [job]
        reasons = [self.dag.reason(single) for single in jobs]
        lacked = all(bool(reason.missing_output) or bool(reason.incomplete_output) for reason in reasons)
        return lacked and all(Path(output).exists() for output in outputs_to_sync(job, ()))

    def _adoptable(self) -> dict[str, frozenset[str]]:
        """Jobs that are to run, each with those before it that are to run: by their keys."""
        needed = [job for job in self.dag.needrun_jobs() if not job.is_local]
        return {
            member_key(job): frozenset(
                member_key(before) for before in self.dag.dependencies[job] if self.dag.needrun(before)
            )
            for job in needed
        }

    def _complete_records(self, session: Session) -> None:
        """Write Snakemake's records of jobs that ended while there was no controller.

        The job itself clears the mark that it is incomplete, but only a controller records what it was run with.
        Without that, Snakemake would take its outputs for up to date whatever changes later.
        """
        persistence = self.workflow.persistence
        for job in self.dag.jobs if session.has_past else ():
            if job.is_local or self.dag.needrun(job) or not job.output:
                continue
            done_as = session.done_as(task_id(job, members_of(job), self.workflow.workdir_init))
            if done_as is None or persistence.has_metadata(job):
                continue
            if done_as == fingerprint(job, self._sources.digest, self._config):
                self.workflow.async_run(persistence.finished(job))
            else:
                self.logger.warning(
                    f"{', '.join(map(str, job.output))} was made while no controller ran, from other sources or "
                    "another configuration than now; Snakemake can't tell whether it is up to date. "
                    "Use --forcerun if it isn't."
                )

    def _make_fleet(self, spool: Spool) -> Fleet:
        settings = self.workflow.executor_settings
        if settings.fleet == "none":
            return NoFleet(self._clock)
        if settings.fleet == "slurm":
            return SlurmFleet(spool, settings.fleet_file, self._environment, self.logger.info)
        if settings.fleet == "inside":
            return InsideFleet(spool, settings.fleet_file, self._environment, self.logger.info, settings.lane)
        if settings.fleet != "local":
            raise BadInput(
                "this kind of fleet is unknown",
                key="--spool-fleet",
                value=settings.fleet,
                remedy="Use local, slurm, inside or none",
            )
        cores = settings.worker_cores
        if cores is None and self.workflow.resource_settings.cores is not None:
            cores = max(1, self.workflow.resource_settings.cores // max(1, settings.workers))
        return LocalFleet(
            spool,
            local_capacities(settings.workers, cores, settings.worker_gpus, settings.worker_mem_mb),
            {**os.environ, **self._environment},
            settings.idle_timeout,
            LocalOracle(self._clock),
        )

    def _open_session(self) -> Session:
        if self._session is None:
            raise WorkflowError("The spool executor has been shut down")
        return self._session


def _campaign(workflow: Any) -> str:
    """What the spool is named after: the configuration's `name`, or else the working directory's."""
    config = workflow.globals.get("config") or {}
    name = config.get("name") if isinstance(config, dict) else None
    text = name if isinstance(name, str) and name else Path(workflow.workdir_init).name
    return _UNFIT.sub("_", text).strip("._")[:80] or "campaign"


def _configuration(workflow: Any, declared: dict[str, str]) -> list[str]:
    """What makes a job another one beside its sources: the command line's and the profile's configuration, and the
    variables that the workflow declares."""
    arguments = [str(argument) for argument in workflow.config_settings.config_args or []]
    return [*arguments, *(f"{name}={value}" for name, value in sorted(declared.items()))]


def _job_environment(sources: Sources, declared: dict[str, str]) -> dict[str, str]:
    """Variables of every job: those that were asked for, and where its sources are and come from."""
    environment = {**declared, CHECKOUT_VARIABLE: str(CHECKOUT)}
    path = sources.python_path(os.environ.get("PYTHONPATH"))
    if path is not None:
        environment["PYTHONPATH"] = path
    return environment
