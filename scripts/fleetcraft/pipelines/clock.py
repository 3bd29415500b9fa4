"""Seconds by phase, of work that a device does on its own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch

_RUNNING: ContextVar[Clock | None] = ContextVar("running clock", default=None)


class Clock:
    """Measures phases of one pass, and each denoising step; the device has done its work whenever the clock is read.

    seconds : phase → seconds, summed over its spans; what is measured inside of another phase is taken out of that.
    steps_s : of each denoising step.
    """

    def __init__(self, device: str):
        self.seconds: dict[str, float] = {}
        self.steps_s: list[float] = []
        self._synchronize: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self._inner: list[float] = []

    def now(self) -> float:
        """The monotonic clock, once the device has nothing left to do."""
        self._synchronize()
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside as the phase `name`."""
        start = self.now()
        self._inner.append(0.0)
        try:
            yield
        finally:
            elapsed = self.now() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inner.pop()
            if self._inner:
                self._inner[-1] += elapsed


@contextmanager
def watched(pipeline: Any, clock: Clock) -> Iterator[None]:
    """Count a pipeline's text encoding as a phase of its own, and each step of its scheduler.

    A pipeline of diffusers calls `encode_prompt` once and `scheduler.step` once a step, whatever its family.
    """
    encode, step = pipeline.encode_prompt, pipeline.scheduler.step
    last = clock.now()

    def timed_encode(*arguments: Any, **named: Any) -> Any:
        nonlocal last
        with clock.phase("text_encode"):
            answer = encode(*arguments, **named)
        last = clock.now()
        return answer

    def timed_step(*arguments: Any, **named: Any) -> Any:
        nonlocal last
        answer = step(*arguments, **named)
        before, last = last, clock.now()
        clock.steps_s.append(last - before)
        return answer

    pipeline.encode_prompt, pipeline.scheduler.step = timed_encode, timed_step
    try:
        yield
    finally:
        # Instance attributes that hide the class's methods: without them, the methods are there again.
        del pipeline.encode_prompt, pipeline.scheduler.step


@contextmanager
def running(clock: Clock) -> Iterator[None]:
    """Let `span` in what is called from here count on `clock`."""
    token = _RUNNING.set(clock)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def span(name: str) -> AbstractContextManager[None]:
    """A phase of the clock that is running; nothing, and no waiting for the device, where none is."""
    clock = _RUNNING.get()
    return nullcontext() if clock is None else clock.phase(name)
