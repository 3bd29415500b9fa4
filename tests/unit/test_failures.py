"""A stage that fails says of which class its failure is, and what to do, in its log and to whoever started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetcraft.ground.failures import FAILURE_FILE, Failure, class_of_words

PRELUDE = """
import errno, mmap, os, resource
from pathlib import Path
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.files import write_text
from fleetcraft.stages.job import Job
from fleetcraft.stages.launch import explained

def little_memory():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))

def wrapped():
    try:
        little_memory()
        bytearray(1 << 30)
    except MemoryError:
        raise RuntimeError("loading failed")

with explained():
"""


@dataclass
class Ended:
    """A process that ended, and what it left."""

    status: int
    log: str
    left: Failure | None


def run(code: str, directory: Path, environment: dict[str, str] | None = None) -> Ended:
    """Run some lines as a stage would be run."""
    path = directory / "failure"
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    variables = {**os.environ, FAILURE_FILE: str(path), **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + indented], env=variables, capture_output=True, text=True, check=False
    )
    return Ended(done.returncode, done.stdout + done.stderr, Failure.read(path))


@pytest.mark.parametrize(
    ("code", "failure_class", "problem", "remedy"),
    [
        ("raise BadInput('no frames', file='x.mp4', remedy='Give some')", "bad input", "x.mp4: no frames", "Give some"),
        ("little_memory(); bytearray(1 << 30)", "host memory", "MemoryError", "mem_mb"),
        ("little_memory(); mmap.mmap(-1, 1 << 30)", "host memory", "Cannot allocate memory", "mem_mb"),
        ("wrapped()", "host memory", "MemoryError", "mem_mb"),
        ("open('/dev/full', 'w', buffering=1).write('x\\n')", "disk full", "No space left on device", "Free space"),
        ("raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))", "disk full", "quota", "Free space"),
        ("import no_such_package", "wrong environment", "no_such_package", "make envs"),
    ],
)
def test_what_is_known_is_explained_without_a_traceback(
    code: str, failure_class: str, problem: str, remedy: str, tmp_path: Path
) -> None:
    ended = run(code, tmp_path)
    assert ended.status == 1
    assert "Traceback" not in ended.log
    assert ended.left is not None
    assert ended.left.failure_class == failure_class
    assert problem in ended.left.problem
    assert remedy in ended.left.remedy
    assert ended.log.strip() == f"failed ({failure_class}): {ended.left}", "the log and the result say the same"


def test_a_bug_keeps_its_traceback_and_tells_its_last_line_and_where_in_the_library_it_was(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"packages": [], "samples": []}')
    ended = run(f"Job.read(Path({str(tmp_path / 'job.json')!r}))", tmp_path)
    assert ended.status == 1
    assert "Traceback (most recent call last)" in ended.log
    assert ended.left is not None
    assert ended.left.failure_class == "bug"
    assert ended.left.problem.startswith("TypeError: Job.__init__() missing")
    assert "(fleetcraft/stages/job.py, line " in ended.left.problem


def test_a_module_of_this_library_that_is_missing_is_a_bug(tmp_path: Path) -> None:
    ended = run("import fleetcraft.stages.nothing", tmp_path)
    assert ended.left is not None
    assert ended.left.failure_class == "bug"


def test_a_stage_that_nobody_asks_for_its_failure_fails_alike(tmp_path: Path) -> None:
    ended = run("raise BadInput('no frames', remedy='Give some')", tmp_path, {FAILURE_FILE: ""})
    assert (ended.status, ended.left) == (1, None)
    assert ended.log.strip() == "failed (bad input): no frames. Give some."


def test_a_failure_that_cant_be_left_is_told_in_the_log_all_the_same(tmp_path: Path) -> None:
    ended = run("raise BadInput('no frames', remedy='Give some')", tmp_path, {FAILURE_FILE: "/no/such/place"})
    assert ended.status == 1
    assert "failed (bad input): no frames. Give some." in ended.log
    assert "this could not be told to who started the job" in ended.log


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"class": "bug"}', '{"class": 1, "problem": 2, "remedy": 3}'])
def test_what_was_left_in_half_or_by_strangers_is_no_evidence(content: str, tmp_path: Path) -> None:
    (tmp_path / "failure").write_text(content)
    assert Failure.read(tmp_path / "failure") is None


def test_what_was_left_is_read_with_bounds(tmp_path: Path) -> None:
    (tmp_path / "failure").write_text(json.dumps({"class": "bug", "problem": "x" * 100_000, "remedy": "y"}))
    failure = Failure.read(tmp_path / "failure")
    assert failure is not None
    assert len(failure.problem) == 2000


@pytest.mark.parametrize(
    ("words", "failure_class"),
    [
        # As CUDA's libraries say it through torch; no such device is needed to read it.
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 94.50 GiB", "device memory"),
        ("CUDA error: out of memory", "device memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "device memory"),
        ("torch.OutOfMemoryError: Allocation on device", "device memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.1. Some of the step tasks", "host memory"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.1 cgroup.", "host memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host memory"),
        ("cp: error writing 'x': Disk quota exceeded", "disk full"),
        ("No space left on device\nMemoryError", "host memory"),
        ("it ran out of ideas", None),
    ],
)
def test_the_words_of_an_error_tell_its_class(words: str, failure_class: str | None) -> None:
    assert class_of_words(words) == failure_class
