"""Commands for operators: put tasks into a spool, serve it, look at it, steer it.

Each command's parser has a default `run`: a function of the parsed arguments that returns the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from fleetcraft.cli.common import Subparsers, add_spool, open_spool
from fleetcraft.ground.clock import SystemClock
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.repository import CHECKOUT
from fleetcraft.spool import (
    CRASHED,
    Lease,
    Liveness,
    Producer,
    Reaper,
    Request,
    Spool,
    TaskSpec,
    Verdict,
    Writer,
    abort,
    cancel,
    drain,
    lift_drain,
    resume,
)
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.explanation import explain
from fleetcraft.worker.inventory import detect, parse_override
from fleetcraft.worker.liveness import LocalOracle
from fleetcraft.worker.overview import Observer
from fleetcraft.worker.settings import Settings
from fleetcraft.worker.warm import LAUNCHER, WarmStarter

SNAKEMAKE_CALLS = ("snakemake.cli:get_argument_parser", "platform:platform")
"""What a small job would do for itself each time, at half of its cost: the first looks through all installed packages
for plugins, the second starts a process to name the machine; both keep what they found."""


def register(subparsers: Subparsers) -> None:
    """Add the operators' commands."""
    _add_enqueue(subparsers)
    _add_worker(subparsers)
    _add_status(subparsers)
    parser = _add(subparsers, "explain", "say what became of a task, or why it isn't running", _explain)
    parser.add_argument("task", help="its id")
    parser = _add(
        subparsers, "cancel", "cancel tasks: those that wait fail at once, workers end those that run", _cancel
    )
    parser.add_argument("tasks", nargs="+", metavar="task", help="ids")
    parser = _add(subparsers, "drain", "make a worker or host claim nothing more, finish what runs, and leave", _drain)
    parser.add_argument("addressee", metavar="worker-or-host", help="its name, as `fleetcraft status` shows it")
    parser.add_argument("--reason", default="asked by an operator", help="what the journal says of it")
    parser.add_argument("--lift", action="store_true", help="let a host serve again")
    parser = _add(
        subparsers, "abort", "end the run: workers finish what runs and leave; what waits goes on waiting", _abort
    )
    parser.add_argument("--reason", default="asked by an operator", help="what the journal says of it")
    parser.add_argument("--resume", action="store_true", help="take an abort back")
    parser = _add(subparsers, "reap", "take claims back from workers that are gone", _reap)
    parser.add_argument("--stale", type=float, default=30.0, metavar="S", help="how long a heartbeat must stand still")
    parser.add_argument("--gone", nargs="*", default=[], metavar="WORKER", help="workers that you know to be gone")


