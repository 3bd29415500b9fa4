"""How `fleetcraft status` looks: tables and a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fleetcraft.ground.clock import Clock
from fleetcraft.spool import State
from fleetcraft.worker.overview import Observer, Overview

_STATES = (State.PENDING, State.RUNNING, State.DONE, State.FAILED, State.QUARANTINE)


def print_status(overview: Overview, console: Console | None = None) -> None:
    """Once."""
    console = console or Console()
    if console.is_terminal:
        console.print(_rendered(overview))
    else:
        console.print("\n".join(_lines(overview)), highlight=False, markup=False, soft_wrap=True)


def watch_status(observer: Observer, interval_s: float, clock: Clock, console: Console | None = None) -> None:
    """Until everything has ended and no controller is there.

    Where there is no terminal, a line whenever something has changed.
    """
    console = console or Console()
    overview = observer.look()
    if console.is_terminal:
        with Live(_rendered(overview), console=console, auto_refresh=False) as live:
            while overview.goes_on:
                clock.sleep(interval_s)
                overview = observer.look()
                live.update(_rendered(overview), refresh=True)
        return
    last = ""
    while True:
        line = _summary(overview)
        if line != last:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if not overview.goes_on:
            return
        last = line
        clock.sleep(interval_s)
        overview = observer.look()


def _summary(overview: Overview) -> str:
    counts = ", ".join(f"{overview.total(state)} {state.value}" for state in _STATES if overview.total(state))
    return f"{overview.campaign}: {counts or 'no tasks'}; {_pace(overview)}"


def _pace(overview: Overview) -> str:
    left = f", {_duration(overview.left_s)} left" if overview.left_s else ""
    return f"{overview.rate:.2f} tasks/s{left}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def _lines(overview: Overview) -> list[str]:
    lines = [_summary(overview)]
    width = max([len(group) for group in overview.counts] + [5])
    for group, counts in overview.counts.items():
        lines.append(
            f"  {group:<{width}}  " + ", ".join(f"{counts[s.value]} {s.value}" for s in _STATES if s.value in counts)
        )
    for name, lease in sorted(overview.leases.items()):
        lines.append(f"  {name} on {lease.host}: {lease.state}{f' ({lease.reason})' if lease.reason else ''}")
        lines += [f"    {_slot(task)}" for task in lease.running]
    return [*lines, *(f"! {warning}" for warning in overview.warnings)]


def _slot(task: dict[str, object]) -> str:
    if task.get("waits"):
        return f"{task['id']} waits to run alone"
    if task.get("leader"):
        return f"{'kept' if task.get('ready') else 'to be kept'} for {task['id']}, a gang that {task['leader']} leads"
    return f"{task['slot']}: {task['id']} (attempt {task['attempt']})"


def _rendered(overview: Overview) -> RenderableType:
    rules = Table("rule", *(state.value for state in _STATES), title=overview.campaign, title_justify="left")
    for column in rules.columns[1:]:
        column.justify = "right"
    for group, counts in overview.counts.items():
        rules.add_row(group, *(str(counts.get(state.value, "")) for state in _STATES))
    nodes = Table("worker", "state", "slot", "task")
    for name, lease in sorted(overview.leases.items()):
        state = f"{lease.state} {lease.reason}".strip()
        for index, task in enumerate(lease.running or ({"id": "", "slot": ""},)):
            first = index == 0
            slot = str(task.get("slot", "gang" if task.get("leader") else "waits"))
            nodes.add_row(name if first else "", state if first else "", slot, str(task["id"]))
    ended = overview.total(State.DONE, State.FAILED, State.QUARANTINE)
    every = ended + overview.total(State.PENDING, State.RUNNING)
    bar = ProgressBar(total=max(every, 1), completed=ended, width=60)
    warnings = [Text(f"! {warning}", style="yellow") for warning in overview.warnings]
    return Group(rules, nodes, bar, Text(f"{ended} of {every}, {_pace(overview)}"), *warnings)
