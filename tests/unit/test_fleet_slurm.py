"""What Slurm answers, and what it doesn't: by commands of our own, for what a real one won't show on demand."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from spool_doubles import HandClock

from fleetcraft.fleet.budget import read_balance
from fleetcraft.fleet.errors import NoAnswer, NoSlurm, Rejected
from fleetcraft.fleet.login import check_login_node, check_shared, count_processes
from fleetcraft.fleet.oracle import SlurmOracle
from fleetcraft.fleet.records import Records
from fleetcraft.fleet.settings import Budget, Site
from fleetcraft.fleet.slurm import Answer, CommandRunner, Jobs, Slurm, Steps, parse_time
from fleetcraft.ground.errors import BadEnvironment, BadInput
from fleetcraft.spool import CRASHED, Lease, Liveness, Spool, Verdict

HEADER = "JOBID|STATE|NODES|TIME_LEFT|NODELIST|PARTITION|REASON|NAME\n"
GREETING = "Welcome to this system\n--> Verifying account...OK\n"


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """Slurm, as far as the scripts that a test writes with `command` know it."""
    return Slurm(HandClock(), CommandRunner({"PATH": f"{tmp_path}:/usr/bin:/bin"}))


def command(directory: Path, name: str, script: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def squeue(directory: Path, rows: str) -> None:
    (directory / "rows").write_text(HEADER + rows)
    command(directory, "squeue", f"cat {directory}/rows")


def test_jobs_are_read_with_states_nodes_and_time(slurm: Slurm, tmp_path: Path) -> None:
    squeue(tmp_path, "7|RUNNING|4|1-02:03:04|c[1-4]|gh|None|a|b\n8|PENDING|2|12:00:00||gh|Priority|x\n")
    jobs = slurm.jobs().by_id
    assert jobs[7].left_s == 86400 + 2 * 3600 + 3 * 60 + 4
    assert jobs[7].name == "a|b"
    assert jobs[8].is_waiting
    assert not jobs[8].has_ended


def test_a_state_that_nobody_knows_is_not_an_end(slurm: Slurm, tmp_path: Path) -> None:
    squeue(tmp_path, "7|HIBERNATING|4|1:00|c[1-4]|gh|None|a\n9|PREEMPTED|1|0:00||gh|None|b\n")
    jobs = slurm.jobs().by_id
    assert not jobs[7].has_ended
    assert not jobs[7].is_known_state
    assert jobs[9].has_ended


@pytest.mark.parametrize(
    "script",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
        "exit 0",
        "echo '<html>502 Bad Gateway</html>'",
        f"printf '{HEADER}7|RUNNING'",
        f"printf '{HEADER}seven|RUNNING|4|1:00|c1|gh|None|a\\n'",
        f"printf '{HEADER}7|RUNNING|4|soon|c1|gh|None|a\\n'",
        f"printf '{HEADER}7|RUNNING|many|1:00|c1|gh|None|a\\n'",
    ],
)
def test_what_is_no_proper_answer_is_no_answer(slurm: Slurm, tmp_path: Path, script: str) -> None:
    command(tmp_path, "squeue", script)
    with pytest.raises(NoAnswer):
        slurm.jobs()


def test_silence_is_no_answer() -> None:
    def silent(command: Sequence[str], timeout_s: float) -> Answer:
        raise subprocess.TimeoutExpired(list(command), timeout_s)

    with pytest.raises(NoAnswer, match="said nothing for"):
        Slurm(HandClock(), silent).jobs()


def test_steps_are_read_and_damaged_ones_are_no_answer(slurm: Slurm, tmp_path: Path) -> None:
    command(tmp_path, "squeue", r"printf 'STEPID|NODELIST\n7.0|c1\n7.batch|c1\n'")
    assert slurm.steps().running == {(7, "0"), (7, "batch")}
    command(tmp_path, "squeue", r"printf 'STEPID|NODELIST\nseven|c1\n'")
    with pytest.raises(NoAnswer):
        slurm.steps()


@pytest.mark.parametrize(
    ("output", "number"), [("123\n", 123), ("123;cluster\n", 123), (GREETING + "Submitted batch job 45\n", 45)]
)
def test_the_number_of_a_job_is_found_whatever_a_site_prints_before_it(
    slurm: Slurm, tmp_path: Path, output: str, number: int
) -> None:
    (tmp_path / "said").write_text(output)
    command(tmp_path, "sbatch", f"cat {tmp_path}/said")
    assert slurm.submit(tmp_path / "x.sh") == number


def test_a_rejection_is_told_from_a_request_that_did_not_get_through(slurm: Slurm, tmp_path: Path) -> None:
    command(tmp_path, "sbatch", "echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1")
    with pytest.raises(Rejected, match="invalid partition specified: nope"):
        slurm.submit(tmp_path / "x.sh")
    command(tmp_path, "sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1")
    with pytest.raises(NoAnswer):
        slurm.submit(tmp_path / "x.sh")
    command(tmp_path, "sbatch", "echo ok")
    with pytest.raises(NoAnswer):
        slurm.submit(tmp_path / "x.sh")


def test_cancelling_what_has_ended_is_no_error(slurm: Slurm, tmp_path: Path) -> None:
    command(
        tmp_path, "scancel", "echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1"
    )
    slurm.cancel([7])
    slurm.cancel_step(7, "1")
    command(tmp_path, "scancel", "echo 'scancel: error: Socket timed out' >&2; exit 1")
    with pytest.raises(NoAnswer):
        slurm.cancel([7])


def test_a_machine_without_slurm_is_recognized(tmp_path: Path) -> None:
    with pytest.raises(NoSlurm, match="sbatch was not found"):
        Slurm(HandClock(), CommandRunner({"PATH": str(tmp_path)})).require()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("1:05", 65), ("2:00:00", 7200), ("3-00:00:00", 259200), ("UNLIMITED", None), ("NOT_SET", None)],
)
def test_times_of_slurm_are_understood(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds


# Who is gone
def lease(**identity: object) -> Lease:
    return Lease(
        "w", 5, "n2", "boot", identity={"fleet": "slurm", "allocation": "tok", "job": 7, "step": "1"} | identity
    )


@pytest.fixture
def oracle(tmp_path: Path, slurm: Slurm) -> SlurmOracle:
    clock = HandClock()
    spool = Spool.create(tmp_path / "spool", "test", clock=clock)
    command(tmp_path, "scontrol", r"printf 'n1\nn2\n'")
    return SlurmOracle(slurm, Records(spool), clock, lambda worker, lease: Liveness(Verdict.ALIVE))


def answer(oracle: SlurmOracle, tmp_path: Path, rows: str, steps: str | None = None) -> None:
    """Slurm is asked a moment later."""
    oracle.clock.sleep(1)
    squeue(tmp_path, rows)
    jobs = oracle.slurm.jobs()
    oracle.jobs = Jobs(oracle.clock.monotonic(), jobs.by_id)
    if steps is not None:
        running = frozenset((int(job), step) for job, step in (text.split(".") for text in steps.split()))
        oracle.steps = Steps(oracle.clock.monotonic(), running)


RUNS = "7|RUNNING|2|1:00|n[1-2]|gh|None|a\n"


def test_nobody_is_gone_before_slurm_was_asked_after_the_question(oracle: SlurmOracle, tmp_path: Path) -> None:
    answer(oracle, tmp_path, "")
    oracle.clock.sleep(1)
    assert oracle("w", lease()).verdict is Verdict.UNKNOWN
    answer(oracle, tmp_path, "")
    assert oracle("w", lease()).verdict is Verdict.GONE


def test_a_step_that_is_listed_is_alive_and_one_that_is_not_is_gone(oracle: SlurmOracle, tmp_path: Path) -> None:
    oracle("w", lease())
    answer(oracle, tmp_path, RUNS)
    assert oracle("w", lease()).verdict is Verdict.UNKNOWN
    assert oracle.wants
    answer(oracle, tmp_path, RUNS, "7.0 7.1 7.batch")
    assert oracle("w", lease()).verdict is Verdict.ALIVE
    assert not oracle.wants
    oracle("w", lease())
    answer(oracle, tmp_path, RUNS, "7.0 7.batch")
    assert oracle("w", lease()) == Liveness(Verdict.GONE, CRASHED)


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("TIMEOUT", "walltime"),
        ("PREEMPTED", "preempted"),
        ("NODE_FAIL", "node lost"),
        ("CANCELLED", "allocation cancelled"),
        ("FAILED", CRASHED),
        ("OUT_OF_MEMORY", CRASHED),
    ],
)
def test_the_state_of_a_job_says_why_its_workers_are_gone(
    oracle: SlurmOracle, tmp_path: Path, state: str, cause: str
) -> None:
    oracle("w", lease())
    answer(oracle, tmp_path, f"7|{state}|2|0:00|n[1-2]|gh|None|a\n")
    assert oracle("w", lease()) == Liveness(Verdict.GONE, cause)


def test_a_node_that_was_taken_from_the_job_is_lost_even_if_its_step_is_still_listed(
    oracle: SlurmOracle, tmp_path: Path
) -> None:
    command(tmp_path, "scontrol", r"printf 'n1\n'")
    oracle("w", lease())
    answer(oracle, tmp_path, "7|RUNNING|1|1:00|n1|gh|None|a\n", "7.0 7.1")
    assert oracle("w", lease()) == Liveness(Verdict.GONE, "node lost")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("slurmstepd: error: *** STEP 7.1 ON n2 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "walltime"),
        ("slurmstepd: error: *** STEP 7.1 ON n2 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***", "preempted"),
        ("slurmstepd-n2: error: *** STEP 7.1 ON n2 CANCELLED AT 2026-01-01T00:00:00 ***", "step cancelled"),
        ("srun: error: Node failure on n2", "node lost"),
        ("slurmstepd: error: *** STEP 7.11 ON n2 CANCELLED AT 2026-01-01T00:00:00 ***", CRASHED),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.1", CRASHED),
    ],
)
def test_the_log_of_a_step_says_why_it_ended(oracle: SlurmOracle, tmp_path: Path, log: str, cause: str) -> None:
    directory = tmp_path / "spool/fleet/tok"
    directory.mkdir(parents=True)
    (directory / "n2.log").write_text(f"something else\n{log}\n")
    oracle("w", lease())
    answer(oracle, tmp_path, RUNS, "7.0")
    assert oracle("w", lease()) == Liveness(Verdict.GONE, cause)


def test_workers_of_others_are_left_to_others(oracle: SlurmOracle) -> None:
    assert oracle("w", Lease("w", 1, "h", "b", identity={"fleet": "local"})).verdict is Verdict.ALIVE
    assert oracle("w", lease(job="x")).verdict is Verdict.UNKNOWN


# The budget, and login nodes
@pytest.mark.parametrize(("printed", "value"), [("12.5", 12.5), ("1,234", 1234.0), ("-3", -3.0), ("  7\n", 7.0)])
def test_a_balance_is_one_number(printed: str, value: float) -> None:
    assert read_balance(Budget(command=f"printf '%s' '{printed}'", headroom=0)) == value


@pytest.mark.parametrize("printed", ["", "none", "12 SU", "1 2", "nan", "1.2.3"])
def test_anything_else_is_refused(printed: str) -> None:
    with pytest.raises(BadInput, match="must print one number"):
        read_balance(Budget(command=f"printf '%s' '{printed}'", headroom=0))


def test_a_command_for_the_balance_that_fails_is_no_answer() -> None:
    with pytest.raises(NoAnswer, match="exit code 3"):
        read_balance(Budget(command="echo oops >&2; exit 3", headroom=0))


def test_nothing_is_started_on_a_login_node_with_too_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    site = Site(nodes=1)
    check_login_node(site, 39)
    with pytest.raises(BadEnvironment, match="you have 40 processes"):
        check_login_node(site, 40)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    check_login_node(site, 40)


def test_processes_are_counted_by_their_owner(tmp_path: Path) -> None:
    for name in ("1", "22", "self", "sys"):
        (tmp_path / name).mkdir()
    owner = (tmp_path / "1").stat().st_uid
    assert count_processes(owner, tmp_path) == 2
    assert count_processes(owner + 1, tmp_path) == 0
    assert count_processes() >= 1


def test_a_spool_must_lie_where_all_nodes_see_it(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    line = "36 35 98:0 / {mount} rw - {kind} source rw\n"
    mounts.write_text(line.format(mount="/", kind="ext4") + line.format(mount=tmp_path / "nfs", kind="nfs4"))
    check_shared(tmp_path / "nfs/spool", [], mounts)
    check_shared(tmp_path / "disk/spool", [str(tmp_path / "disk")], mounts)
    with pytest.raises(BadInput, match="of this machine alone \\(ext4 at /\\)"):
        check_shared(tmp_path / "disk/spool", [], mounts)
