"""The launcher: a small process that starts tasks, ends them, and leaves nothing behind.

The agent forks it before anything else. It is single-threaded, holds nothing but its tasks, and talks to the agent over
a socket. Each of the two makes up for the other's death: when the agent goes, the launcher ends all tasks and leaves;
when the launcher goes, its tasks fall to the agent, which ends them. As both adopt orphans, a task can't escape by
leaving its process group.

It raises its own out-of-memory score before it starts anything: tasks inherit it, and the agent survives them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fleetcraft.ground.clock import Clock
from fleetcraft.ground.processes import adopt_orphans, children, environment_value
from fleetcraft.ground.waiting import readable

OUT_OF_MEMORY_SCORE = 500
UNKILLABLE_S = 60.0
"""How long after SIGKILL a process is waited for. One that stays, stays in the kernel: its node is of no use."""

_STRAY_CHECK_S = 0.05
_DELAY_S = 0.02

Order = dict[str, Any]


class Starter(Protocol):
    """How a kind of task is started: makes a child in a process group of its own, and says its number.

    `log` is an open descriptor for the child's output. OSError and ValueError mean that the task can't be started as
    described.
    """

    def __call__(self, order: Order, environment: dict[bytes, bytes], log: int) -> int | None:
        """Start it. None: not yet, ask again soon."""

    @property
    def helpers(self) -> Collection[int]:
        """Children of the launcher that belong to no task, and that are the starter's to end."""

    def close(self) -> None:
        """End the helpers; no more tasks come."""


