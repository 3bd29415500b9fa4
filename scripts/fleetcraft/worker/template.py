"""A Python process that others are forked from, so that they start with everything imported.

Executed by itself (`python -P template.py DESCRIPTOR CALLS WITHOUT`), from the standard library alone: it must
hold nothing that its children should not inherit, no threads above all. `fleetcraft.worker.warm` starts it and talks to
it.

It knows nothing of what it will run. The first child imports for itself and reports its modules at its end; the
template then imports these. Should one of them start a thread, the template says so and ends, and the next one does
without that package. What a child runs is exactly what `python -P -m MODULE …` would.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

HEADER = struct.Struct("!Q")
DESCRIPTORS = 3
"""With each start: the log, the descriptor that is to be kept open, and the end of the pipe that says when to begin."""

_UNFIT = frozenset({"torch"})
"""Packages that hold more than can be shared: devices."""

_PR_SET_PDEATHSIG = 1


def send_message(connection: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """A length and a JSON object; the descriptors ride with the length."""
    data = json.dumps(message).encode()
    socket.send_fds(connection, [HEADER.pack(len(data))], list(descriptors))
    connection.sendall(data)


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and the descriptors that came with it; None when the other end is gone."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, DESCRIPTORS)
    header += _exactly(connection, HEADER.size - len(header)) if header else b""
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    data = _exactly(connection, length)
    return (json.loads(data), descriptors) if len(data) == length else None


def _readable(descriptors: list[int]) -> list[int]:
    """Those that can be read from, once there are any; `select` can't above 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll()]


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            break
        data += part
    return bytes(data)


class Template:
    """Serves its starter until the socket closes.

    Parameters
    ----------
    calls : `module:function`, imported and called without arguments at the start: what a function keeps for the rest of
        a process, children then find.
    without : packages that are not to be imported.
    """

    def __init__(self, connection: socket.socket, calls: list[str], without: list[str]):
        self._connection, self._calls, self._without = connection, calls, without
        self._known = False
        self._reports: dict[int, bytearray] = {}

    def serve(self) -> None:
        """Fork children as asked for, and learn from the first one that ends what they import."""
        gc.disable()
        if not self._import([call.partition(":")[0] for call in self._calls], self._calls):
            return
        send_message(self._connection, {"state": "raw"})
        while True:
            ready = _readable([self._connection.fileno(), *self._reports])
            for report in [report for report in ready if report in self._reports]:
                names = self._read(report)
                if names is not None and not self._known and not self._learn(names):
                    return
            if self._connection.fileno() in ready:
                received = receive_message(self._connection)
                if received is None:
                    return
                message, descriptors = received
                if "modules" not in message:
                    send_message(self._connection, {"pid": self._fork(message, descriptors)})
                elif not self._learn(message["modules"]):
                    return

    def _read(self, report: int) -> list[str] | None:
        """What a child has reported, once it is complete; None before, and from a child that failed."""
        data = os.read(report, 1 << 16)
        if data:
            self._reports[report] += data
            return None
        os.close(report)
        text = bytes(self._reports.pop(report))
        return list(json.loads(text)) if text.endswith(b"\n") else None

    def _learn(self, names: list[str]) -> bool:
        """Import what children need; whether this template is still fit. The starter is told before and after."""
        self._known = True
        send_message(self._connection, {"state": "busy"})
        fit = [name for name in names if not name.startswith("__")]
        if not self._import(fit, []):
            return False
        gc.collect()
        gc.freeze()
        send_message(self._connection, {"state": "ready", "modules": fit})
        return True

    def _import(self, names: list[str], calls: list[str]) -> bool:
        """Import modules; False, and said so, where one of them makes this process unfit to be forked."""
        wanted = [name for name in names if name.partition(".")[0] not in self._without]
        for name in prepare(wanted, calls):
            if len(list(Path("/proc/self/task").iterdir())) > 1 or not _UNFIT.isdisjoint(sys.modules):
                send_message(self._connection, {"state": "unfit", "package": name.partition(".")[0]})
                return False
        return True

    def _fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a child that is the starter's, not this process's: through one that exits at once."""
        report, theirs = (None, None) if self._known else os.pipe()
        answer, say = os.pipe()
        between = os.fork()
        if between == 0:
            try:
                child = os.fork()
                if child == 0:
                    for descriptor in (self._connection.fileno(), answer, say, *self._reports, *filter(None, [report])):
                        os.close(descriptor)
                    _live(order, descriptors, theirs)
                # Here as well as in the child: whoever comes first, the group is there when its number is told.
                with contextlib.suppress(ProcessLookupError):
                    os.setpgid(child, child)
                os.write(say, str(child).encode())
            finally:
                os._exit(0)
        os.close(say)
        for descriptor in descriptors:
            os.close(descriptor)
        if report is not None and theirs is not None:
            os.close(theirs)
            self._reports[report] = bytearray()
        os.waitpid(between, 0)
        number = int(os.read(answer, 32))
        os.close(answer)
        return number


def prepare(names: list[str], calls: list[str]) -> Iterator[str]:
    """Import modules and make the calls that belong to them; says each module when that is done."""
    yield from import_each(names)
    for call in calls:
        module, _, function = call.partition(":")
        if module in names and module in sys.modules:
            getattr(sys.modules[module], function)()
            yield module


def import_each(names: list[str]) -> Iterator[str]:
    """Import modules in this order, and say each as it was imported.

    Modules that import each other can be imported from one side only, and which that is, the order in which they were
    first imported does not tell: what fails is tried again after the others, and then left to the children.
    """
    failed = []
    for name in names:
        if _can_import(name):
            yield name
        else:
            failed.append(name)
    for name in failed:
        if _can_import(name):
            yield name


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - whatever it is, the children will meet it, and it is theirs to report
        return False
    return True


def _live(order: dict[str, Any], descriptors: list[int], report: int | None) -> NoReturn:
    """The life of a child, which never returns into the template's code."""
    code = 1
    try:
        log, _, begin = descriptors
        os.setpgid(0, 0)
        for descriptor, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, standard)
            if descriptor > 2 and standard != 1:
                os.close(descriptor)
        if os.read(begin, 1) != b"b":
            os._exit(1)
        os.close(begin)
        # From now on the launcher is the parent, and its death this child's: what the kernel shows as the environment
        # of a process is the template's here, so nobody could tell by it which task this is.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = [order["module"], *order["arguments"]]
        sys.orig_argv = list(order["command"])
        gc.enable()
        _reseed()
        code = _exit_code(lambda: runpy.run_module(order["module"], run_name="__main__", alter_sys=True))
        # What the end of an interpreter does before it takes itself apart.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if report is not None and code == 0:
            with open(report, "wb", closefd=False) as file:
                file.write(json.dumps(list(sys.modules)).encode() + b"\n")
    finally:
        os._exit(code)


def _reseed() -> None:
    """Give a child random numbers of its own; those of the standard library see to it themselves."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _exit_code(run: Callable[[], object]) -> int:
    """What the process's exit code would be, had it been started for this alone."""
    try:
        run()
        return 0
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 130
    except BaseException:  # noqa: BLE001 - the last frame of a process: whatever it is has to be shown
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    # The starter may be gone at any moment; then there is nobody to tell.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        calls, without = ([part for part in text.split(",") if part] for text in sys.argv[2:4])
        Template(socket.socket(fileno=int(sys.argv[1])), calls, without).serve()
