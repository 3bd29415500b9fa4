"""Which allocations to submit: a pure function of the work, the lanes, what lives, and what is allowed.

Each lane is looked at by itself, in the order of the fleet file. Work is measured in nodes: a task's share of a node,
times how often it fits into the time that makes a node worthwhile. What living allocations will take is subtracted
first, so that no lane asks for nodes that another one brings already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetcraft.fleet.settings import FleetSettings, Lane, Node
from fleetcraft.spool import Request

_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks of one class that wait or run.

    Parameters
    ----------
    count : how many.
    task_s : how long one takes, as far as is known [s]; never more than the request allows.
    """

    request: Request
    count: int
    task_s: float


@dataclass(frozen=True, slots=True)
class Living:
    """An allocation that waits or runs.

    Parameters
    ----------
    nodes : that serve, or will.
    left_s : until its workers end what runs; for one that waits, all of its usable time.
    """

    lane: str
    nodes: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """The user's jobs in Slurm, this campaign's and others: waiting and running, running, and their nodes."""

    jobs: int = 0
    running: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Submit:
    """An allocation that is worth it; `cost` if it lasts its whole walltime."""

    lane: str
    nodes: int
    cost: float
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A lane that has work and gets no allocation now.

    Parameters
    ----------
    passes : whether that can change although nobody does anything and nothing of this campaign runs.
    """

    lane: str
    reason: str
    passes: bool


Decision = Submit | Hold


def decide(
    work: Sequence[Work],
    fleet: FleetSettings,
    living: Sequence[Living],
    usage: Usage,
    funds: float | None,
    held: Mapping[str, Hold] | None = None,
) -> list[Decision]:
    """What to do for each lane that has work.

    Parameters
    ----------
    funds : what may still be spent beyond the headroom and beyond what was submitted; None where nobody knows.
    held : lanes that get nothing, whatever their work.
    """
    return _Deciding(work, fleet, living, usage, funds, held or {}).decide()


class _Deciding:
    """One decision in progress: what is left of the work and of the limits."""

    def __init__(
        self,
        work: Sequence[Work],
        fleet: FleetSettings,
        living: Sequence[Living],
        usage: Usage,
        funds: float | None,
        held: Mapping[str, Hold],
    ):
        self._fleet, self._living, self._funds, self._held = fleet, list(living), funds, held
        self._jobs, self._running, self._nodes = usage.jobs, usage.running, usage.nodes
        # What is hardest to place goes first, as workers take it.
        self._work = sorted((w for w in work if w.count > 0), key=lambda w: w.request.weight, reverse=True)
        self._now = [float(w.count) for w in self._work]
        """What no living node has a worthwhile share of."""
        self._later = [float(w.count) for w in self._work]
        """What will be left when all that lives has ended."""
        self._decisions: list[Decision] = []
        for allocation in self._living:
            self._absorb(allocation)

    def decide(self) -> list[Decision]:
        lanes = self._fleet.lanes
        for name in lanes:
            self._consider(name, forced=False)
        for name in lanes:
            # A last task that justifies no shape must run all the same, where nothing else will ever run it.
            if self._is_stranded(name):
                self._decisions = [d for d in self._decisions if d.lane != name]
                self._consider(name, forced=True)
        return self._decisions

    def _consider(self, name: str, *, forced: bool) -> None:
        lane = self._fleet.lanes[name]
        own = [allocation for allocation in self._living if allocation.lane == name]
        is_full = sum(allocation.nodes for allocation in own) >= lane.nodes.max
        left = self._later if is_full else self._now
        mine = [i for i, w in enumerate(self._work) if left[i] > _EXACT and self._can_serve(name, w.request)]
        if not mine:
            return
        gang = max(self._work[i].request.nodes for i in mine)
        wanted = max(gang, math.ceil(sum(self._nodes_for(lane, i, left[i]) for i in mine) - _EXACT))
        wanted = min(wanted, lane.nodes.max)
        least = max(lane.nodes.min, gang)
        if name in self._held:
            self._decisions.append(self._held[name])
        elif wanted < least and not forced:
            self._hold(name, f"its work keeps {wanted} nodes busy, an allocation has at least {least}", passes=False)
        elif len(own) >= lane.max_allocations:
            self._hold(name, f"{len(own)} allocations wait or run, as many as are allowed", passes=True)
        elif self._jobs >= self._fleet.site.jobs_submitted:
            self._hold(name, f"{self._jobs} jobs are submitted, as many as the site allows", passes=True)
        elif self._running >= self._fleet.site.jobs_running:
            self._hold(name, f"{self._running} jobs run, as many as the site allows", passes=True)
        else:
            self._fit(name, lane, max(wanted, least), least, follows=is_full)

    def _fit(self, name: str, lane: Lane, wanted: int, least: int, *, follows: bool) -> None:
        """Cut the wish down to what the site and the budget allow."""
        room = self._fleet.site.nodes - self._nodes
        if room < least:
            self._hold(
                name,
                f"it needs {least} nodes, and {max(room, 0)} are left of the {self._fleet.site.nodes}",
                passes=True,
            )
            return
        if self._funds is None:
            self._hold(name, "what is left of the budget is not known", passes=True)
            return
        price = lane.cost(1)
        affordable = math.floor(min(self._funds / price, wanted) + _EXACT) if price > 0 else wanted
        if affordable < least:
            self._hold(
                name,
                f"the budget is exhausted: {least} nodes for {lane.walltime_min} minutes cost {lane.cost(least):g}, "
                f"and {max(self._funds, 0):g} is left above the headroom",
                passes=False,
            )
            return
        nodes = min(wanted, room, affordable)
        tasks = sum(
            math.ceil(self._now[i] - _EXACT) for i, w in enumerate(self._work) if self._can_serve(name, w.request)
        )
        reason = "work outlasts the allocations that live" if follows else f"{tasks} tasks for no living node"
        self._decisions.append(Submit(name, nodes, lane.cost(nodes), reason))
        self._funds -= lane.cost(nodes)
        self._jobs += 1
        self._nodes += nodes
        allocation = Living(name, nodes, lane.usable_s)
        self._living.append(allocation)
        self._absorb(allocation)

    def _hold(self, name: str, reason: str, *, passes: bool) -> None:
        self._decisions.append(Hold(name, reason, passes))

    def _is_stranded(self, name: str) -> bool:
        """Whether a lane was held for its shape although nothing that lives or was decided will do its work."""
        lane = self._fleet.lanes[name]
        for decision in self._decisions:
            if decision.lane == name and (isinstance(decision, Submit) or decision.passes or name in self._held):
                return False
        return any(
            self._now[i] > _EXACT
            and self._can_serve(name, w.request)
            and lane.refusal(name, w.request) is None
            and not any(self._will_serve(allocation, w.request) for allocation in self._living)
            for i, w in enumerate(self._work)
        )

    def _can_serve(self, name: str, request: Request) -> bool:
        return request.lane in (None, name) and self._fleet.lanes[name].refusal(name, request) is None

    def _will_serve(self, allocation: Living, request: Request) -> bool:
        """Whether a living allocation has the nodes and the time for a task."""
        return (
            allocation.lane in self._fleet.lanes
            and self._can_serve(allocation.lane, request)
            and request.nodes <= allocation.nodes
            and request.runtime_s <= allocation.left_s
        )

    def _absorb(self, allocation: Living) -> None:
        """Subtract what an allocation will take: now for as long as makes a node worthwhile, later for all its time."""
        lane = self._fleet.lanes.get(allocation.lane)
        if lane is None:
            return
        for left, span_s in ((self._now, 60 * lane.work_per_node_min), (self._later, allocation.left_s)):
            free = float(allocation.nodes)
            for index, w in enumerate(self._work):
                if left[index] <= _EXACT or not self._will_serve(allocation, w.request):
                    continue
                per_node = _tasks_per_node(w, lane.node, span_s)
                used = min(free, left[index] / per_node)
                left[index] -= used * per_node
                free -= used
                if free <= _EXACT:
                    break

    def _nodes_for(self, lane: Lane, index: int, count: float) -> float:
        return count / _tasks_per_node(self._work[index], lane.node, 60 * lane.work_per_node_min)


def _tasks_per_node(work: Work, node: Node, span_s: float) -> float:
    """How many tasks a node does in a time; a task that lasts longer is begun all the same."""
    return slots(work.request, node) * max(1, math.floor(span_s / max(work.task_s, _EXACT)))


def slots(request: Request, node: Node) -> float:
    """How many tasks of a kind a node runs side by side; a part of one for a gang, which takes several nodes."""
    if request.nodes > 1:
        return 1 / request.nodes
    if request.access == "exclusive":
        return 1
    fitting = [node.cores // request.threads]
    if request.mem_mb:
        fitting.append(node.memory_mb // request.mem_mb)
    if request.gpus:
        fitting.append(node.gpus // request.gpus)
    elif request.gpu_mem_mb:
        fitting.append(node.gpus * (node.gpu_mem_mb // request.gpu_mem_mb))
    return max(1, min(fitting))


def estimated_s(request: Request, learned_s: float | None) -> float:
    """How long a task is expected to take: what others of its class took, else what it is allowed."""
    return float(request.runtime_s) if learned_s is None else min(max(learned_s, 0.1), request.runtime_s)