def _add(
    subparsers: Subparsers, name: str, summary: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    add_spool(parser)
    parser.set_defaults(run=run)
    return parser


def _add_enqueue(subparsers: Subparsers) -> None:
    parser = _add(subparsers, "enqueue", "put a shell command into the spool as a task", _enqueue)
    parser.add_argument("command", help="for /bin/sh")
    parser.add_argument("name", help="the task's id; enqueueing it again changes nothing")
    parser.add_argument("--threads", type=int, default=1, help="processors that it takes")
    parser.add_argument("--mem-mb", type=int, default=0, metavar="MB", help="memory that it takes")
    parser.add_argument("--gpus", type=int, default=0, help="whole GPUs that it takes")
    parser.add_argument(
        "--gpu-mem-mb", type=int, default=0, metavar="MB", help="of each GPU; without --gpus a shared one"
    )
    parser.add_argument("--runtime", type=int, default=60, metavar="MINUTES", help="longest run")
    parser.add_argument("--exclusive", action="store_true", help="with the node to itself")
    parser.add_argument("--nodes", type=int, default=1, help="whole nodes that it takes together")
    parser.add_argument("--lane", help="only for workers of this lane")
    parser.add_argument("--priority", type=int, default=500, help="0 to 999, 999 first")
    parser.add_argument("--retries", type=int, default=0, help="how often it may fail and be tried again")
    parser.add_argument("--output", action="append", default=[], metavar="PATH", help="must be there afterwards")
    parser.add_argument("--group", default="", help="what it is counted under")
    parser.add_argument("--directory", type=Path, default=None, help="where it runs (default: here)")
    parser.add_argument("--again", action="store_true", help="run it again if it has ended")
    parser.add_argument("--create", metavar="CAMPAIGN", help="make the spool if it isn't there")


def _enqueue(arguments: argparse.Namespace) -> int:
    if arguments.create and arguments.spool is not None:
        Spool.create(arguments.spool, arguments.create)
    request = Request(
        threads=arguments.threads,
        mem_mb=arguments.mem_mb,
        gpus=arguments.gpus,
        gpu_mem_mb=arguments.gpu_mem_mb,
        runtime_s=60 * arguments.runtime,
        nodes=arguments.nodes,
        access="exclusive" if arguments.exclusive or arguments.nodes > 1 else "shared",
        lane=arguments.lane,
    )
    spec = TaskSpec(
        id=arguments.name,
        command=("/bin/sh", "-c", arguments.command),
        directory=str((arguments.directory or Path.cwd()).absolute()),
        request=request,
        priority=arguments.priority,
        retries=arguments.retries,
        outputs=tuple(arguments.output),
        group=arguments.group,
    )
    with Writer(open_spool(arguments), "operator") as writer:
        producer = Producer(writer)
        new = producer.enqueue([spec]).new
        again = producer.resubmit([spec]).new if arguments.again and not new else ()
    print(f"{spec.id}: {'enqueued' if new else 'enqueued again' if again else 'known already, left as it is'}")
    return 0


def _add_worker(subparsers: Subparsers) -> None:
    defaults = Settings()
    parser = _add(subparsers, "worker", "serve a spool on this node until told to leave", _worker)
    parser.add_argument("--capacity", default="", help="what to believe of this node: threads=4,mem_mb=8000,gpus=2,…")
    parser.add_argument("--lane", help="serve tasks of this lane, too, besides those that ask for none")
    parser.add_argument("--host", metavar="NAME", help="what this node is called (default: this machine's name)")
    parser.add_argument("--gang", metavar="NAME", help="what nodes must share to be in a gang: an allocation")
    parser.add_argument(
        "--gang-patience",
        type=float,
        default=defaults.gang_patience_s,
        metavar="S",
        help="how long a gang may take to come together",
    )
    parser.add_argument("--idle-timeout", type=float, metavar="S", help="leave after so long without work")
    parser.add_argument("--walltime", type=float, metavar="S", help="how long it may live")
    parser.add_argument(
        "--walltime-margin",
        type=float,
        default=defaults.walltime_margin_s,
        metavar="S",
        help="how long before --walltime what runs is given back",
    )
    parser.add_argument("--grace", type=float, default=defaults.grace_s, metavar="S", help="between TERM and KILL")
    parser.add_argument("--poll", type=float, default=defaults.poll_s, metavar="S", help="longest pause when idle")
    parser.add_argument(
        "--heartbeat", type=float, default=defaults.heartbeat_s, metavar="S", help="between signs of life"
    )
    parser.add_argument(
        "--failing-tasks", type=int, default=defaults.failing_tasks, help="in a row that drain the node; 0 for never"
    )
    parser.add_argument(
        "--avoid", type=float, default=defaults.avoid_s, metavar="S", help="leave a task that failed here to others"
    )
    parser.add_argument("--warm", action="store_true", help="make ready for Snakemake's jobs before the first comes")
    parser.add_argument("--identity", default="{}", metavar="JSON", help="for the lease, to be recognized by")


def _worker(arguments: argparse.Namespace) -> int:
    try:
        identity = json.loads(arguments.identity)
        if not isinstance(identity, dict):
            raise ValueError("it isn't an object")
    except ValueError as error:
        raise BadInput(f"--identity can't be understood ({error})", remedy="Give a JSON object") from error
    settings = Settings(
        lane=arguments.lane,
        gang=arguments.gang,
        gang_patience_s=arguments.gang_patience,
        idle_timeout_s=arguments.idle_timeout,
        walltime_s=arguments.walltime,
        walltime_margin_s=arguments.walltime_margin,
        grace_s=arguments.grace,
        poll_s=arguments.poll,
        heartbeat_s=arguments.heartbeat,
        failing_tasks=arguments.failing_tasks,
        avoid_s=arguments.avoid,
        identity=identity,
    )
    # What the interpreter's packages are was decided by the lock file; a new one makes new templates.
    starter = WarmStarter(watched=[CHECKOUT / "requirements.lock"], calls=SNAKEMAKE_CALLS)
    inventory = detect(parse_override(arguments.capacity))
    agent = Agent(
        open_spool(arguments),
        inventory,
        settings,
        starters={LAUNCHER: starter},
        prepare={LAUNCHER: starter.warm_up},
        early=[LAUNCHER] if arguments.warm else [],
        host=arguments.host,
    )
    reason = agent.run()
    print(f"fleetcraft worker left: {reason}", file=sys.stderr)
    return 0


def _add_status(subparsers: Subparsers) -> None:
    parser = _add(
        subparsers, "status", "show what waits, runs and has ended, on which nodes, and how fast it goes", _status
    )
    parser.add_argument("--watch", action="store_true", help="go on showing it until everything has ended")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="between looks")
    parser.add_argument("--json", action="store_true", help="for programs")


