"""Which batch is frozen: from trials of complete tasks, with the reason for each that was not taken.

A larger batch has to earn its place. It must leave headroom in every phase, of device and of host memory, since the
peak is often in decode or in host staging and not where one looks; and it must raise throughput by more than a margin,
since a path that is bound by arithmetic at batch one gains nothing from more samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Capacity:
    """The memory of one slot, in MiB; None where a kind isn't measured there."""

    device_mb: float | None
    host_mb: float


@dataclass(frozen=True)
class Policy:
    """What a batch has to keep to.

    target : share of device memory that a batch should reach, and should not exceed. A heuristic, not a quota: below
        it a larger batch is worth a trial, and nothing more.
    headroom : share of memory that must stay free in every phase, on the device and on the host.
    gain : relative throughput that a larger batch must add to the smaller one that it would replace.
    """

    target: tuple[float, float] = (0.70, 0.85)
    headroom: float = 0.15
    gain: float = 0.10


@dataclass(frozen=True)
class Trial:
    """One complete task at one batch: load, denoise, decode, encode, score, write.

    peaks : phase → {"device_mb": …, "host_mb": …}, the latter None where not measured.
    videos_per_hour : throughput of the cycle; None where the trial failed.
    failure : class of its failure, or None. Running out of memory is a result, not a crash.
    """

    batch: int
    peaks: dict[str, dict[str, float | None]] = field(default_factory=dict)
    videos_per_hour: float | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of one trial, and why."""

    batch: int
    taken: bool
    reason: str


@dataclass(frozen=True)
class Decision:
    """The frozen batch; None where not even the smallest trial may run. One verdict a trial, by batch."""

    batch: int | None
    verdicts: tuple[Verdict, ...]
    advice: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "verdicts": [
                {"batch": verdict.batch, "taken": verdict.taken, "reason": verdict.reason} for verdict in self.verdicts
            ],
            **({"advice": self.advice} if self.advice else {}),
        }


def decide(trials: Sequence[Trial], capacity: Capacity, policy: Policy = Policy()) -> Decision:
    """The batch to freeze.

    Trials are judged from the smallest batch up. Each that fits is held against the best that was taken before it.

    Raises ValueError for two trials of one batch: which of them counts would be a guess.
    """
    trials = sorted(trials, key=lambda trial: trial.batch)
    if len({trial.batch for trial in trials}) < len(trials):
        raise ValueError("two trials have the same batch")
    best: Trial | None = None
    reasons: dict[int, str] = {}
    for trial in trials:
        obstacle = _obstacle(trial, capacity, policy)
        if obstacle is None and best is not None:
            obstacle = _too_little_gain(trial, best, policy)
        if obstacle is None:
            if best is not None:
                reasons[best.batch] = f"batch {trial.batch} makes more: {_gain(trial, best):+.1%}"
            best = trial
        else:
            reasons[trial.batch] = obstacle
    if best is not None:
        rate = best.videos_per_hour or 0.0
        shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        reasons[best.batch] = f"{shown} videos an hour; {_fullest(best, capacity)}"
    verdicts = tuple(Verdict(trial.batch, trial is best, reasons[trial.batch]) for trial in trials)
    return Decision(None if best is None else best.batch, verdicts, _advice(best, trials, capacity, policy))


def _obstacle(trial: Trial, capacity: Capacity, policy: Policy) -> str | None:
    """Why a batch can't be taken whatever it gains."""
    if trial.failure is not None:
        return f"failed: {trial.failure}"
    if trial.videos_per_hour is None:
        return "its throughput was not measured"
    for kind, phase, used, share in _shares(trial, capacity):
        if share > 1 - policy.headroom:
            return (
                f"{phase} leaves {1 - share:.0%} of {kind} memory free ({used:,.0f} MiB used),"
                f" {policy.headroom:.0%} are to stay free in every phase"
            )
    return None


def _too_little_gain(trial: Trial, best: Trial, policy: Policy) -> str | None:
    gain = _gain(trial, best)
    if gain > policy.gain:
        return None
    return f"throughput {gain:+.1%} against batch {best.batch}, more than {policy.gain:+.0%} is asked of a larger batch"


def _gain(trial: Trial, best: Trial) -> float:
    assert trial.videos_per_hour is not None
    assert best.videos_per_hour is not None
    return trial.videos_per_hour / best.videos_per_hour - 1


def _shares(trial: Trial, capacity: Capacity) -> list[tuple[str, str, float, float]]:
    """(kind, phase, MiB, share of what there is) of every peak that was measured, the largest share first."""
    found = [
        (kind, phase, used, used / there)
        for phase, peak in trial.peaks.items()
        for kind, there in (("device", capacity.device_mb), ("host", capacity.host_mb))
        if there and (used := peak.get(f"{kind}_mb")) is not None
    ]
    return sorted(found, key=lambda one: -one[3])


def _fullest(trial: Trial, capacity: Capacity) -> str:
    shares = _shares(trial, capacity)
    if not shares:
        return "memory was not measured"
    kind, phase, _, share = shares[0]
    return f"fullest in {phase}: {share:.0%} of {kind} memory"


def _advice(best: Trial | None, trials: Sequence[Trial], capacity: Capacity, policy: Policy) -> str | None:
    """What to try next, if anything."""
    if best is None:
        return "no batch fits: chunk or tile the decode, use a smaller shape, or a device with more memory"
    largest = trials[-1]
    device = [share for kind, _, _, share in _shares(best, capacity) if kind == "device"]
    if best is largest and device and device[0] < policy.target[0]:
        return (
            f"no phase reaches {policy.target[0]:.0%} of device memory and the largest batch tried was taken:"
            f" batch {2 * best.batch} is worth a trial"
        )
    return None
