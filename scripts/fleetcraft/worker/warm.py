"""Warm starts: Python tasks are forked from a process that has imported already what they import.

A task of the form `python -P -m MODULE …` costs its imports again and again: for a job of a workflow that is a second
of CPU. Here a template process, one for each set of variables that decide what is imported, is asked for a fork of
itself. It is the launcher's child and so are the tasks, as soon as the process between has gone.

Whatever stands in the way of a warm start (another interpreter, a template that is broken, or that learns for long)
makes a cold one of it, with the same result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetcraft.ground.failures import FAILURE_FILE
from fleetcraft.ground.waiting import readable
from fleetcraft.worker.launcher import CommandStarter, Order
from fleetcraft.worker.template import receive_message, send_message

LAUNCHER = "python"
"""What a task names as its launcher to be started so."""

_TEMPLATE = Path(__file__).with_name("template.py")
_ANSWER_S = 20.0
_LEARNING_S = 15.0
"""How long a task waits for a template that imports; then it is started cold."""

_FIRST_S = 1.5
"""How long tasks wait for the first one's end, from which the template learns what it imports."""

_UNFIT_PACKAGES = 8
_PATIENCE_S = 5.0
_PREFIX = ("-P", "-m")
_IMPORT_VARIABLES = ("PYTHON", "LD_", "VIRTUAL_ENV", "CONDA_")
"""Beginnings of the names of variables that decide what is imported; the rest is set in each child."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Keeps numerical libraries from starting their pools of threads in a template, which can't be forked then."""

_IDENTITY = (
    "FLEETCRAFT_ATTEMPT",
    "FLEETCRAFT_TASK",
    "FLEETCRAFT_NODE_FILE",
    FAILURE_FILE,
    "FLEETCRAFT_SLOT",
    "FLEETCRAFT_STREAM",
)


class _Broken(Exception):
    """A template didn't answer, or is gone."""


