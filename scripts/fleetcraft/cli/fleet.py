"""`fleetcraft fleet`: what would be submitted, what lives, and giving it back; `fleetcraft launch`: a head job."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import add_spool, open_spool
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.repository import CHECKOUT

if TYPE_CHECKING:
    from fleetcraft.cli.common import Subparsers
    from fleetcraft.fleet.decision import Decision, Work
    from fleetcraft.fleet.settings import FleetSettings


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "fleet",
        help="look at the Slurm allocations of a campaign, or give them back",
        description="Look at the Slurm allocations of a campaign, or give them back.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    plan = commands.add_parser(
        "plan",
        help="what would be submitted, with hours and cost",
        description="Print which allocations would be submitted now: for the work in a spool, or for an experiment "
        "from nothing. Submits nothing; Slurm is asked only for the spool, and only where there is one.",
    )
    add_spool(plan)
    plan.add_argument("--fleet", type=Path, required=True, metavar="FILE", help="the fleet file")
    plan.add_argument(
        "--experiment",
        type=Path,
        metavar="FILE",
        help="plan for this experiment, with the profile beside the fleet file",
    )
    plan.set_defaults(run=_plan)
    show = commands.add_parser(
        "list", help="allocations, living and ended", description="Print the allocations of a spool."
    )
    add_spool(show)
    show.set_defaults(run=_list)
    release = commands.add_parser(
        "release",
        help="give allocations back",
        description="Cancel the living allocations of a spool: workers end what they run, and give it back to it. "
        "A controller that still runs would submit others; end it first, or say `fleetcraft abort`.",
    )
    add_spool(release)
    release.add_argument("jobs", nargs="*", type=int, metavar="JOB", help="only these jobs (default: all)")
    release.add_argument("--drain", action="store_true", help="let workers finish what they run; cancel what waits")
    release.set_defaults(run=_release)
    gang = subparsers.add_parser(
        "gang",
        help="inside a task that has several nodes: run a program on all of them",
        description="Inside a task that has several nodes: run a program once on each, together, as one job step. "
        "MASTER_ADDR and MASTER_PORT say where they meet, SLURM_PROCID which one it is.",
    )
    gang.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- program ...", help="what each node runs, with its arguments"
    )
    gang.set_defaults(run=_gang)
    _add_launch(subparsers)


def _gang(arguments: argparse.Namespace) -> int:
    from fleetcraft.fleet.gang import run_gang

    run_gang(arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program)
    return 1


# plan
def _plan(arguments: argparse.Namespace) -> int:
    from fleetcraft.fleet.load import load_fleet

    fleet = load_fleet(arguments.fleet)
    if arguments.experiment is not None:
        work = _work_of_experiment(arguments.experiment, arguments.fleet)
        print("\n".join(plan_lines(fleet, work, _decide_from_nothing(fleet, work))))
        return 0
    from fleetcraft.fleet.controller import preview

    work, decisions, remarks = preview(open_spool(arguments), fleet)
    print("\n".join([*plan_lines(fleet, work, decisions), *remarks]))
    return 0


def _decide_from_nothing(fleet: FleetSettings, work: Sequence[Work]) -> list[Decision]:
    from fleetcraft.fleet.decision import Usage, decide

    return decide(work, fleet, [], Usage(), float("inf"))


def _work_of_experiment(experiment: Path, fleet_file: Path) -> list[Work]:
    """The jobs of a dry run. Durations aren't known yet, so each is taken for as long as it may be."""
    from fleetcraft.fleet.decision import Work, estimated_s
    from fleetcraft.spool import Request

    if not experiment.is_file():
        raise BadInput("there is no such experiment file", file=experiment, remedy="Check the path")
    profile = fleet_file.absolute().parent
    command = [sys.executable, "-P", "-m", "snakemake_executor_plugin_spool.preview"]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "requests.json")
        options = ["--snakefile", str(CHECKOUT / "Snakefile"), "--configfile", str(experiment), "--nolock"]
        options += ["--profile", str(profile)] if (profile / "config.yaml").is_file() else []
        done = subprocess.run([*command, str(out), *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout, done.stderr, file=sys.stderr)
            raise BadInput(
                "the dry run of this experiment failed (the reason stands above)", file=experiment, remedy="Remove it"
            )
        counts = json.loads(out.read_text(encoding="utf-8"))
    requests = [(Request.of_class(name), count) for name, count in counts.items()]
    return [Work(request, count, estimated_s(request, None)) for request, count in requests if request is not None]


def plan_lines(fleet: FleetSettings, work: Sequence[Work], decisions: Sequence[Decision]) -> list[str]:
    """The plan for people."""
    from fleetcraft.fleet.decision import Submit

    lines = [f"{sum(w.count for w in work)} tasks wait or run"]
    for w in work:
        refusal = fleet.refusal(w.request)
        note = f"   no lane can serve it: {refusal}" if refusal else ""
        lines.append(f"  {w.count:>7,} × {w.task_s:,.0f} s each   {w.request.class_name}{note}")
    lines.append("would be submitted now" if any(isinstance(d, Submit) for d in decisions) else "nothing to submit now")
    for decision in decisions:
        if isinstance(decision, Submit):
            lane = fleet.lanes[decision.lane]
            hours = decision.nodes * lane.walltime_min / 60
            lines.append(
                f"  {decision.lane}: one job of {decision.nodes} nodes for {lane.walltime_min} minutes, at most "
                f"{hours:,.1f} node hours, cost {decision.cost:,.1f} ({decision.reason})"
            )
        else:
            lines.append(f"  {decision.lane}: none, because {decision.reason}")
    return lines


# list
def _list(arguments: argparse.Namespace) -> int:
    from fleetcraft.fleet.records import Records
    from fleetcraft.spool import read_leases

    spool = open_spool(arguments)
    serving: dict[str, int] = {}
    for lease in read_leases(spool).values():
        token = str(lease.identity.get("allocation"))
        serving[token] = serving.get(token, 0) + 1
    records = Records(spool).read()
    for record in records:
        state = (
            f"ended: {record.ending}" if record.state == "ended" else f"{serving.get(record.token, 0)} workers serve"
        )
        job = record.job if record.job is not None else "-"
        print(f"{job:>10}  {record.lane:<12} {record.nodes:>3} nodes {record.walltime_s // 60:>6} min  {state}")
    if not records:
        print("there were no allocations")
    return 0


# release
def _release(arguments: argparse.Namespace) -> int:
    from fleetcraft.fleet.controller import release
    from fleetcraft.fleet.slurm import Slurm

    spool = open_spool(arguments)
    for line in release(spool, Slurm(spool.clock), arguments.jobs, drain_only=arguments.drain):
        print(line)
    return 0


# launch
def _add_launch(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "launch",
        help="run a campaign from a head job, so that nothing stays on the login node",
        description="Submit a job that runs Snakemake on its first node and workers on all of them, with the profile "
        "`inside`. It ends before its walltime; where work remains and the budget allows, it submits its successor.",
    )
    parser.add_argument("--fleet", type=Path, required=True, metavar="FILE", help="the fleet file")
    parser.add_argument("--lane", help="whose shape the job has (default: the fleet's first)")
    parser.add_argument("--nodes", type=int, help="of the job (default: the lane's most)")
    parser.add_argument("--successors", type=int, default=10, metavar="N", help="at most so many")
    parser.add_argument("--dry-run", action="store_true", help="print the script instead of submitting it")
    parser.add_argument("snakemake", nargs="*", metavar="ARGUMENT", help="for Snakemake; put -- before them")
    parser.set_defaults(run=_launch)


def _launch(arguments: argparse.Namespace) -> int:
    from fleetcraft.fleet.head import Head, submit_head
    from fleetcraft.fleet.load import load_fleet

    head = Head(
        fleet_file=arguments.fleet.absolute(),
        lane=arguments.lane,
        nodes=arguments.nodes,
        successors=arguments.successors,
        snakemake=tuple(arguments.snakemake),
        directory=Path.cwd(),
    )
    fleet = load_fleet(arguments.fleet)
    if arguments.dry_run:
        print(head.script(fleet), end="")
        return 0
    job, script = submit_head(head, fleet)
    print(f"job {job} runs {shlex.join(head.command(fleet))}; its script is {script}")
    return 0
