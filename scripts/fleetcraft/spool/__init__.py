"""The spool: how tasks reach workers and results come back, through a directory on a shared file system.

Standard library and the ground floor only: no batch system, no workflow system. The format is described in `README.md`.

    spool = Spool.create(path, "campaign")
    with Writer(spool, "controller") as writer:
        Producer(writer).enqueue([TaskSpec("hello", ("echo", "hello"), "/tmp")])

A worker opens a `Station`, claims, and ends its claims; a controller polls a `ResultScanner` and steps a `Reaper`.
"""

from fleetcraft.spool.control import abort, aborted, cancel, drain, drained, lift_drain, resume
from fleetcraft.spool.controller import Controllership, has_controller
from fleetcraft.spool.errors import BadSpool, Reaped, SpoolBusy, UnreadableTask
from fleetcraft.spool.filesystem import Filesystem
from fleetcraft.spool.journal import JournalTail, merged_journal, read_journals
from fleetcraft.spool.leases import Lease, LeaseWatch, Liveness, Oracle, Verdict, read_lease, read_leases
from fleetcraft.spool.names import Request, TaskName
from fleetcraft.spool.policy import Decision, Policy, decide, is_certain
from fleetcraft.spool.producer import Enqueued, Producer
from fleetcraft.spool.reaper import Reaper, ReaperReport
from fleetcraft.spool.results import Result, ResultScanner
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.station import Claim, Station
from fleetcraft.spool.survey import Place, read_task, survey
from fleetcraft.spool.task import CRASHED, FINAL_STATES, Attempt, Outcome, State, TaskRecord, TaskSpec
from fleetcraft.spool.writer import Writer

__all__ = [
    "CRASHED",
    "FINAL_STATES",
    "Attempt",
    "BadSpool",
    "Claim",
    "Controllership",
    "Decision",
    "Enqueued",
    "Filesystem",
    "JournalTail",
    "Lease",
    "LeaseWatch",
    "Liveness",
    "Oracle",
    "Outcome",
    "Place",
    "Policy",
    "Producer",
    "Reaped",
    "Reaper",
    "ReaperReport",
    "Request",
    "Result",
    "ResultScanner",
    "Spool",
    "SpoolBusy",
    "State",
    "Station",
    "TaskName",
    "TaskRecord",
    "TaskSpec",
    "UnreadableTask",
    "Verdict",
    "Writer",
    "abort",
    "aborted",
    "cancel",
    "decide",
    "drain",
    "drained",
    "has_controller",
    "is_certain",
    "lift_drain",
    "merged_journal",
    "read_journals",
    "read_lease",
    "read_leases",
    "read_task",
    "resume",
    "survey",
]
