"""The ledger of a stage: what each of its phases took in seconds and in memory, and who held the memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

Phase = Literal[
    "build",
    "verify",
    "load",
    "text_encoder",
    "denoise",
    "load_decoder",
    "decode",
    "encode",
    "copy",
    "check",
    "measure",
    "score",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases that are accounted for, in the order in which a model, then a video goes through them."""

PEAK = "peak"
"""Stands beside the owners for all that the process held at most, theirs and everything else."""

Held = dict[str, float | None]
"""`host_mb` and `device_mb`, in MiB; None is "not measured"."""

_MIB = 2**20
_RESET_PEAK = "5"  # proc(5): resets the peak of the resident set, and nothing else


class Ledger:
    """Seconds and memory by phase. Bulk figures: they say where time and memory went, not what a latency is.

    One phase at a time: to begin one ends another. Its peak is the peak of the process while it lasted, what earlier
    phases left behind included; `holds` tells the owners of that.

    Attributes
    ----------
    seconds : phase → seconds, on the monotonic clock.
    memory : phase → owner → what it held at most; the owner `peak` stands for the whole process.
    """

    def __init__(self, before: Ledger | None = None):
        """Parameters: `before`, the ledger of what was done once and still holds its memory, such as loading."""
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, dict[str, Held]] = {}
        self._owners: dict[str, Held] = dict(before._owners) if before else {}
        self._phase: Phase | None = None
        self._start = 0.0

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """What runs inside is of this phase, until `switch` tells otherwise."""
        self.switch(name)
        try:
            yield
        finally:
            self._end()

    def switch(self, name: Phase) -> None:
        """The phase `name` goes on from here, for those who see it begin but not end."""
        if name != self._phase:
            self._end()
            self._phase, self._start = name, time.monotonic()
            _reset_peaks()

    def holds(self, owner: str, held: Held) -> None:
        """From this phase on, `owner` holds so much; if told several times, the most counts."""
        self._owners[owner] = most(self._owners.get(owner), held)

    def _end(self) -> None:
        if self._phase is None:
            return
        name, self._phase = self._phase, None
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - self._start, 6)
        owners = self.memory.setdefault(name, {})
        for owner, held in {PEAK: _peaks(), **self._owners}.items():
            owners[owner] = most(owners.get(owner), held)


def held(host_bytes: int, device_bytes: int | None = None) -> Held:
    """So many bytes, in MiB."""
    return {
        "host_mb": round(host_bytes / _MIB, 3),
        "device_mb": None if device_bytes is None else round(device_bytes / _MIB, 3),
    }


def most(one: Held | None, other: Held) -> Held:
    """The larger of each figure; a measured one rather than none."""
    if one is None:
        return other
    figures = {name: [value for value in (one[name], other[name]) if value is not None] for name in other}
    return {name: max(values, default=None) for name, values in figures.items()}


def host_peak_mb() -> float | None:
    """Most memory that this process had resident, in MiB, since the kernel was last told to forget; None if unknown."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if kilobytes is None else round(int(kilobytes) / 1024, 3)


_can_reset = True
_highest_mb = 0.0


def _reset_peaks() -> None:
    global _can_reset, _highest_mb
    peak = host_peak_mb()
    if peak is not None and peak > _highest_mb:
        _highest_mb = peak
        _keep_in_accounts()
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        _can_reset = False
    if (torch := _torch_with_device()) is not None:
        torch.cuda.reset_peak_memory_stats()


def _keep_in_accounts() -> None:
    """See that the peak of this process stays in what its parent is told of it (`ru_maxrss`), reset or not.

    A child that borrows our memory until it becomes another program takes our peak into its own accounts, and the
    accounts of children are part of ours.
    """
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}), 0)


def _peaks() -> Held:
    torch = _torch_with_device()
    device = None if torch is None else round(torch.cuda.max_memory_allocated() / _MIB, 3)
    # Where the kernel can't forget, its figure is the peak of all phases so far, which is another thing.
    return {"host_mb": host_peak_mb() if _can_reset else None, "device_mb": device}


def _torch_with_device() -> Any:
    # Asked only where the stage has loaded it: importing torch for a figure would cost more than most stages.
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None
