"""Records of allocations: a directory each in the spool, so that a controller that starts again knows what lives.

```
fleet/<token>/record.json      lane, nodes, job, state; written before the job is submitted, and when something changes
fleet/<token>/allocation.sh    what was submitted
fleet/<token>/worker.sh        what each of its steps runs
fleet/<token>/job.log          output of the job
fleet/<token>/<node>.log       output of a node's worker, and what Slurm said about its step
fleet/<token>/exits            a line a worker that has left: node, exit code
```
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.files import write_text
from fleetcraft.spool import Spool

VERSION = 1

State = Literal["submitting", "submitted", "ended"]

_CANCELLED = "CANCELLED AT"
_REASONS = {
    "DUE TO TIME LIMIT": "walltime",
    "DUE TO PREEMPTION": "preempted",
    "DUE TO NODE FAILURE": "node lost",
}


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of an allocation.

    Parameters
    ----------
    token : names it within the spool; `name` is the job's name in Slurm, by which it is found when nobody saw its
        number.
    walltime_s : that was asked for.
    ending : why it ended; empty while it lives.
    """

    token: str
    lane: str
    nodes: int
    walltime_s: int
    cost: float
    name: str
    state: State
    submitted_s: float
    job: int | None = None
    ending: str = ""


class Records:
    """All records of a spool."""

    def __init__(self, spool: Spool):
        self._spool = spool
        self.root = spool.root / "fleet"

    def new(self, lane: str, nodes: int, walltime_s: int, cost: float) -> Record:
        """A record of an allocation that is about to be submitted; not written yet."""
        token = uuid.uuid4().hex[:10]
        name = f"fleetcraft-{self._spool.campaign[:40]}-{token}"
        return Record(token, lane, nodes, walltime_s, cost, name, "submitting", round(self._spool.clock.wall(), 3))

    def directory(self, record: Record) -> Path:
        """Where everything about it lies."""
        return self.root / record.token

    def write(self, record: Record) -> None:
        """Make or replace a record, durably."""
        content = {"version": VERSION, **asdict(record)}
        write_text(self.directory(record) / "record.json", canonical_json(content) + "\n")

    def read(self) -> list[Record]:
        """All of them, oldest first; what isn't a record is left out."""
        records = []
        for token in self._spool.filesystem.list(self.root):
            try:
                value = json.loads(self._spool.filesystem.read(self.root / token / "record.json"))
                if value.pop("version") == VERSION:
                    records.append(Record(**value))
            except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError, AttributeError):
                continue
        return sorted(records, key=lambda record: (record.submitted_s, record.token))

    def exits(self, record: Record) -> dict[str, int]:
        """Node → exit code, of the workers that have left."""
        found = {}
        try:
            text = (self.directory(record) / "exits").read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        for line in text.splitlines():
            node, _, code = line.partition(" ")
            if code.isdecimal():
                found[node] = int(code)
        return found

    def log_tail(self, record: Record, lines: int = 15) -> str:
        """How the log of a worker that failed ends; of the job where there is none."""
        failed = [node for node, code in self.exits(record).items() if code != 0]
        names = [*(f"{node}.log" for node in failed), "job.log"]
        for path in (self.directory(record) / name for name in names):
            if path.is_file() and path.stat().st_size:
                tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
                return f"{path} ends:\n    " + "\n    ".join(tail)
        return f"there is no log in {self.directory(record)}"

    def step_ending(self, token: str, node: str, job: int, step: str) -> str | None:
        """Why Slurm ended a step, as Slurm itself wrote it into the node's log; None where it didn't."""
        path = self.root / token / f"{node}.log"
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        for line in text.splitlines():
            if line.startswith("srun:") and line.endswith(f"Node failure on {node}"):
                return "node lost"
            if f"STEP {job}.{step} ON" in line and _CANCELLED in line:
                return next((cause for sign, cause in _REASONS.items() if sign in line), "step cancelled")
        return None
