"""What a worker believes of its node, what fits on it, and what it says when something doesn't."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from worker_harness import inventory

from fleetcraft.ground.cgroup import memory_mb
from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.machine import boot_id, host_name, own_start
from fleetcraft.ground.processes import processes_with
from fleetcraft.spool import CRASHED, Claim, Lease, Request, TaskName, TaskRecord, TaskSpec, Verdict
from fleetcraft.worker.context import task_environment
from fleetcraft.worker.eligibility import nobody_can, why_not
from fleetcraft.worker.health import NodeHealth
from fleetcraft.worker.inventory import Gpu, allowed_gpus, detect, parse_gpus, parse_override
from fleetcraft.worker.liveness import LocalOracle
from fleetcraft.worker.node_lock import NodeLock
from fleetcraft.worker.packing import Books

MEMORY = "MemTotal:       16000000 kB\nMemFree: 1 kB\n"


def machine(root: Path, cgroup: str, limits: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMORY)
    (root / "proc/self/cgroup").write_text(cgroup)
    for path, content in limits.items():
        (root / "sys/fs/cgroup" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / path).write_text(content)
    return root


@pytest.mark.parametrize(
    ("cgroup", "limits", "expected_mb"),
    [
        ("0::/\n", {"memory.max": "max\n"}, 15625),
        ("0::/slurm/job_7/step_0\n", {"slurm/job_7/memory.max": f"{4000 << 20}\n"}, 4000),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": f"{2000 << 20}\n", "memory.max": f"{9000 << 20}"},
            2000,
        ),
        ("4:cpu:/x\n7:memory:/slurm/job\n", {"memory/slurm/job/memory.limit_in_bytes": f"{3000 << 20}"}, 3000),
        ("7:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 15625),
        ("7:memory:/hosts/path/not/here\n", {"memory/memory.limit_in_bytes": f"{1000 << 20}"}, 1000),
    ],
)
def test_memory_is_what_the_cgroups_allow(
    tmp_path: Path, cgroup: str, limits: dict[str, str], expected_mb: int
) -> None:
    assert memory_mb(machine(tmp_path, cgroup, limits)) == expected_mb


def test_devices_are_known_by_uuid_and_only_allowed_ones_are_used() -> None:
    gpus = parse_gpus(
        "0, GPU-aaa, 81559, NVIDIA A100\n1, GPU-bbb, 81559, NVIDIA A100\n2, GPU-ccc, [N/A], GH200, 120GB\n"
    )
    assert [gpu.uuid for gpu in gpus] == ["GPU-aaa", "GPU-bbb", "GPU-ccc"]
    assert gpus[2] == Gpu(2, "GPU-ccc", 0, "GH200, 120GB")
    assert allowed_gpus(gpus, None) == gpus
    assert [gpu.index for gpu in allowed_gpus(gpus, "2,0")] == [2, 0]
    assert [gpu.index for gpu in allowed_gpus(gpus, "GPU-bb")] == [1]
    assert allowed_gpus(gpus, "") == []
    assert [gpu.index for gpu in allowed_gpus(gpus, "1,9,0")] == [1], "CUDA stops at what it doesn't know"


def test_what_is_declared_is_believed() -> None:
    node = detect(parse_override("threads=7,mem_mb=5000,gpus=2,gpu_mem_mb=40000"))
    assert (node.threads, node.mem_mb, [gpu.mem_mb for gpu in node.gpus]) == (7, 5000, [40000, 40000])
    assert len({gpu.uuid for gpu in node.gpus}) == 2
    assert detect().threads == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["threads", "threads=x", "cores=4", "threads=-1"])
def test_a_capacity_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="each part optional"):
        parse_override(text)


def test_devices_are_whole_unless_a_share_was_asked_for() -> None:
    books = Books(inventory(threads=16, gpus=2, gpu_mem_mb=40_000))
    share, whole = Request(gpu_mem_mb=15_000), Request(gpus=1)
    assert books.book("s1", share).gpus == books.book("s2", share).gpus, "shares are put together"
    assert books.book("w1", whole).gpus != books._shares["s1"].gpus
    assert not books.fits(whole), "a device with shares on it isn't given whole"
    assert not books.fits(share), "10,000 MB are left on one, the other is taken"
    books.release("s1")
    assert books.fits(share)
    books.release("w1")
    assert not books.fits(Request(gpus=1, gpu_mem_mb=50_000))


def test_nothing_fits_beside_an_exclusive_task() -> None:
    books = Books(inventory())
    books.book("a", Request())
    assert books.fits(Request(access="exclusive", threads=4)), "it is claimed, and waits for its neighbours"
    books.book("b", Request(access="exclusive", threads=4))
    assert not books.fits(Request())
    assert not books.fits(Request(access="exclusive"))
    books.release("a")
    books.release("b")
    assert books.fits(Request())


@pytest.mark.parametrize(
    ("change", "request_", "expected"),
    [
        ({}, Request(threads=9), "asks for threads=9, the node has 4"),
        ({}, Request(nodes=2, access="exclusive"), "gang of 2 nodes"),
        ({}, Request(lane="ls6"), "lane 'ls6'"),
        ({}, Request(gpus=1), "asks for gpus=1, the node has 0"),
        ({"state": "draining", "reason": "hot"}, Request(), "draining: hot"),
        ({"walltime_left_s": 100}, Request(runtime_s=200), "100 s left"),
        ({"running": ({"id": "timed", "waits": True},)}, Request(), "timed is to run there alone"),
        ({"free": {"threads": 1, "mem_mb": 10}}, Request(threads=2), "busy: threads=1 free, 2 asked for"),
        ({}, Request(), "it has room"),
    ],
)
def test_it_is_said_why_a_worker_does_not_take_a_task(
    change: dict[str, object], request_: Request, expected: str
) -> None:
    capacity = {"threads": 4, "mem_mb": 4000, "gpus": 0, "gpu_mem_mb": 0, "lane": None}
    lease = replace(Lease("w", 1, "n1", "b", capacity=capacity, free=capacity), **change)  # type: ignore[arg-type]
    assert expected in why_not(lease, request_)


def test_a_request_that_no_worker_can_ever_serve_is_known_at_once() -> None:
    small = Lease("a", 1, "n1", "b", capacity={"threads": 4, "mem_mb": 1000})
    large = Lease("b", 1, "n2", "b", capacity={"threads": 64, "mem_mb": 1000})
    assert nobody_can({"a": small, "b": large}, Request(threads=32)) is None
    assert "threads=100" in str(nobody_can({"a": small, "b": large}, Request(threads=100)))
    assert nobody_can({}, Request()) is None


def test_different_tasks_in_a_row_are_held_against_the_node_and_one_task_is_not() -> None:
    health = NodeHealth(3)
    assert [health.failed("same", "exit 1") for _ in range(9)] == [None] * 9
    health.failed("second", "exit 1")
    health.succeeded()
    assert health.failed("third", "exit 1") is None
    assert health.failed("fourth", "exit 1") is None
    assert "3 different tasks" in str(health.failed("fifth", "exit 1"))


def test_a_task_cant_replace_what_says_where_it_is(tmp_path: Path) -> None:
    spec = TaskSpec("t", ("true",), "/", environment={"CUDA_VISIBLE_DEVICES": "7", "OMP_NUM_THREADS": "3", "A": "b"})
    claim = Claim(TaskName(500, "t", 2), tmp_path, TaskRecord(spec), Request(gpus=1))
    share = Books(inventory(gpus=2)).book("t", Request(gpus=1))
    environment = task_environment(claim, share, "n1", "w", tmp_path)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-test-0"
    assert (environment["OMP_NUM_THREADS"], environment["A"]) == ("3", "b")
    assert environment["FLEETCRAFT_ATTEMPT"] == "t-a2"
    assert environment["FLEETCRAFT_STREAM"] == "t"


def test_a_node_is_shared_until_somebody_asks_to_be_alone(tmp_path: Path) -> None:
    one, other, third = (NodeLock(("spool", "host"), tmp_path) for _ in range(3))
    assert one.enter()
    assert other.enter()
    assert third.ask_alone()
    assert not third.be_alone(), "others use it"
    assert not NodeLock(("spool", "host"), tmp_path).enter(), "somebody waits"
    one.leave()
    assert not third.be_alone()
    other.leave()
    assert third.be_alone()
    assert not one.enter()
    assert not other.ask_alone()
    third.leave()
    third.open_gate()
    assert one.enter()


def test_a_node_is_used_as_long_as_any_process_of_an_attempt_lives(tmp_path: Path) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = NodeLock(("spool", "host"), tmp_path)
        lock.enter()
        grandchild = os.fork()
        if grandchild == 0:
            os.close(write)
            os.read(read, 1)
        os._exit(0)
    os.close(read)
    os.waitpid(pid, 0)
    successor = NodeLock(("spool", "host"), tmp_path)
    assert not successor.be_alone(), "what the dead worker started still runs"
    os.close(write)
    for _ in range(500):
        if successor.be_alone():
            break
        time.sleep(0.01)
    assert successor.holds == "all"


def test_the_local_oracle_ends_all_that_a_dead_worker_left_even_while_it_forks(tmp_path: Path) -> None:
    environment = {**os.environ, "FLEETCRAFT_WORKER": "000-dead-0123456789ab"}
    script = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'sleep 0.01; setsid sleep 1000 & sleep 1000' & done"
    subprocess.run(["sh", "-c", script], env=environment, check=True)
    lease = Lease("000-dead-0123456789ab", 1, host_name(), boot_id(), processes=((os.getpid(), 1),))
    liveness = LocalOracle(SystemClock(), grace_s=0.1)(lease.worker, lease)
    assert (liveness.verdict, liveness.cause) == (Verdict.GONE, CRASHED)
    assert processes_with("FLEETCRAFT_WORKER", lease.worker) == []


def test_the_local_oracle_knows_only_its_own_machine() -> None:
    oracle = LocalOracle(SystemClock())
    alive = Lease("w", 1, host_name(), boot_id(), processes=((os.getpid(), own_start()),))
    assert oracle("w", alive).verdict is Verdict.ALIVE
    assert oracle("w", replace(alive, host="elsewhere")).verdict is Verdict.UNKNOWN
    assert oracle("w", None).verdict is Verdict.UNKNOWN
    assert oracle("w", replace(alive, boot="before")).cause == "node was rebooted"
