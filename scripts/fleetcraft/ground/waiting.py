"""Waiting for descriptors, however high their numbers are (select can't above 1023)."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], timeout_s: float | None) -> set[int]:
    """Those that can be read from, or whose other end is closed; none when the time is over (None waits for ever)."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    timeout_ms = None if timeout_s is None else math.ceil(max(timeout_s, 0.0) * 1000)
    return {descriptor for descriptor, _ in poll.poll(timeout_ms)}
