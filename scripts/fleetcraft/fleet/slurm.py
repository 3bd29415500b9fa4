"""The commands of Slurm: the one place that runs them.

An answer is believed only when it has the form that was asked for. Whatever else comes back, or nothing in time, is
`NoAnswer`: it never means that a job is gone.
"""

from __future__ import annotations

import getpass
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetcraft.fleet.errors import NoAnswer, NoSlurm, Rejected
from fleetcraft.ground.clock import Clock

ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
    | {"OUT_OF_MEMORY", "REVOKED"}
)
WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})

_QUERY_S = 20.0
_SUBMIT_S = 60.0
_JOB_FIELDS = ("%A", "%T", "%D", "%L", "%N", "%P", "%r", "%j")
_JOB_HEADER = ("JOBID", "STATE", "NODES", "TIME_LEFT", "NODELIST", "PARTITION", "REASON", "NAME")
_STEP_FIELDS = ("%i", "%N")
_STEP_HEADER = ("STEPID", "NODELIST")
_SEPARATOR = "|"
_JOB_ID = re.compile(r"(?:Submitted batch job )?(\d+)(?:;\S+)?")
_STEP_ID = re.compile(r"(\d+)\.(\S+)")
_TRANSIENT = re.compile(
    r"socket timed out|unable to contact|connection refused|communication|transport|temporarily unable|"
    r"zero bytes were transmitted|controller not responding|backup controller|resource temporarily unavailable",
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said."""

    code: int
    output: str
    errors: str


class Runner(Protocol):
    """Runs a command; raises `subprocess.TimeoutExpired` and `FileNotFoundError` as `subprocess.run` does."""

    def __call__(self, command: Sequence[str], timeout_s: float) -> Answer:
        """What it said."""


class CommandRunner:
    """Runs commands for real, without a shell.

    Parameters
    ----------
    environment : of the commands; None for this process's.
    """

    def __init__(self, environment: Mapping[str, str] | None = None):
        self._environment = None if environment is None else dict(environment)

    def __call__(self, command: Sequence[str], timeout_s: float) -> Answer:
        """What it said."""
        done = subprocess.run(
            list(command),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            env=self._environment,
        )
        return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of this user, as squeue has it.

    Parameters
    ----------
    left_s : of its walltime; None where it has no limit or none is known.
    node_names : an expression of Slurm's, such as n[1-4].
    """

    id: int
    state: str
    nodes: int
    left_s: float | None
    node_names: str
    partition: str
    reason: str
    name: str

    @property
    def has_ended(self) -> bool:
        """Whether it has; a state that this program doesn't know is taken for one in which it lives."""
        return self.state in ENDED

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_known_state(self) -> bool:
        return self.state in ENDED | WAITING | RUNNING


@dataclass(frozen=True, slots=True)
class Jobs:
    """All jobs of this user that Slurm knows, at a moment [s, monotonic]: the one before the question was asked."""

    asked_s: float
    by_id: Mapping[int, Job]


@dataclass(frozen=True, slots=True)
class Steps:
    """All steps of this user that run: (job, step); the moment is that of `Jobs`."""

    asked_s: float
    running: frozenset[tuple[int, str]]


class Slurm:
    """The batch system, for one user."""

    def __init__(self, clock: Clock, runner: Runner | None = None):
        self._clock = clock
        self._runner = runner or CommandRunner()

    def require(self) -> None:
        """NoSlurm where this machine has none."""
        self._run(["sbatch", "--version"], _QUERY_S)

    def jobs(self) -> Jobs:
        """One question about all jobs of this user, those included that ended a moment ago."""
        asked_s = self._clock.monotonic()
        command = ["squeue", f"--user={getpass.getuser()}", "--states=all", _format(_JOB_FIELDS)]
        rows = self._table(command, _JOB_HEADER)
        by_id = {}
        for row in rows:
            try:
                job = Job(int(row[0]), row[1], int(row[2]), parse_time(row[3]), row[4], row[5], row[6], row[7])
            except ValueError as error:
                raise _garbage("squeue", _SEPARATOR.join(row)) from error
            by_id[job.id] = job
        return Jobs(asked_s, by_id)

    def steps(self) -> Steps:
        """One question about all steps of this user that run."""
        asked_s = self._clock.monotonic()
        command = ["squeue", f"--user={getpass.getuser()}", "--steps", _format(_STEP_FIELDS)]
        running = set()
        for row in self._table(command, _STEP_HEADER):
            match = _STEP_ID.fullmatch(row[0])
            if match is None:
                raise _garbage("squeue", _SEPARATOR.join(row))
            running.add((int(match[1]), match[2]))
        return Steps(asked_s, frozenset(running))

    def submit(self, script: Path) -> int:
        """Submit a script; the job's number.

        Raises
        ------
        Rejected : Slurm refused it, and said why.
        NoAnswer : nobody knows whether it was submitted.
        """
        answer = self._run(["sbatch", "--parsable", str(script)], _SUBMIT_S)
        if answer.code != 0:
            message = _last_lines(answer.errors or answer.output)
            if _TRANSIENT.search(message):
                raise NoAnswer(f"sbatch did not get through ({message})", file=script, remedy="It is tried again")
            raise Rejected(
                f"Slurm rejected this allocation: {message}",
                file=script,
                remedy="Correct the lane in the fleet file, or ask the site what it allows",
            )
        # Some sites' sbatch prints a greeting first.
        for line in reversed(answer.output.strip().splitlines()):
            match = _JOB_ID.fullmatch(line.strip())
            if match is not None:
                return int(match[1])
        raise _garbage("sbatch", answer.output)

    def check(self, script: Path) -> str:
        """Ask Slurm whether it would take a script, without submitting it; what it says.

        Raises
        ------
        Rejected : it would not.
        """
        answer = self._run(["sbatch", "--test-only", str(script)], _SUBMIT_S)
        message = _last_lines(answer.errors or answer.output)
        if answer.code != 0:
            raise Rejected(f"Slurm would reject this: {message}", file=script, remedy="Correct the lane")
        return message

    def cancel(self, jobs: Iterable[int]) -> None:
        """Cancel exactly these jobs; those that have ended already are no error."""
        self._scancel([], [str(job) for job in jobs])

    def cancel_step(self, job: int, step: str) -> None:
        """Cancel exactly this step."""
        self._scancel([], [f"{job}.{step}"])

    def terminate_steps(self, steps: Iterable[tuple[int, str]]) -> None:
        """TERM to all processes of exactly these steps, and nothing after it; those that have ended are no error."""
        self._scancel(["--signal=TERM"], [f"{job}.{step}" for job, step in steps])

    def _scancel(self, options: list[str], names: list[str]) -> None:
        if not names:
            return
        answer = self._run(["scancel", *options, *names], _QUERY_S)
        message = _last_lines(answer.errors)
        if answer.code != 0 and not _UNKNOWN_JOB.search(message):
            raise NoAnswer(f"scancel {' '.join(names)} did not get through ({message})", remedy="It is tried again")

    def host_names(self, expression: str) -> list[str]:
        """The nodes in an expression such as n[1-4]; asks no server."""
        answer = self._run(["scontrol", "show", "hostnames", expression], _QUERY_S)
        names = answer.output.split()
        if answer.code != 0 or not names:
            raise _garbage("scontrol", answer.errors or answer.output)
        return names

    def _table(self, command: list[str], header: tuple[str, ...]) -> list[list[str]]:
        """Rows of squeue's answer, which must begin with the header that belongs to the question."""
        answer = self._run(command, _QUERY_S)
        if answer.code != 0:
            raise NoAnswer(
                f"squeue has no answer ({_last_lines(answer.errors or answer.output)})", remedy="It is asked again"
            )
        first, _, rest = answer.output.partition("\n")
        if tuple(first.strip().split(_SEPARATOR)) != header:
            raise _garbage("squeue", answer.output)
        rows = [line.split(_SEPARATOR, len(header) - 1) for line in rest.splitlines() if line.strip()]
        for row in rows:
            if len(row) != len(header):
                raise _garbage("squeue", _SEPARATOR.join(row))
        return rows

    def _run(self, command: Sequence[str], timeout_s: float) -> Answer:
        try:
            return self._runner(command, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(
                f"{command[0]} said nothing for {timeout_s:.0f} s", remedy="It is asked again after a while"
            ) from error
        except (FileNotFoundError, PermissionError) as error:
            raise NoSlurm(
                f"there is no Slurm on this machine: {command[0]} was not found",
                remedy="Start this on a login node of the cluster, or use profiles/default here",
            ) from error
        except OSError as error:
            raise NoAnswer(f"{command[0]} could not be started ({error})", remedy="It is tried again") from error


def parse_time(text: str) -> float | None:
    """Seconds in Slurm's notation, [days-][[hours:]minutes:]seconds; None for "UNLIMITED" and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text)
    if match is None:
        if re.fullmatch(r"[A-Z_/]+", text):
            return None
        raise ValueError(f"{text!r} is no time of Slurm's")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _format(fields: tuple[str, ...]) -> str:
    return f"--format={_SEPARATOR.join(fields)}"


def _garbage(program: str, text: str) -> NoAnswer:
    return NoAnswer(
        f"{program} gave an answer that can't be understood ({text.strip()[:200]!r})", remedy="It is asked again"
    )


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or "it said nothing"
