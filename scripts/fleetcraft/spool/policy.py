"""What follows the end of an attempt: done, tried again, or failed. Pure, so that every party decides alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetcraft.ground.errors import BadInput
from fleetcraft.spool.task import Attempt, Outcome, State, TaskSpec, is_crash

CERTAIN = frozenset({BadInput.failure_class})
"""Classes of failures that would come again on any node: no further attempt is worth its time."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits that hold for a whole spool; kept in `spool.json`, so that all its parties have the same.

    Parameters
    ----------
    failing_hosts : a task that fails by itself on this many hosts is failed, whatever retries are left.
    crashes : a task whose worker dies under it this often, for no known reason, is failed.
    attempts : no task is tried more often than this, whatever ends its attempts.
    """

    failing_hosts: int = 2
    crashes: int = 2
    attempts: int = 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """The state that an attempt's end leads to, and why, for people."""

    state: State
    reason: str


def decide(spec: TaskSpec, history: Sequence[Attempt], ending: Attempt, policy: Policy) -> Decision:
    """Where a task goes when an attempt has ended; `history` holds the ends of the attempts before it."""
    if ending.outcome is Outcome.SUCCEEDED:
        return Decision(State.DONE, "succeeded")
    if ending.outcome is Outcome.CANCELLED:
        return Decision(State.FAILED, "cancelled")
    if ending.outcome is Outcome.FAILED:
        failures = [attempt for attempt in (*history, ending) if attempt.outcome is Outcome.FAILED]
        hosts = sorted({attempt.host for attempt in failures})
        if len(failures) > spec.retries:
            times = f"; it failed {len(failures)} times, retries allowed {spec.retries}" if len(failures) > 1 else ""
            return Decision(State.FAILED, f"{ending.cause}{times}")
        if is_certain(ending):
            return Decision(State.FAILED, f"{ending.cause}; {ending.failure_class}, which another attempt won't change")
        if len(hosts) >= policy.failing_hosts:
            return Decision(State.FAILED, f"{ending.cause}; it failed on {len(hosts)} nodes ({', '.join(hosts)})")
    crashes = sum(is_crash(attempt) for attempt in (*history, ending))
    if is_crash(ending) and crashes >= policy.crashes:
        return Decision(State.FAILED, f"its worker died under it {crashes} times")
    if len(history) + 1 >= policy.attempts:
        return Decision(State.FAILED, f"{ending.cause}; tried {len(history) + 1} times, the most that is allowed")
    return Decision(State.PENDING, ending.cause)


def is_certain(ending: Attempt) -> bool:
    """Whether an attempt failed by what it was given: that says nothing of its node, and another would fail too."""
    return ending.outcome is Outcome.FAILED and ending.failure_class in CERTAIN
