"""Proves from the journal alone what ran when, and that exclusive attempts were alone on their nodes.

Independent of the library: it reads JSON lines. Within one boot of one host all processes share a monotonic clock, so
times there are comparable. A worker writes "started" before it starts an attempt and "ended" after all processes of it
are gone; an attempt whose worker was killed ends at the latest when the worker's claims were taken back, which the
reaper writes after its processes are gone. So every interval here contains the true one: finding no overlap is a proof.
"""

from __future__ import annotations

import json
import math
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
    taken_back = {(e["worker"], e["boot"]): e["monotonic_s"] for e in journal if e["event"] == "worker gone"}
    found = []
    for e in journal:
        if e["event"] != "started":
            continue
        end_s = ended.get((e["writer"], e["task"], e["attempt"]), taken_back.get((e["writer"], e["boot"]), math.inf))
        found.append(
            Interval(
                e["task"], e["attempt"], e["writer"], e["host"], e["boot"], e["monotonic_s"], end_s,
                e["access"] == "exclusive", e["slot"], e["threads"],
            )
        )  # fmt: skip
    return sorted(found, key=lambda interval: interval.start_s)


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
