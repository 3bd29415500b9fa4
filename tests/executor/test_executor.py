"""The executor `spool`: what becomes of jobs when they fail, are too large, or lose their controller or worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_checker import check_exclusive, intervals
from memory_cgroup import ALLOCATE, memory_cgroup, within
from snakemake_runs import Workflow, wait_until

from fleetcraft.ground.machine import process_start
from fleetcraft.spool import State, Writer, cancel
from snakemake_executor_plugin_spool.session import Session


@pytest.fixture
def workflow(tmp_path: Path) -> Iterator[Workflow]:
    with Workflow(tmp_path).ended_afterwards() as workflow:
        yield workflow


WAITING = """
    rule all:
        input: "late.txt"
    rule late:
        output: "late.txt"
        log: "late.log"
        params: said=1
        shell:
            "echo $$ >> started; echo {params_} >> said;"
            " while [ ! -e go ]; do sleep 0.05; done; echo done > {output}"
    """


def waiting(said: str = "first") -> str:
    """A workflow with one job that notes that it started and goes on when `go` is there."""
    return WAITING.replace("{params_}", said)


FAILING = """
    rule all:
        input: "good.txt", "bad.txt", "full.txt"
    rule good:
        output: "good.txt"
        shell: "touch {output}"
    rule bad:
        output: "bad.txt"
        log: "bad.log"
        script: "scripts/bad.py"
    rule full:
        output: "full.txt"
        log: "full.log"
        script: "scripts/full.py"
    """

STAGE = """
    import os
    from pathlib import Path
    from fleetcraft.ground.errors import BadInput
    from fleetcraft.stages.launch import explained, redirect_output

    with open("tries", "a") as file:
        file.write("{name}\\n")
    print("the last words", flush=True)
    redirect_output(Path(snakemake.log[0]))
    with explained():
        {act}
    """


def test_a_failing_job_is_explained_and_tried_exactly_as_often_as_it_is_worth(workflow: Workflow) -> None:
    """What another attempt can't change is tried once, whatever retries are allowed."""
    workflow.write("Snakefile", FAILING)
    act = "raise BadInput('there are no frames', file='x.mp4', remedy='Give some')"
    workflow.write("scripts/bad.py", STAGE.format(name="bad", act=act))
    workflow.write(
        "scripts/full.py", STAGE.format(name="full", act="os.write(os.open('/dev/full', os.O_WRONLY), b'x')")
    )
    run = workflow.run("--retries", "2", "--keep-going")
    assert run.returncode == 1
    assert sorted(workflow.lines("tries")) == ["bad", "full", "full", "full"]
    assert (workflow.directory / "good.txt").exists()
    said = "Failure class: bad input.\nWhat happened: x.mp4: there are no frames.\nWhat to do: Give some.\nIt ran on "
    assert said in run.stdout
    assert "The rule's log is bad.log." in run.stdout
    assert (workflow.directory / "bad.log").read_text().strip() == (
        "failed (bad input): x.mp4: there are no frames. Give some."
    )
    assert run.stdout.count("Failure class: disk full.\n") == 3
    assert "exit code 1" in run.stdout
    assert "    the last words" in run.stdout
    assert "Jobs that failed, by class: 1 bad input, 1 disk full." in run.stdout


def test_a_stage_that_is_killed_for_want_of_memory_is_explained(workflow: Workflow) -> None:
    """A real kill: of the process that a script has become, within a Snakemake that a worker has forked."""
    workflow.write(
        "Snakefile",
        """
        rule greedy:
            output: "greedy.txt"
            log: "greedy.log"
            script: "scripts/greedy.py"
        """,
    )
    workflow.write(
        "scripts/greedy.py",
        f"""
        import os
        os.execv("/bin/sh", ["/bin/sh", "-c", {"exec " + ALLOCATE!r}])
        """,
    )
    with memory_cgroup(900) as directory:
        run = workflow.run(preexec=within(directory))
        assert run.returncode == 1
        assert "exit code 1" in run.stdout, "the kill is deeper than what the worker sees"
        assert "Failure class: host memory." in run.stdout, run.stdout
        assert (
            f"it was killed by SIGKILL; the kernel killed 1 process(es) of the memory cgroup {directory}" in run.stdout
        )
        assert f"{directory} meanwhile" in run.stdout
        assert "limit 900 MB" in run.stdout


