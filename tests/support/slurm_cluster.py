"""A real Slurm on this machine: one controller and four virtual nodes, all of their state in one directory.

It is made for one session of tests and ended exactly afterwards: every process that it started, or that its jobs left
behind, by number. Needs root, and the packages `slurm-wlm` and `munge` of Debian.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
_CALLERS_VARIABLE = "FLEETCRAFT_SLURM_CALLS"

_NODE = "CPUs=2 RealMemory=4000 Gres=gpu:1"
_CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/slurmd-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
MessageTimeout=5
UnkillableStepTimeout=30
GresTypes=gpu
NodeName=n[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] {node}
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=1440 State=UP
PartitionName=small Nodes=n[1-4] Default=NO MaxTime=2 State=UP
"""


def missing() -> str | None:
    """Why no cluster can be made here; None if one can."""
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_path()) is None]
    if absent:
        return f"Slurm isn't installed here ({', '.join(absent)} not found): apt-get install slurm-wlm munge"
    if os.getuid() != 0:
        return "a Slurm of one's own needs root"
    return None


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _free_ports(count: int) -> list[int]:
    """Ports that follow each other and that nobody listens on."""
    for first in range(23000 + 10 * (os.getpid() % 500), 60000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(contextlib.closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
        return list(range(first, first + count))
    raise AssertionError("no free ports")


@dataclass
class SlurmCluster:
    """The cluster; `environment` is what its users need, and counts their calls of squeue and sbatch."""

    root: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SLURM_CONF": str(self.root / "slurm.conf"),
            "PATH": os.pathsep.join([str(self.root / "bin"), _path()]),
            _CALLERS_VARIABLE: str(self.root / "calls"),
        }

    # Running it
    def start(self) -> None:
        for name in ("state", "bin"):
            (self.root / name).mkdir()
        ports = _free_ports(1 + len(NODES))
        configuration = _CONFIGURATION.format(
            root=self.root, controller_port=ports[0], first_port=ports[1], last_port=ports[-1], node=_NODE
        )
        (self.root / "slurm.conf").write_text(configuration)
        (self.root / "gres.conf").write_text("NodeName=n[1-4] Name=gpu File=/dev/null\n")
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for program in ("squeue", "sbatch", "srun", "scancel", "scontrol", "ssh"):
            self._wrap(program)
        self.root.chmod(0o755)
        self._spawn(
            "munged",
            *("munged", "--foreground", "--force", f"--socket={self.root}/munge.socket", f"--key-file={key}"),
            *(f"--pid-file={self.root}/munged.pid", f"--seed-file={self.root}/munge.seed"),
            f"--log-file={self.root}/munged.log",
        )
        self._wait(lambda: (self.root / "munge.socket").exists(), 10, "munged")
        self.start_controller(fresh=True)
        for node in NODES:
            self.start_node(node)
        self.wait_until_idle()

    def start_controller(self, *, fresh: bool = False) -> None:
        self._spawn("slurmctld", "slurmctld", "-D", *(["-c"] if fresh else []))

    def stop_controller(self) -> None:
        """As for maintenance, with its state saved: one that forgot it would give numbers of jobs twice."""
        self._end("slurmctld", signal.SIGTERM)

    def start_node(self, node: str) -> None:
        self._spawn(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> list[int]:
        """What a node's loss looks like: its daemon and all that runs there are gone at once."""
        victims = self._processes_of(node)
        self._end(node, signal.SIGKILL)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return victims

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.run("scancel", "--full", "--user=root", timeout=10)
            self._wait(lambda: not self.jobs(), 15, "the jobs' end")
        for name in [*NODES, "slurmctld", "munged"]:
            if name in self.processes:
                self._end(name, signal.SIGTERM)
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def leftovers(self) -> list[int]:
        """Processes on this machine that belong to this cluster and aren't its daemons."""
        daemons = {process.pid for process in self.processes.values()}
        wanted = f"SLURM_CONF={self.root}/slurm.conf".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in daemons or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    # Using it
    def run(self, *command: str, timeout: float = 30, check: bool = True, directory: Path | None = None) -> str:
        answer = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    def jobs(self) -> dict[str, str]:
        """Number of each job that hasn't ended → its state."""
        lines = self.run("squeue", "--noheader", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def all_jobs(self) -> list[str]:
        """Every job that this cluster ever had, as its controller's log has them."""
        return re.findall(r"_slurm_rpc_submit_batch_job: JobId=(\d+)", (self.root / "slurmctld.log").read_text())

    def steps(self, job: str) -> dict[str, str]:
        """Number of each numbered step of a job → its nodes."""
        lines = self.run("squeue", "--noheader", "--steps", "--format=%i %N").splitlines()
        pairs = [line.split() for line in lines]
        return {step.split(".")[1]: nodes for step, nodes in pairs if step.startswith(f"{job}.") and step[-1].isdigit()}

    def calls(self, program: str) -> list[tuple[float, str]]:
        """When a program was called by users of `environment`, and how."""
        file = self.root / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        parsed = [line.split(" ", 2) for line in lines]
        return [(float(at), rest) for at, name, rest in parsed if name == program]

    def forget_calls(self) -> None:
        (self.root / "calls").unlink(missing_ok=True)

    def wait_until_idle(self, patience_s: float = 30) -> None:
        def idle() -> bool:
            states = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T", check=False).split()
            return states == ["idle"] * len(NODES)

        self._wait(idle, patience_s, "idle nodes")

    def mend(self) -> None:
        """Bring everything back that a test took away, and end what it left."""
        if self.processes["slurmctld"].poll() is not None:
            self.start_controller()
        self._wait(lambda: "UP" in self.run("scontrol", "ping", check=False), 20, "slurmctld")
        self.run("scancel", "--full", "--user=root", check=False)
        for node in NODES:
            if self.processes[node].poll() is not None:
                self.start_node(node)
        # A node that is resumed before it has answered is taken for lost at once.
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            lines = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T", check=False)
            pairs = [line.split() for line in lines.splitlines()]
            for node, state in pairs:
                if "drain" in state or "down" in state:
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            if len(pairs) == len(NODES) and all(state == "idle" for _, state in pairs):
                break
            time.sleep(0.5)
        self.wait_until_idle()

    def _wrap(self, program: str) -> None:
        """Put a program of this name in front on PATH that notes each call and becomes the real one.

        It finds its configuration by itself, as it does where Slurm is installed for all: some of its callers empty
        their environment of everything that is Slurm's.
        """
        real = shutil.which(program, path=_path()) or "false"
        wrapper = self.root / "bin" / program
        wrapper.write_text(
            "#!/bin/bash\n"
            f'[ -n "${_CALLERS_VARIABLE}" ] && echo "$EPOCHREALTIME {program} $*" >> "${_CALLERS_VARIABLE}"\n'
            f'SLURM_CONF={self.root}/slurm.conf exec {real} "$@"\n'
        )
        wrapper.chmod(0o755)

    def _processes_of(self, node: str) -> list[int]:
        """The step daemons of a node, and all of their descendants."""
        parents: dict[int, int] = {}
        first = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError):
                stat = (entry / "stat").read_text(errors="replace")
                parents[int(entry.name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
                environment = (entry / "environ").read_bytes().split(b"\0")
                if f"SLURMD_NODENAME={node}".encode() in environment and (
                    f"SLURM_CONF={self.root}/slurm.conf".encode() in environment
                ):
                    first.add(int(entry.name))
        stepds = {parents[pid] for pid in first if self._is_stepd(parents[pid])}
        found = set(first) | stepds
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def _is_stepd(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return (Path("/proc") / str(pid) / "comm").read_text().startswith("slurmstepd")
        return False

    def _spawn(self, name: str, *command: str) -> None:
        environment = os.environ | {"SLURM_CONF": str(self.root / "slurm.conf"), "PATH": _path()}
        program = shutil.which(command[0], path=_path())
        with (self.root / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [str(program), *command[1:]], env=environment, stdout=out, stderr=out, start_new_session=True
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self.processes[name]
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self, condition: Callable[[], bool], patience_s: float, what: str) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
                    for path in [*self.root.glob("*.out"), *self.root.glob("*.log")]
                )
                raise AssertionError(f"waited {patience_s} s for {what}\n{logs}")
            time.sleep(0.1)


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster that is ended afterwards, whatever happens."""
    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="fleetcraft-slurm-")))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
