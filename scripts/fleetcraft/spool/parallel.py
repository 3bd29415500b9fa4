"""Waiting for several syncs at once.

A sync is a wait, for a disk's journal or for a file server; several at a time are committed together. The threads live
no longer than one call, so that the process can be forked at any other time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_THREADS = 8


def each(action: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """`action` of every item, in the order of the items; the first error is raised when all threads have ended."""
    work = list(items)
    if len(work) < 2:
        return [action(item) for item in work]
    answers: dict[int, Answer] = {}
    errors: list[BaseException] = []
    waiting = list(enumerate(work))
    waiting.reverse()

    def serve() -> None:
        while not errors:
            try:
                # `pop` of a list is one step for all threads.
                index, item = waiting.pop()
            except IndexError:
                return
            try:
                answers[index] = action(item)
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asked
                errors.append(error)

    threads = [threading.Thread(target=serve) for _ in range(min(_THREADS, len(work)) - 1)]
    for thread in threads:
        thread.start()
    serve()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [answers[index] for index in range(len(work))]