def _status(arguments: argparse.Namespace) -> int:
    # rich takes longer to import than everything else here; only this command needs it.
    from fleetcraft.cli.status_view import print_status, watch_status

    observer = Observer(open_spool(arguments))
    if arguments.json:
        print(json.dumps(observer.look().as_json(), indent=2, sort_keys=True))
    elif arguments.watch:
        watch_status(observer, arguments.interval, SystemClock())
    else:
        print_status(observer.look())
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    print("\n".join(explain(open_spool(arguments), arguments.task)))
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    with Writer(open_spool(arguments), "operator") as writer:
        report = cancel(writer, arguments.tasks)
    for label, ids in (
        ("cancelled", report.cancelled),
        ("runs; its worker was asked to end it", report.asked),
        ("had ended already", report.finished),
        ("could not be found just now; cancel it again", report.unsettled),
        ("unknown", report.unknown),
    ):
        for task_id in ids:
            print(f"{task_id}: {label}")
    return 1 if report.unsettled or report.unknown else 0


def _drain(arguments: argparse.Namespace) -> int:
    if arguments.lift:
        lift_drain(open_spool(arguments), arguments.addressee)
        print(f"{arguments.addressee} may serve again")
    else:
        drain(open_spool(arguments), arguments.addressee, arguments.reason)
        print(f"{arguments.addressee} claims nothing more, finishes what runs, and leaves")
    return 0


def _abort(arguments: argparse.Namespace) -> int:
    if arguments.resume:
        resume(open_spool(arguments))
        print("the abort is taken back; workers that start from now on serve again")
    else:
        abort(open_spool(arguments), arguments.reason)
        print("workers finish what runs and leave; what waits goes on waiting")
    return 0


def _reap(arguments: argparse.Namespace) -> int:
    """Watch for as long as a heartbeat must stand still, and take back what can be taken back."""
    clock = SystemClock()
    local = LocalOracle(clock)

    def oracle(worker: str, lease: Lease | None) -> Liveness:
        return Liveness(Verdict.GONE, CRASHED) if worker in arguments.gone else local(worker, lease)

    with Writer(open_spool(arguments), "operator") as writer:
        reaper = Reaper(writer, oracle, arguments.stale)
        deadline_s = clock.monotonic() + arguments.stale * 1.5
        while True:
            report = reaper.step()
            for worker, cause in report.workers.items():
                print(f"{worker} is gone ({cause})")
            for settled in report.settled:
                print(
                    f"{settled.name.id}: attempt {settled.name.attempt} taken back, now {settled.decision.state.value}"
                )
            if clock.monotonic() >= deadline_s:
                break
            clock.sleep(max(0.05, arguments.stale / 6))
    for worker, verdict in report.waiting.items():
        print(f"{worker} stands still and is {verdict}; if you know that it is gone, say --gone {worker}")
    return 0
