"""How an attempt ended, and by whose doing."""

from __future__ import annotations

import signal
from typing import Any

from fleetcraft.spool import Outcome, Request, TaskSpec
from fleetcraft.worker.outputs import sync_outputs

CANCELLED = "cancelled"
"""The cause of a stop that somebody ordered for this task; any other cause of a stop is the node's."""


def judge(spec: TaskSpec, request: Request, event: dict[str, Any], stop_cause: str | None) -> tuple[Outcome, str]:
    """Outcome and cause of an attempt that was started and is gone.

    Success is only reported when the outputs are durable.

    Parameters
    ----------
    event : what the launcher reports.
    stop_cause : why the worker ended it; None where it didn't.
    """
    code = event["exit_code"]
    if stop_cause == CANCELLED:
        return Outcome.CANCELLED, CANCELLED
    if code == 0 and not event["timed_out"]:
        missing = sync_outputs(spec.outputs, spec.directory)
        return (Outcome.SUCCEEDED, "succeeded") if missing is None else (Outcome.FAILED, missing)
    if stop_cause is not None:
        return Outcome.INTERRUPTED, stop_cause
    if event["timed_out"]:
        return Outcome.FAILED, f"it ran longer than its runtime of {request.runtime_s} s"
    if code is None:
        return Outcome.FAILED, "it could not be killed"
    if code < 0:
        return Outcome.FAILED, f"it was killed by {signal.Signals(-code).name}"
    return Outcome.FAILED, f"exit code {code}"
