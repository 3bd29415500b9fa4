"""Being the one controller of a spool. Nothing breaks if there are two, but they would quarrel about workers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.files import explained_os_errors
from fleetcraft.ground.machine import boot_id, host_name, is_running, own_start
from fleetcraft.spool.errors import SpoolBusy
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.writer import Writer


class Controllership:
    """The right to control a spool, kept by raising a counter with `beat`.

    A controller on this machine is known to be gone by its process; one elsewhere by a counter that does not move while
    it is watched for `patience_s`.

    Raises
    ------
    SpoolBusy : another controller lives.
    """

    def __init__(self, writer: Writer, patience_s: float = 30.0):
        self._writer = writer
        self._spool = writer.spool
        self._counter = 0
        self._path = self._spool.layout.controller
        with explained_os_errors(self._path):
            self._take(patience_s)

    def beat(self) -> None:
        """A heartbeat: show that this controller lives. SpoolBusy if another took over meanwhile."""
        self._check()
        self._counter += 1
        self._spool.filesystem.publish(self._path, self._draft, self._content(), durable=False)

    def release(self) -> None:
        """Let another take control."""
        self._check()
        self._spool.filesystem.remove(self._path)

    @property
    def _draft(self) -> Path:
        return self._spool.layout.staging / f"controller-{self._writer.name}"

    def _content(self) -> bytes:
        writer = self._writer
        return canonical_json(
            {
                "writer": writer.name,
                "host": writer.host,
                "boot": writer.boot,
                "pid": os.getpid(),
                "start": own_start(),
                "counter": self._counter,
            }
        ).encode()

    def _take(self, patience_s: float) -> None:
        filesystem, clock = self._spool.filesystem, self._spool.clock
        watched_s = clock.monotonic()
        holder = self._holder()
        while holder is not None:
            here = (holder["host"], holder["boot"]) == (self._writer.host, self._writer.boot)
            if here and is_running(int(holder["pid"]), int(holder["start"])):
                raise self._busy(holder)
            if here or clock.monotonic() - watched_s >= patience_s:
                # Of several who come to this, all remove it and one alone can link its own.
                filesystem.remove(self._path)
                break
            clock.sleep(min(1.0, patience_s / 4))
            latest = self._holder()
            if latest is not None and latest != holder:
                raise self._busy(latest)
            holder = latest
        filesystem.create(self._draft, self._content())
        try:
            filesystem.link(self._draft, self._path)
        except FileExistsError:
            raise self._busy(self._holder() or {"host": "unknown", "pid": "unknown"}) from None
        finally:
            filesystem.remove(self._draft)
        self._writer.note("control taken")

    def _check(self) -> None:
        holder = self._holder()
        if holder is not None and holder["writer"] != self._writer.name:
            raise self._busy(holder)

    def _holder(self) -> dict[str, Any] | None:
        return _holder(self._spool)

    def _busy(self, holder: dict[str, Any]) -> SpoolBusy:
        return SpoolBusy(
            f"process {holder['pid']} on {holder['host']} controls this spool",
            file=self._spool.root,
            remedy="Wait for it or end it, or give this campaign a spool of its own",
        )


def has_controller(spool: Spool) -> bool:
    """Whether a controller has this spool. One that died on another machine counts until another takes its place."""
    holder = _holder(spool)
    if holder is None:
        return False
    here = (holder["host"], holder["boot"]) == (host_name(), boot_id())
    return not here or is_running(int(holder["pid"]), int(holder["start"]))


def _holder(spool: Spool) -> dict[str, Any] | None:
    try:
        value = json.loads(spool.filesystem.read(spool.layout.controller))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