class CommandStarter:
    """Forks and executes a command."""

    helpers: Collection[int] = ()

    def __call__(self, order: Order, environment: dict[bytes, bytes], log: int) -> int:
        """Start it."""
        process = subprocess.Popen(
            order["command"],
            cwd=order["directory"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=(order["keep"],),
        )
        # The launcher itself waits for its children, all of them in one place; the object must not do so as well.
        process.returncode = 0
        return process.pid

    def close(self) -> None:
        """There are no helpers."""


@dataclass(slots=True)
class _Task:
    """A task in progress; it ends when its own process and all that it left behind are gone."""

    key: str
    pid: int
    started_s: float
    limit_s: float
    grace_s: float
    ended: dict[str, Any] | None = None
    timed_out: bool = False
    kill_at_s: float | None = None
    killed_s: float | None = None
    strays: int = field(default=0)


class Launcher:
    """Serves one agent until the socket closes."""

    def __init__(self, connection: socket.socket, starter: Starter, clock: Clock):
        self._connection, self._starter, self._clock = connection, starter, clock
        # As bytes, which need no encoding for each task.
        self._environment = dict(os.environb)
        self._tasks: dict[str, _Task] = {}
        self._delayed: dict[str, Order] = {}
        self._buffer = b""
        self._open = True
        self._wakeup, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Start and end tasks as ordered; returns when the agent is gone and so are all tasks."""
        while self._open or self._tasks:
            self._wait()
            self._look_after_children()
            for order in list(self._delayed.values()):
                self._start(order)
        self._starter.close()
        self._end_strays()

    def _wait(self) -> None:
        connection = self._connection.fileno()
        ready = readable([self._wakeup, *([connection] if self._open else [])], self._patience_s())
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        if connection in ready:
            self._receive()

    def _patience_s(self) -> float | None:
        """Until something has to be done although nothing happens."""
        now_s = self._clock.monotonic()
        due_s = [_STRAY_CHECK_S for task in self._tasks.values() if task.ended or task.killed_s]
        due_s += [_DELAY_S for _ in self._delayed]
        for task in self._tasks.values():
            due_s.append((task.kill_at_s or task.started_s + task.limit_s) - now_s)
        return max(0.0, min(due_s)) if due_s else None

    def _receive(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._open = False
            self._delayed.clear()
            for task in self._tasks.values():
                self._terminate(task)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order)
            elif order["stop"] in self._tasks:
                self._terminate(self._tasks[order["stop"]])
            elif self._delayed.pop(order["stop"], None) is not None:
                self._send(
                    {
                        "ended": order["stop"],
                        "exit_code": -signal.SIGTERM,
                        "timed_out": False,
                        "strays": 0,
                        "unkillable": False,
                    }
                )

    def _start(self, order: Order) -> None:
        key = order["start"]
        self._delayed.pop(key, None)
        changes = {os.fsencode(key): os.fsencode(value) for key, value in order["environment"].items()}
        environment = {**self._environment, **changes}
        try:
            log = _open_log(order["log"])
        except OSError as error:
            self._send({"refused": key, "problem": f"its log can't be written: {error}"})
            return
        try:
            pid = self._starter(order, environment, log)
        except (OSError, ValueError) as error:
            os.write(log, f"fleetcraft: this task can't be started: {error}\n".encode())
            self._send({"refused": key, "problem": f"it can't be started: {error}"})
            return
        finally:
            os.close(log)
        if pid is None:
            self._delayed[key] = order
            return
        self._tasks[key] = _Task(key, pid, self._clock.monotonic(), order["limit_s"], order["grace_s"])

    def _terminate(self, task: _Task) -> None:
        """Ask a task to end; it is killed when its grace is over."""
        if task.ended is None and task.kill_at_s is None:
            task.kill_at_s = self._clock.monotonic() + task.grace_s
            os.killpg(task.pid, signal.SIGTERM)
            # A stopped task couldn't act on it.
            os.killpg(task.pid, signal.SIGCONT)

    def _look_after_children(self) -> None:
        now_s = self._clock.monotonic()
        for task in list(self._tasks.values()):
            if task.ended is None:
                self._look_after(task, now_s)
        if any(task.ended is not None for task in self._tasks.values()):
            strays = self._strays()
            for task in [task for task in self._tasks.values() if task.ended is not None]:
                mine = [pid for pid, owner in strays if owner == task.key]
                task.strays += len(mine)
                for pid in mine:
                    os.kill(pid, signal.SIGKILL)
                assert task.killed_s is not None
                assert task.ended is not None
                if not mine or now_s - task.killed_s > UNKILLABLE_S:
                    del self._tasks[task.key]
                    self._send({**task.ended, "strays": task.strays, "unkillable": bool(mine)})

    def _look_after(self, task: _Task, now_s: float) -> None:
        # The zombie is kept until its group has been killed: its number can't be another's as long as it is there.
        if os.waitid(os.P_PID, task.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            os.killpg(task.pid, signal.SIGKILL)
            _, status, usage = os.wait4(task.pid, 0)
            task.killed_s = now_s
            task.ended = {
                "ended": task.key,
                "exit_code": os.waitstatus_to_exitcode(status),
                "timed_out": task.timed_out,
                "wall_s": round(now_s - task.started_s, 4),
                "cpu_s": round(usage.ru_utime + usage.ru_stime, 4),
                "max_rss_mb": usage.ru_maxrss // 1024,
            }
        elif task.kill_at_s is not None and now_s >= task.kill_at_s:
            os.killpg(task.pid, signal.SIGKILL)
            task.killed_s = task.killed_s or now_s
            task.kill_at_s = now_s + 1.0
            if now_s - task.killed_s > UNKILLABLE_S:
                del self._tasks[task.key]
                self._send({"ended": task.key, "exit_code": None, "timed_out": task.timed_out, "unkillable": True})
        elif task.kill_at_s is None and now_s - task.started_s >= task.limit_s:
            task.timed_out = True
            self._terminate(task)

    def _strays(self) -> list[tuple[int, str | None]]:
        """Children that were adopted, with the attempt that they come from; zombies among them are laid to rest."""
        main = {task.pid for task in self._tasks.values() if task.ended is None}
        strays: list[tuple[int, str | None]] = []
        for pid in children():
            if pid in main or pid in self._starter.helpers or os.waitpid(pid, os.WNOHANG)[0]:
                continue
            owner = environment_value(pid, "FLEETCRAFT_ATTEMPT")
            if owner not in self._tasks:
                # It hides where it comes from, or its task has been reported: it must end when nobody else can own it.
                alone = [task.key for task in self._tasks.values() if len(self._tasks) == 1]
                owner = alone[0] if alone else owner
            strays.append((pid, owner))
        return strays

    def _end_strays(self) -> None:
        """The last act: whatever is still there is killed, and waited for within bounds."""
        deadline_s = self._clock.monotonic() + UNKILLABLE_S
        while (left := self._strays()) and self._clock.monotonic() < deadline_s:
            for pid, _ in left:
                os.kill(pid, signal.SIGKILL)
            self._clock.sleep(0.01)

    def _send(self, event: dict[str, Any]) -> None:
        if self._open:
            try:
                self._connection.sendall(json.dumps(event).encode() + b"\n")
            except (BrokenPipeError, ConnectionResetError):
                # The agent is gone; the next receive says so, and all tasks are ended then.
                return


def _open_log(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


class LauncherClient:
    """The agent's end: forks the launcher, gives orders, hands out events.

    Parameters
    ----------
    prepare : run in the launcher before it serves, for what its starter needs to have imported.
    """

    _agents_ends: ClassVar[set[socket.socket]] = set()
    """All open ends of this process: a launcher that inherited another's would hide the agent's death from it."""

    def __init__(self, starter: Starter, clock: Clock, prepare: Callable[[], None] | None = None):
        self._connection, theirs = socket.socketpair()
        self._agents_ends.add(self._connection)
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            for connection in self._agents_ends:
                connection.close()
            _launcher_process(theirs, starter, clock, prepare)
        theirs.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._connection.fileno()

    def start(
        self,
        key: str,
        *,
        command: list[str],
        directory: str,
        environment: dict[str, str],
        log: Path,
        limit_s: float,
        grace_s: float,
        keep: int,
    ) -> None:
        """Order a task to be started; an event says when it has ended, or that it couldn't be started.

        Parameters
        ----------
        limit_s : how long it may run.
        grace_s : between TERM and KILL.
        keep : a descriptor, open since before the fork, that the task's processes hold open as long as they live.
        """
        order = {"start": key, "command": command, "directory": directory, "environment": environment, "log": str(log)}
        self._order({**order, "limit_s": limit_s, "grace_s": grace_s, "keep": keep})

    def stop(self, key: str) -> None:
        """Order a task to be ended: TERM, grace, KILL. An event says when it is gone."""
        self._order({"stop": key})

    def events(self) -> list[dict[str, Any]] | None:
        """What happened; blocks if nothing did. None: the launcher is gone."""
        try:
            data = self._connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Let the launcher end all tasks and leave; returns when it has."""
        self._agents_ends.discard(self._connection)
        self._connection.close()
        os.waitpid(self.pid, 0)

    def _order(self, order: Order) -> None:
        try:
            self._connection.sendall(json.dumps(order).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            # It is gone; `events` says so next, and everything that it ran is accounted for there.
            return


def _launcher_process(
    connection: socket.socket, starter: Starter, clock: Clock, prepare: Callable[[], None] | None
) -> None:
    """The life of the launcher's process, which never returns into the agent's code."""
    code = 1
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            # Signals to a whole step reach the launcher too; the agent decides what they mean. Tasks get the default
            # handling back when they are executed.
            signal.signal(number, _leave_it_to_the_agent)
        Path("/proc/self/oom_score_adj").write_text(str(OUT_OF_MEMORY_SCORE), encoding="ascii")
        adopt_orphans()
        if prepare is not None:
            prepare()
        Launcher(connection, starter, clock).serve()
        code = 0
    finally:
        os._exit(code)


def _leave_it_to_the_agent(number: int, frame: object) -> None:
    """A handler, not SIG_IGN: ignored signals would stay ignored in the tasks."""