UNFIT = """
    rule all:
        input: "small.txt", "wide.txt", "gang.txt", "gpu.txt", "odd.txt"
    rule small:
        output: "small.txt"
        shell: "touch {output}"
    rule wide:
        input: "small.txt"
        output: "wide.txt"
        threads: 64
        shell: "touch {output}"
    rule gang:
        output: "gang.txt"
        resources: nodes=2
        shell: "touch {output}"
    rule gpu:
        output: "gpu.txt"
        resources: gpus=1
        shell: "touch {output}"
    rule odd:
        output: "odd.txt"
        resources: node_access="mine"
        shell: "touch {output}"
    """


def test_jobs_that_no_worker_could_run_are_named_before_anything_runs(workflow: Workflow) -> None:
    workflow.write("Snakefile", UNFIT)
    run = workflow.run("--keep-going", "--spool-worker-gpus", "0")
    assert run.returncode == 1
    assert "rule wide: it asks for threads=64, the node has 4" in run.stdout
    assert "rule gang: it is a gang of 2 nodes" in run.stdout
    assert "rule gpu: it asks for gpus=1, the node has 0" in run.stdout
    assert "rule odd" in run.stdout
    assert "Use shared or exclusive" in run.stdout
    assert workflow.states() == {}
    assert workflow.worker_processes() == []


def test_a_job_that_turns_out_to_fit_nowhere_is_refused_at_once_and_the_others_go_on(workflow: Workflow) -> None:
    workflow.write(
        "Snakefile",
        """
        rule all:
            input: "late.txt", "large.txt"
        rule small:
            output: "small.txt"
            shell: "echo 9000 > {output}"
        rule large:
            input: "small.txt"
            output: "large.txt"
            resources: mem_mb=lambda wildcards, input: int(open(input[0]).read())
            shell: "touch {output}"
        rule late:
            input: "small.txt"
            output: "late.txt"
            shell: "touch {output}"
        """,
    )
    run = workflow.run("--keep-going")
    assert run.returncode == 1
    assert "it asks for mem_mb=9000, the node has 4000" in run.stdout
    assert sorted(path.name for path in workflow.directory.glob("*.txt")) == ["late.txt", "small.txt"]
    assert set(workflow.states().values()) == {"done"}


def test_editing_the_checkout_during_a_run_reaches_no_job(workflow: Workflow) -> None:
    workflow.write("config.yaml", "word: old\n")
    workflow.write("rules/second.smk", 'TEXT = "old"\n')
    workflow.write(
        "scripts/write.py",
        """
        from pathlib import Path
        Path(snakemake.output[0]).write_text(f"old {snakemake.config['word']} {snakemake.params.text}")
        """,
    )
    workflow.write(
        "Snakefile",
        """
        configfile: "config.yaml"
        include: "rules/second.smk"
        rule all:
            input: "second.txt"
        rule first:
            output: "first.txt"
            shell: "sed -i s/old/new/ config.yaml rules/second.smk scripts/write.py Snakefile; touch {output}"
        rule second:
            input: "first.txt"
            output: "second.txt"
            params: text=TEXT + " old"
            script: "scripts/write.py"
        """,
    )
    run = workflow.run()
    assert run.returncode == 0, run.stdout
    assert workflow.lines("second.txt") == ["old old old old"]
    assert "new" in (workflow.directory / "Snakefile").read_text()


