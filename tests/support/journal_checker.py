"""Proves from the journal alone what ran when, and that exclusive attempts were alone on their nodes.

Independent of the library: it reads JSON lines. Within one boot of one host all processes share a monotonic clock, so
times there are comparable. A worker writes "started" before it starts an attempt, "ended" after all its processes are
gone. An attempt whose worker was killed has no "ended": it has ended when a reaper wrote "worker gone", which it does
when it knows that and before it takes anything back; or when another worker of the host wrote "node alone" or "gang
joined" (for an exclusive attempt also "node entered"), because the kernel gives that lock only when no process holds
the one before. So every interval here contains the true one, and finding no overlap is a proof.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Interval:
    """One attempt on a node; `end_s` is infinite if nothing in the journal bounds it."""

    task: str
    attempt: int
    worker: str
    host: str
    boot: str
    start_s: float
    end_s: float
    exclusive: bool
    slot: str
    threads: int

    def overlaps(self, other: Interval) -> bool:
        same_node = (self.host, self.boot) == (other.host, other.boot)
        return same_node and self.start_s < other.end_s and other.start_s < self.end_s


@dataclass(frozen=True)
class Proof:
    """What the journal shows. `violations` is empty if every exclusive attempt was alone."""

    exclusive: int
    shared: int
    overlapping_shared: int
    violations: list[str]


def entries(root: Path) -> list[dict]:
    found = []
    for path in (root / "journal").glob("*/*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def intervals(root: Path) -> list[Interval]:
    """Every attempt that was started, in order."""
    journal = entries(root)
    ended = {(e["writer"], e["task"], e["attempt"]): e["monotonic_s"] for e in journal if e["event"] == "ended"}
    alone = [e for e in journal if e["event"] in ("node alone", "gang joined")]
    entered = [*alone, *(e for e in journal if e["event"] == "node entered")]
    taken_back: dict[tuple[str, str], float] = {}
    for e in journal:
        if e["event"] == "worker gone":
            key = (e["worker"], e["boot"])
            taken_back[key] = min(e["monotonic_s"], taken_back.get(key, math.inf))
    found = []
    for e in journal:
        if e["event"] != "started":
            continue
        end_s = ended.get((e["writer"], e["task"], e["attempt"]))
        if end_s is None:
            successors = [
                other["monotonic_s"]
                for other in (entered if e["access"] == "exclusive" else alone)
                if (other["host"], other["boot"]) == (e["host"], e["boot"])
                and other["writer"] != e["writer"]
                and other["monotonic_s"] > e["monotonic_s"]
            ]
            end_s = min([taken_back.get((e["writer"], e["boot"]), math.inf), *successors])
        found.append(
            Interval(
                e["task"], e["attempt"], e["writer"], e["host"], e["boot"], e["monotonic_s"], end_s,
                e["access"] == "exclusive", e["slot"], e["threads"],
            )
        )  # fmt: skip
    return sorted(found, key=lambda interval: interval.start_s)


def check_single(root: Path) -> list[str]:
    """Attempts of one task that ran at the same time, and attempts that started after the task was done."""
    runs = intervals(root)
    done = {
        (e["task"], e["boot"]): e["monotonic_s"] for e in entries(root) if e["event"] == "settled" and e["to"] == "done"
    }
    problems = []
    for index, a in enumerate(runs):
        if a.start_s > done.get((a.task, a.boot), math.inf):
            problems.append(f"{a.task}-a{a.attempt} started after the task was done")
        for b in runs[index + 1 :]:
            if b.task == a.task and b.boot == a.boot and b.start_s < a.end_s:
                problems.append(f"{a.task} ran twice at a time: attempts {a.attempt} and {b.attempt}")
    return problems


@dataclass(frozen=True)
class Kept:
    """A node that was kept empty for a gang that another worker led."""

    task: str
    attempt: int
    host: str
    boot: str
    start_s: float
    end_s: float


def kept_nodes(root: Path) -> list[Kept]:
    """Every node that was empty for a gang: until it was left, or its dead worker's hold on it had come to an end."""
    journal = entries(root)
    left = {(e["writer"], e["task"], e["attempt"]): e["monotonic_s"] for e in journal if e["event"] == "gang left"}
    found = []
    for e in journal:
        if e["event"] == "gang joined":
            end_s = left.get((e["writer"], e["task"], e["attempt"]))
            if end_s is None:
                ends = [
                    other["monotonic_s"]
                    for other in journal
                    if (other["event"] == "worker gone" and other["worker"] == e["writer"])
                    or (
                        other["event"] in ("node entered", "node alone", "gang joined")
                        and (other["host"], other["boot"]) == (e["host"], e["boot"])
                        and other["writer"] != e["writer"]
                    )
                ]
                end_s = min((end for end in ends if end > e["monotonic_s"]), default=math.inf)
            found.append(Kept(e["task"], e["attempt"], e["host"], e["boot"], e["monotonic_s"], end_s))
    return found


def trespassers(root: Path) -> list[str]:
    """Attempts that ran on a node that was kept for a gang."""
    return [
        f"{run.task}-a{run.attempt} ran on {kept.host}, which was kept for {kept.task}"
        for run in intervals(root)
        for kept in kept_nodes(root)
        if (kept.host, kept.boot) == (run.host, run.boot) and run.start_s < kept.end_s and kept.start_s < run.end_s
    ]


def check_gangs(root: Path) -> list[str]:
    """Gangs that ran without all of their nodes, and attempts that ran on a node that was kept for one."""
    kept = kept_nodes(root)
    requests = {(e["task"], e["attempt"]): e["request"] for e in entries(root) if e["event"] == "started"}
    problems = []
    for run in intervals(root):
        wanted = int(re.search(r"-n(\d+)-", requests[run.task, run.attempt])[1])
        mine = [k for k in kept if (k.task, k.attempt) == (run.task, run.attempt) and k.start_s <= run.start_s]
        hosts = {k.host for k in mine if k.end_s >= run.end_s} | {run.host}
        if len(hosts) != wanted:
            problems.append(f"{run.task}-a{run.attempt} ran on {sorted(hosts)}, and asks for {wanted} nodes")
    return [*problems, *trespassers(root)]


def check_exclusive(root: Path) -> Proof:
    """Whether exclusive attempts were alone on their nodes, and whether shared ones were not."""
    runs = intervals(root)
    pairs = [(a, b) for index, a in enumerate(runs) for b in runs[index + 1 :] if a.overlaps(b)]
    violations = [
        f"{a.task}-a{a.attempt} and {b.task}-a{b.attempt} ran together on {a.host}"
        for a, b in pairs
        if a.exclusive or b.exclusive
    ]
    exclusive = sum(run.exclusive for run in runs)
    return Proof(exclusive, len(runs) - exclusive, len(pairs) - len(violations), violations)
