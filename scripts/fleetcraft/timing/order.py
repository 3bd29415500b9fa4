"""In which order arms are timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pass:
    """One run of one arm on one prompt.

    round : counts from 0 within its kind; the passes of one round are compared with each other.
    warmup : a pass that is recorded and never averaged in.
    """

    arm: str
    prompt: int
    round: int
    warmup: bool


def interleaved(arms: Sequence[str], prompts: int, warmup: int, repeats: int) -> Iterator[Pass]:
    """All passes of a job: for each prompt `warmup` rounds, then `repeats` rounds, each of all arms.

    Every second round runs backwards (A B, B A, A B …): what drifts steadily, a warming device above all, then weighs
    on all arms alike.
    """
    for prompt in range(prompts):
        for number in range(warmup + repeats):
            is_warmup = number < warmup
            order = list(arms) if number % 2 == 0 else list(reversed(arms))
            for arm in order:
                yield Pass(arm, prompt, number if is_warmup else number - warmup, is_warmup)