def test_a_campaign_that_lost_its_controller_goes_on_with_what_runs(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    killed = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    killed.kill()
    killed.wait()
    workflow.unlock()
    workers = workflow.worker_processes()
    again = workflow.start("--rerun-incomplete")
    wait_until(lambda: (workflow.directory / "controller.log").read_text().count("Execute 1 jobs") == 2)
    workflow.write("go", "")
    assert again.wait(300) == 0, (workflow.directory / "controller.log").read_text()
    assert len(workflow.lines("started")) == 1
    assert workflow.lines("late.txt") == ["done"]
    # The worker of the first controller served the second one, which also ended it.
    assert len(workers) == 1
    assert process_start(workers[0]) is None


def test_a_job_that_ended_while_there_was_no_controller_is_not_run_again(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    killed = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    killed.kill()
    killed.wait()
    workflow.write("go", "")
    wait_until(lambda: any(result.state is State.DONE for result in workflow.results().values()))
    workflow.unlock()
    run = workflow.run("--rerun-incomplete")
    assert run.returncode == 0, run.stdout
    assert len(workflow.lines("started")) == 1
    # What it was run with is on record, as if its controller had lived: a change is found.
    workflow.write("Snakefile", waiting().replace("params: said=1", "params: said=2"))
    assert workflow.run("--rerun-triggers", "params").returncode == 0
    assert len(workflow.lines("started")) == 2
    # Asked for again, it does run again.
    (workflow.directory / "late.txt").unlink()
    assert workflow.run().returncode == 0
    assert len(workflow.lines("started")) == 3


def test_what_runs_from_other_sources_is_ended_and_started_anew(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting("first"))
    killed = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    killed.kill()
    killed.wait()
    workflow.unlock()
    workflow.write("Snakefile", waiting("second"))
    again = workflow.start("--rerun-incomplete")
    wait_until(lambda: len(workflow.lines("started")) == 2)
    first = int(workflow.lines("started")[0])
    assert process_start(first) is None
    workflow.write("go", "")
    assert again.wait(300) == 0
    assert workflow.lines("said") == ["first", "second"]


def test_what_is_not_to_run_any_more_is_cancelled(workflow: Workflow) -> None:
    workflow.write(
        "Snakefile",
        waiting().rstrip(" ") + '    rule other:\n        output: "other.txt"\n        shell: "touch {output}"\n',
    )
    killed = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    killed.kill()
    killed.wait()
    workflow.unlock()
    assert workflow.run("other.txt").returncode == 0
    assert process_start(int(workflow.lines("started")[0])) is None
    assert sorted(workflow.states().values()) == ["done", "failed"]


def test_an_interrupted_controller_ends_what_runs_and_leaves_nothing_waiting(workflow: Workflow) -> None:
    workflow.write(
        "Snakefile",
        """
        rule all:
            input: expand("{i}.txt", i=range(8))
        rule late:
            output: "{i}.txt"
            threads: 2
            shell: "echo $$ >> started; sleep 600; touch {output}"
        """,
    )
    controller = workflow.start()
    wait_until(lambda: len(workflow.lines("started")) == 2)
    workers = workflow.worker_processes()
    controller.send_signal(signal.SIGINT)
    assert controller.wait(300) == 1
    assert set(workflow.states().values()) == {"failed"}
    for process in (*workers, *map(int, workflow.lines("started"))):
        assert process_start(process) is None


def test_a_job_that_an_operator_cancels_is_told_of_as_cancelled(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    controller = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    with Writer(workflow.spool(), "operator") as writer:
        cancel(writer, list(workflow.states()))
    assert controller.wait(300) == 1
    log = (workflow.directory / "controller.log").read_text()
    assert "Jobs that failed, by class: 1 cancelled." in log


MANY = """
    rule all:
        input: expand("{i}.txt", i=range(8)), "bad.txt"
    rule late:
        output: "{i}.txt"
        threads: 2
        shell: "echo $$ >> started; while [ ! -e go ]; do sleep 0.05; done; touch {output}"
    rule bad:
        output: "bad.txt"
        threads: 2
        shell: "while [ ! -e fail ]; do sleep 0.05; done; exit 1"
    """


def test_a_terminated_controller_finishes_what_runs_and_starts_nothing_more(workflow: Workflow) -> None:
    workflow.write("Snakefile", MANY.replace(', "bad.txt"', ""))
    controller = workflow.start("--retries", "2")
    wait_until(lambda: len(workflow.lines("started")) == 2)
    controller.send_signal(signal.SIGTERM)
    log = workflow.directory / "controller.log"
    wait_until(lambda: "6 jobs that only waited are withdrawn; 2 that run are waited for" in log.read_text())
    workflow.write("go", "")
    assert controller.wait(300) != 0
    assert len(list(workflow.directory.glob("[0-9].txt"))) == 2
    assert "Error in rule" not in log.read_text()
    assert "Trying to restart" not in log.read_text()
    assert workflow.run().returncode == 0
    assert len(workflow.lines("started")) == 8


def test_without_keep_going_a_failure_lets_what_runs_finish_and_nothing_more_start(workflow: Workflow) -> None:
    workflow.write("Snakefile", MANY)
    controller = workflow.start("--prioritize", "bad.txt")
    wait_until(lambda: len(workflow.lines("started")) == 1)
    workflow.write("fail", "")
    log = workflow.directory / "controller.log"
    wait_until(lambda: "jobs that only waited are withdrawn" in log.read_text())
    workflow.write("go", "")
    assert controller.wait(300) == 1
    # One ran beside it, and another may have taken its place before it was known.
    assert len(list(workflow.directory.glob("[0-9].txt"))) == len(workflow.lines("started")) <= 2
    assert "Error in rule late" not in log.read_text()


def test_timed_jobs_are_alone_and_each_job_knows_its_place_and_its_stream(workflow: Workflow, tmp_path: Path) -> None:
    workflow.write(
        "Snakefile",
        """
        rule all:
            input: expand("generated-{i}.txt", i=range(8)), expand("timed-{i}.txt", i=range(3)),
                   expand("scored-{i}.txt", i=range(8))
        rule generate:
            output: "generated-{i}.txt"
            resources: gpus=1
            shell:
                "echo $FLEETCRAFT_SLOT $CUDA_VISIBLE_DEVICES $FLEETCRAFT_DEVICE $FLEETCRAFT_STREAM > {output};"
                " sleep 0.3"
        rule timed:
            input: "generated-{i}.txt"
            output: "timed-{i}.txt"
            resources: gpus=1, node_access="exclusive"
            shell: "cp $FLEETCRAFT_NODE_FILE {output}; sleep 0.2"
        rule score:
            input: "generated-{i}.txt"
            output: "scored-{i}.txt"
            shell: "sleep 0.3; touch {output}"
        """,
    )
    fleet = ("--spool-workers", "2", "--spool-worker-gpus", "2", "--spool-worker-cores", "4")
    run = workflow.run(*fleet)
    assert run.returncode == 0, run.stdout

    proof = check_exclusive(workflow.spool_directory)
    assert proof.violations == []
    assert (proof.exclusive, proof.shared) == (3, 16)
    assert proof.overlapping_shared > 0
    for i in range(3):
        observed = json.loads((workflow.directory / f"timed-{i}.txt").read_text())["observed"]
        assert observed["neighbours_at_start"] == []

    runs = [run for run in intervals(workflow.spool_directory) if run.task.startswith("generate")]
    for one in runs:
        assert not [other for other in runs if other is not one and other.slot == one.slot and other.overlaps(one)]
    assert len({one.slot for one in runs}) > 1
    places = [workflow.lines(f"generated-{i}.txt")[0].split() for i in range(8)]
    for slot, visible, device, _ in places:
        assert slot.endswith(f"/{visible}"), "it sees its own device and no other"
        assert device == "cuda:0", "which is its first"
    assert len({stream for *_, stream in places}) == 8

    elsewhere = Workflow(tmp_path / "elsewhere")
    elsewhere.write("Snakefile", (workflow.directory / "Snakefile").read_text())
    with elsewhere.ended_afterwards():
        assert elsewhere.run("generated-5.txt", "--spool-worker-gpus", "1").returncode == 0
    assert elsewhere.lines("generated-5.txt")[0].split()[3] == places[5][3], "the stream is the same wherever it runs"


def test_a_killed_worker_costs_no_retry(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    controller = workflow.start()
    wait_until(lambda: workflow.lines("started") != [])
    [worker] = workflow.worker_processes()
    os.kill(worker, signal.SIGKILL)
    workflow.write("go", "")
    assert controller.wait(300) == 0, (workflow.directory / "controller.log").read_text()
    [result] = workflow.results().values()
    assert result.record is not None
    assert [attempt.outcome.value for attempt in result.record.attempts] == ["lost", "succeeded"]


def test_a_second_controller_is_refused(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    workflow.write("go", "")
    assert workflow.run().returncode == 0
    (workflow.directory / "late.txt").unlink()
    session = Session(workflow.spool())
    try:
        run = workflow.run()
    finally:
        session.close()
    assert run.returncode == 1
    assert f"process {os.getpid()} on " in run.stdout
    assert "controls this spool" in run.stdout
    assert not (workflow.directory / "late.txt").exists()
    assert workflow.run().returncode == 0


def test_a_fleet_of_none_waits_for_workers_that_somebody_else_starts(workflow: Workflow) -> None:
    workflow.write("Snakefile", waiting())
    workflow.write("go", "")
    controller = workflow.start("--spool-fleet", "none")
    wait_until(
        lambda: (workflow.spool_directory / "spool.json").exists() and list(workflow.states().values()) == ["pending"]
    )
    worker = workflow.start_worker("--capacity", "threads=2,mem_mb=2000", "--idle-timeout", "1")
    assert controller.wait(300) == 0
    assert worker.wait(300) == 0
    assert workflow.lines("late.txt") == ["done"]
