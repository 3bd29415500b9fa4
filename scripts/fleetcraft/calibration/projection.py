"""How a campaign would use its fleet, before it is started: the cycle of a video, busy time, hours, estimated MFU."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from fleetcraft.calibration.hardware import estimated_mfu


@dataclass(frozen=True)
class ArmWork:
    """What one arm asks for, from its calibration.

    jobs : samples of each of its shards.
    load_s : seconds until a job's model is ready, once a job.
    device_s, host_s : seconds a sample by phase, of those that occupy a device and those that share the node's CPUs.
    flops : of the transformer, a sample.
    """

    arm: str
    jobs: tuple[int, ...]
    load_s: float
    device_s: dict[str, float]
    host_s: dict[str, float]
    flops: float


@dataclass(frozen=True)
class Projection:
    """What is to be expected of a fleet of `devices`.

    cycle_s : phase → seconds a video, load shared out over a job's videos.
    hours : until the last video is scored. device_hours : of allocation until then.
    busy_fraction : share of them in which a device has work (load included).
    estimated_mfu : over all of the allocation; None where the device's peak isn't known.
    """

    videos: int
    devices: int
    cycle_s: dict[str, float]
    hours: float
    device_hours: float
    busy_fraction: float
    estimated_mfu: float | None


def project(
    work: Sequence[ArmWork], devices: int, host_lanes: int, start_s: float, peak_tflops: float | None
) -> Projection:
    """Pack the jobs on `devices`, longest first, and the host's phases on `host_lanes` beside them.

    start_s : seconds that a worker needs before its first task.
    """
    videos = sum(sum(arm.jobs) for arm in work)
    durations = sorted(
        (arm.load_s + samples * sum(arm.device_s.values()) for arm in work for samples in arm.jobs), reverse=True
    )
    ends = [start_s] * devices
    for duration in durations:
        heapq.heapreplace(ends, ends[0] + duration)
    host_s = [samples * sum(arm.host_s.values()) for arm in work for samples in arm.jobs]
    # The host's phases run while devices work on; what is left after the last device is one job's at least.
    makespan = max(max(ends) + min(host_s), start_s + sum(host_s) / host_lanes)
    allocated = makespan * devices
    flops = sum(arm.flops * sum(arm.jobs) for arm in work)
    return Projection(
        videos=videos,
        devices=devices,
        cycle_s=_cycle(work, videos),
        hours=makespan / 3600,
        device_hours=allocated / 3600,
        busy_fraction=sum(durations) / allocated,
        estimated_mfu=None if peak_tflops is None else estimated_mfu(flops, allocated, peak_tflops),
    )


def _cycle(work: Sequence[ArmWork], videos: int) -> dict[str, float]:
    cycle: dict[str, float] = {"load": sum(arm.load_s * len(arm.jobs) for arm in work) / videos}
    for arm in work:
        for phase, seconds in {**arm.device_s, **arm.host_s}.items():
            cycle[phase] = cycle.get(phase, 0.0) + seconds * sum(arm.jobs) / videos
    return cycle