@dataclass(slots=True)
class _Template:
    """A running template, from the starter's side."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    state: str = "busy"
    modules: list[str] = field(default_factory=list)
    forks: int = 0
    taught_s: float | None = None
    """Since when a first child is out, from whose imports the template will learn."""
    unfit: str | None = None
    """A package that it found to be unfit for templates; it has ended then."""

    def listen(self) -> None:
        """Take in what it has said; does not wait."""
        while readable([self.connection.fileno()], 0):
            self._note(self._receive())

    def fork(self, order: Order, environment: dict[str, str], log: int) -> int:
        """Number of the child, which has begun."""
        begin, say = os.pipe()
        try:
            message = {
                "module": order["command"][3],
                "arguments": order["command"][4:],
                "command": order["command"],
                "directory": order["directory"],
                "environment": environment,
            }
            try:
                send_message(self.connection, message, (log, order["keep"], begin))
            except OSError as error:
                raise _Broken from error
            while True:
                if not readable([self.connection.fileno()], _ANSWER_S):
                    raise _Broken
                answer = self._receive()
                if "pid" in answer:
                    break
                self._note(answer)
            self.forks += 1
            # Only now: a child whose template is given up before its number was told never begins.
            os.write(say, b"b")
            return int(str(answer["pid"]))
        finally:
            os.close(begin)
            os.close(say)

    def _receive(self) -> dict[str, object]:
        try:
            received = receive_message(self.connection)
        except OSError as error:
            raise _Broken from error
        if received is None:
            raise _Broken
        return received[0]

    def _note(self, message: dict[str, object]) -> None:
        self.state = str(message["state"])
        if self.state == "unfit":
            self.unfit = str(message["package"])
        modules = message.get("modules")
        if isinstance(modules, list):
            self.modules = modules

    def close(self) -> None:
        """End it. Its children go on."""
        self.connection.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WarmStarter:
    """Starts `python -P -m MODULE …` from templates, and everything else as it is.

    Parameters
    ----------
    watched : files and directories whose change means that what was imported may be another version by now; the
        interpreter's packages are always watched.
    calls : `module:function` of what templates import and call at their start, see `template.Template`.
    renew_after : so many forks until a template is replaced by a fresh one.
    """

    def __init__(self, watched: Collection[Path] = (), calls: Collection[str] = (), renew_after: int = 500):
        self._cold = CommandStarter()
        self._calls = tuple(calls)
        self._watched = (*watched, Path(sysconfig.get_path("purelib")))
        self._renew_after = renew_after
        self._templates: dict[tuple[tuple[str, str], ...], _Template] = {}
        self._successors: dict[tuple[tuple[str, str], ...], _Template] = {}
        self._seen: tuple[object, ...] = ()
        self._without: set[str] = set()
        self._asked_s: dict[str, float] = {}
        self._breaks = 0

    def warm_up(self) -> None:
        """Start the template of tasks that change nothing in this process's own environment, before the first comes."""
        variables = dict(os.environ)
        self._template(_import_key(variables), variables)

    @property
    def helpers(self) -> Collection[int]:
        """The templates."""
        return {t.process.pid for t in (*self._templates.values(), *self._successors.values())}

    def __call__(self, order: Order, environment: dict[bytes, bytes], log: int) -> int | None:
        """Start a task warm if it can be, or soon, else cold."""
        if not self._is_suited(order["command"]) or self._breaks >= 3:
            return self._cold(order, environment, log)
        # What would make a cold start fail makes a warm one fail alike, and before anything was forked.
        if not os.access(order["directory"], os.X_OK):
            return self._cold(order, environment, log)
        # Undecodable bytes survive this as surrogates.
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        key = _import_key(variables)
        now_s = time.monotonic()
        asked_s = self._asked_s.setdefault(order["start"], now_s)
        try:
            template = self._template(key, variables)
            learning = template.state == "raw" and template.forks > 0
            if template.state != "busy" and (not learning or now_s - (template.taught_s or now_s) > _FIRST_S):
                pid = template.fork(order, variables, log)
                template.taught_s = template.taught_s or now_s
                del self._asked_s[order["start"]]
                return pid
            if now_s - asked_s < _LEARNING_S:
                return None
        except (_Broken, OSError) as error:
            unfit = self._templates[key].unfit if key in self._templates else None
            self._drop(key)
            if unfit is not None and len(self._without) < _UNFIT_PACKAGES:
                self._without.add(unfit)
                return None
            self._breaks += 1
            print(f"fleetcraft worker: a template broke, going on without it ({error!r})", file=sys.stderr, flush=True)
        del self._asked_s[order["start"]]
        return self._cold(order, environment, log)

    def close(self) -> None:
        """End the templates."""
        for key in list(self._templates):
            self._drop(key)

    @staticmethod
    def _is_suited(command: list[str]) -> bool:
        return (
            len(command) > 3
            and tuple(command[1:3]) == _PREFIX
            and Path(command[0]).absolute() == Path(sys.executable).absolute()
        )

    def _template(self, key: tuple[tuple[str, str], ...], environment: dict[str, str]) -> _Template:
        """The template to fork from; a new one where there is none or what it imported has changed."""
        seen = tuple(_state(path) for path in self._watched)
        if seen != self._seen:
            self.close()
            self._seen = seen
        for template in (self._templates.get(key), self._successors.get(key)):
            if template is not None:
                template.listen()
        successor = self._successors.get(key)
        if successor is not None and successor.state == "ready":
            self._templates.pop(key).close()
            self._templates[key] = self._successors.pop(key)
        current = self._templates.get(key)
        if current is None:
            current = self._templates[key] = self._start(environment)
        elif current.forks >= self._renew_after and key not in self._successors and current.state == "ready":
            self._successors[key] = successor = self._start(environment)
            send_message(successor.connection, {"modules": current.modules})
            successor.state = "busy"
        return current

    def _start(self, environment: dict[str, str]) -> _Template:
        ours, theirs = socket.socketpair()
        arguments = (str(theirs.fileno()), ",".join(self._calls), ",".join(sorted(self._without)))
        kept = {name: value for name, value in environment.items() if name not in _IDENTITY} | _ONE_THREAD
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", str(_TEMPLATE), *arguments],
                cwd="/",
                env=kept,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        finally:
            theirs.close()
        return _Template(process, ours)

    def _drop(self, key: tuple[tuple[str, str], ...]) -> None:
        for templates in (self._templates, self._successors):
            template = templates.pop(key, None)
            if template is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(template.process.pid, signal.SIGTERM)
                template.close()


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _import_key(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What tells templates apart: the variables that decide what is imported."""
    return tuple(sorted((n, v) for n, v in variables.items() if n.startswith(_IMPORT_VARIABLES)))
