"""Attempts in progress on this node: how they are started through launchers, and what is heard of them."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetcraft.ground.cgroup import KillCounter
from fleetcraft.ground.failures import Failure
from fleetcraft.ground.repository import node_copy
from fleetcraft.spool import Attempt, Claim, Outcome, Spool, Station
from fleetcraft.worker.context import (
    attempt_key,
    attempt_scratch,
    failure_file,
    slot_name,
    task_environment,
    write_node_file,
)
from fleetcraft.worker.evidence import Evidence, explain_end
from fleetcraft.worker.health import observe_node
from fleetcraft.worker.launchers import Launchers
from fleetcraft.worker.packing import Share

_MEASURED = ("wall_s", "cpu_s", "max_rss_mb", "strays")


@dataclass(slots=True)
class Running:
    """An attempt in progress.

    Parameters
    ----------
    kills : how many processes the kernel had killed here before it.
    alone : whether nothing else has run here since it began.
    """

    claim: Claim
    share: Share
    launcher: str
    started_s: float
    node_file: Path
    kills: int
    alone: bool
    stop_cause: str | None = None
    observed: dict[str, Any] = field(default_factory=dict)


class Attempts:
    """The attempts of one worker, by their keys; `open` it before the first one.

    What launchers report is kept in `events` until the worker has dealt with it, so that an error loses nothing.
    """

    def __init__(self, launchers: Launchers, spool: Spool, host: str, grace_s: float):
        self._launchers, self._spool, self._clock = launchers, spool, spool.clock
        self._host, self._grace_s = host, grace_s
        self._kills = KillCounter()
        self.running: dict[str, Running] = {}
        self.events: deque[dict[str, Any]] = deque()

    def open(self, station: Station, directory: Path, keep: int) -> None:
        """Have a place.

        Parameters
        ----------
        directory : on this machine alone, for what tasks are told of their node.
        keep : a descriptor that tasks hold open as long as they live.
        """
        self._station, self._directory, self._keep = station, directory, keep

    def knows(self, claim: Claim) -> bool:
        """Whether there is a launcher for what was claimed."""
        return self._launchers.knows(claim.record.spec.launcher)

    def start(self, claim: Claim, share: Share, observed: dict[str, Any], variables: Mapping[str, str]) -> None:
        """Start an attempt.

        Parameters
        ----------
        observed : what was seen of the node before it; goes into the node file and the result.
        variables : for its environment, beside those that every task gets.
        """
        key, spec = attempt_key(claim), claim.record.spec
        node_file = self._directory / f"{key}.json"
        write_node_file(node_file, claim, share, self._host, observed)
        scratch = attempt_scratch(key)
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
        launcher = self._launchers.of(spec.launcher)
        self._station.writer.note(
            "started",
            task=claim.name.id,
            attempt=claim.name.attempt,
            group=spec.group,
            access=claim.request.access,
            request=claim.request.class_name,
            slot=slot_name(self._host, share),
            threads=claim.request.threads,
        )
        alone = not self.running
        for other in self.running.values():
            other.alone = False
        self.running[key] = Running(
            claim,
            share,
            spec.launcher,
            self._clock.monotonic(),
            node_file,
            self._kills.count(),
            alone,
            observed=observed,
        )
        launcher.start(
            key,
            command=[node_copy(spec.command[0]), *spec.command[1:]],
            directory=spec.directory,
            environment={**task_environment(claim, share, self._host, self._station.name, node_file), **variables},
            log=self._spool.layout.log(claim.name),
            limit_s=claim.request.runtime_s,
            grace_s=self._grace_s,
            keep=self._keep,
        )

    def stop(self, cause: str, task_id: str | None = None) -> None:
        """Have a task ended, or all of them; the first cause holds, unless somebody asked for this one."""
        for key, run in self.running.items():
            if task_id is None or run.claim.name.id == task_id:
                run.stop_cause = cause if task_id is not None else run.stop_cause or cause
                self._launchers.of(run.launcher).stop(key)

    def finish(self, key: str, outcome: Outcome, cause: str, event: dict[str, Any]) -> tuple[Running, Attempt]:
        """An attempt is gone, and so is all that it had on this node: it, and the line that ends it.

        Parameters
        ----------
        event : what its launcher reported; empty where that died.
        """
        run = self.running[key]
        observed = run.observed
        if run.claim.request.access == "exclusive":
            observed = {**observed, "after": observe_node(run.share.gpus)}
        lasted_s, wall_s = self._clock.monotonic() - run.started_s, self._clock.wall()
        exit_code = event.get("exit_code")
        ending = replace(
            self._station.attempt(run.claim, outcome, cause),
            exit_code=exit_code,
            started_s=round(wall_s - lasted_s, 3),
            ended_s=round(wall_s, 3),
            log=str(self._spool.layout.log(run.claim.name).relative_to(self._spool.root)),
            measured={name: event[name] for name in _MEASURED if name in event},
            observed=observed,
            failure=self._failure(run, outcome, cause, event),
        )
        self._station.writer.note(
            "ended", task=run.claim.name.id, attempt=run.claim.name.attempt, outcome=outcome.value, exit_code=exit_code
        )
        run.node_file.unlink(missing_ok=True)
        failure_file(run.node_file).unlink(missing_ok=True)
        scratch = attempt_scratch(key)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        del self.running[key]
        return run, ending

    def _failure(self, run: Running, outcome: Outcome, cause: str, event: dict[str, Any]) -> dict[str, str]:
        if outcome is Outcome.SUCCEEDED:
            return {}
        left, log = Failure.read(failure_file(run.node_file)), self._spool.layout.log(run.claim.name)
        evidence = Evidence(event, left, run.kills, self._kills.kills(), run.alone, log)
        failure = explain_end(outcome, cause, run.claim.request, evidence)
        return failure.as_json() if failure is not None else {}

    def descriptors(self) -> list[int]:
        """Those of launchers, which become readable when something is to be heard."""
        return [launcher.fileno() for launcher in self._launchers.present().values()]

    def hear(self, ready: Collection[int]) -> None:
        """Take in what launchers report."""
        for kind, launcher in self._launchers.present().items():
            if launcher.fileno() in ready:
                events = launcher.events()
                self.events.extend(events if events is not None else [{"died": kind}])

    def as_lease(self) -> list[dict[str, Any]]:
        """What a lease says of them."""
        now_s, wall_s = self._clock.monotonic(), self._clock.wall()
        return [
            {
                "id": run.claim.name.id,
                "attempt": run.claim.name.attempt,
                "group": run.claim.record.spec.group,
                "slot": slot_name(self._host, run.share),
                "since_s": round(wall_s - (now_s - run.started_s), 3),
            }
            for run in self.running.values()
        ]
