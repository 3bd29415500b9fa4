"""Which batch is frozen, by the cases of the source figures and by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.calibration.decision import Capacity, Policy, Trial, decide
from fleetcraft.calibration.hardware import estimated_mfu, hardware
from fleetcraft.calibration.projection import ArmWork, project
from fleetcraft.ground.errors import BadInput

GH200 = Capacity(device_mb=96_000, host_mb=116_000)
"""A GH200 with 96 GB, and the host memory that a job may use on its node."""


def trial(batch: int, rate: float, device_gb: float, host_gb: float = 10, phase: str = "denoise") -> Trial:
    return Trial(batch, {phase: {"device_mb": device_gb * 1000, "host_mb": host_gb * 1000}}, rate)


def test_a_path_that_is_bound_by_arithmetic_stays_at_batch_one() -> None:
    # Wan 2.1 1.3B on GH200: 0.92 videos a minute at batch one, 0.90 batched, out of memory at eight.
    decision = decide(
        [trial(1, 60 * 0.92, 30), trial(4, 60 * 0.90, 60), Trial(8, failure="device out of memory")], GH200
    )
    assert decision.batch == 1
    assert [verdict.taken for verdict in decision.verdicts] == [True, False, False]
    assert "-2.2%" in decision.verdicts[1].reason
    assert "device out of memory" in decision.verdicts[2].reason


def test_eight_percent_do_not_buy_a_larger_batch_and_a_smaller_margin_lets_them() -> None:
    trials = [trial(1, 100, 30), trial(2, 108, 40)]
    assert decide(trials, GH200).batch == 1
    assert decide(trials, GH200, Policy(gain=0.05)).batch == 2


def test_the_decode_s_peak_rules_a_batch_out_though_denoising_fits() -> None:
    # 60 s of video at batch four: 48 to 54 GB while denoising, 91 GB in decode.
    peaks = {"denoise": {"device_mb": 54_000, "host_mb": 8_000}, "decode": {"device_mb": 91_000, "host_mb": 20_000}}
    decision = decide([trial(1, 20, 30), Trial(4, peaks, 70)], GH200)
    assert decision.batch == 1
    assert "decode leaves 5% of device memory free" in decision.verdicts[1].reason


def test_host_memory_bounds_the_batch_at_long_horizons() -> None:
    # 240 s of video: 18.5 GB of pixels a sample in host memory; batch four was killed, batch two was safe.
    def staged(batch: int) -> Trial:
        peaks: dict[str, dict[str, float | None]] = {
            "denoise": {"device_mb": 25_000 + 5_000 * batch, "host_mb": 9_000},
            "staging": {"device_mb": 30_000, "host_mb": 9_000 + 18_500 * batch},
        }
        return Trial(batch, peaks, 4.0 * batch**0.7)

    killed = Trial(4, failure="host out of memory")
    decision = decide([staged(1), staged(2), killed], GH200)
    assert decision.batch == 2
    assert "host out of memory" in decision.verdicts[2].reason
    # Had it not been killed, it would have been refused for what it leaves.
    narrow = Capacity(96_000, 90_000)
    assert "staging leaves 8% of host memory" in decide([staged(1), staged(2), staged(4)], narrow).verdicts[2].reason


def test_a_low_share_of_memory_asks_for_a_larger_trial_and_for_no_larger_batch() -> None:
    decision = decide([trial(1, 10, 20), trial(2, 19, 35)], GH200)
    assert decision.batch == 2
    assert decision.advice is not None
    assert "batch 4 is worth a trial" in decision.advice
    assert decide([trial(1, 10, 20), trial(2, 19, 70)], GH200).advice is None


def test_where_nothing_fits_nothing_is_frozen() -> None:
    decision = decide([Trial(1, failure="device out of memory")], GH200)
    assert decision.batch is None
    assert decision.advice is not None
    assert "tile the decode" in decision.advice


def test_two_trials_of_one_batch_are_no_basis() -> None:
    with pytest.raises(ValueError, match="same batch"):
        decide([trial(1, 10, 20), trial(1, 11, 20)], GH200)


_trials = st.lists(
    st.builds(
        lambda batch, rate, device, host, failed: (
            Trial(batch, failure="device out of memory") if failed else trial(batch, rate, device, host)
        ),
        st.integers(1, 64),
        st.floats(0.1, 1000),
        st.floats(1, 120),
        st.floats(1, 150),
        st.booleans(),
    ),
    unique_by=lambda one: one.batch,
    min_size=1,
    max_size=6,
)


@given(_trials, st.randoms(use_true_random=False))
def test_what_is_frozen_keeps_the_headroom_earned_its_place_and_depends_on_no_order(trials, random) -> None:  # type: ignore[no-untyped-def]
    policy = Policy()
    decision = decide(trials, GH200, policy)
    shuffled = list(trials)
    random.shuffle(shuffled)
    assert decide(shuffled, GH200, policy) == decision
    assert len(decision.verdicts) == len(trials)
    assert all(verdict.reason for verdict in decision.verdicts)
    fitting = [
        one
        for one in trials
        if one.failure is None
        and one.peaks["denoise"]["device_mb"] <= (1 - policy.headroom) * GH200.device_mb
        and one.peaks["denoise"]["host_mb"] <= (1 - policy.headroom) * GH200.host_mb
    ]
    if not fitting:
        assert decision.batch is None
        return
    chosen = next(one for one in trials if one.batch == decision.batch)
    assert chosen in fitting
    smaller = [one for one in fitting if one.batch < chosen.batch]
    larger = [one for one in fitting if one.batch > chosen.batch]
    assert all(chosen.videos_per_hour > one.videos_per_hour for one in smaller)
    assert all(one.videos_per_hour <= (1 + policy.gain) * chosen.videos_per_hour * (1 + 1e-9) for one in larger)


def test_estimated_mfu_is_that_of_the_source_figures() -> None:
    # Wan 2.1 1.3B, 832×480×81, 50 steps of two forwards at 0.92 videos a minute on GH200.
    peak = hardware("gh200-96", "stack.hardware").mfu_peak_tflops
    mfu = estimated_mfu(283.0e12 * 2 * 50, 60 / 0.92, peak)
    assert mfu == pytest.approx(0.438, abs=0.001)
    assert 0.371 <= mfu <= 0.538


def test_unknown_hardware_is_named_with_what_is_near() -> None:
    with pytest.raises(BadInput, match="Did you mean 'gh200-96'"):
        hardware("gh200_96", "stack.hardware")


def wan_on_gh200(jobs: tuple[int, ...]) -> ArmWork:
    return ArmWork("full", jobs, 60.0, {"denoise": 58.0, "decode": 7.2}, {"encode": 2.0, "score": 6.0}, 283.0e14)


def test_a_full_fleet_is_busy_and_a_tail_of_one_job_is_seen() -> None:
    even = project([wan_on_gh200((16,) * 64)], devices=16, host_lanes=64, start_s=30, peak_tflops=990)
    assert even.videos == 1024
    assert even.busy_fraction > 0.95
    assert even.estimated_mfu == pytest.approx(0.40, abs=0.01)
    tail = project([wan_on_gh200((16,) * 65)], devices=16, host_lanes=64, start_s=30, peak_tflops=990)
    assert tail.busy_fraction < 0.85
    assert tail.hours > even.hours


def test_a_fleet_that_scores_slower_than_it_generates_is_bound_by_its_hosts() -> None:
    few = project([wan_on_gh200((16,) * 64)], devices=16, host_lanes=1, start_s=0, peak_tflops=None)
    assert few.hours == pytest.approx(1024 * 8 / 3600)
    assert few.busy_fraction < 0.6
    assert few.estimated_mfu is None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 20))
def test_no_projection_promises_more_than_there_is(jobs: list[int], devices: int) -> None:
    work = [wan_on_gh200(tuple(jobs))]
    seen = project(work, devices, host_lanes=4 * devices, start_s=10, peak_tflops=990)
    assert 0 < seen.busy_fraction <= 1
    alone = sum(60.0 + samples * 65.2 for samples in jobs)
    assert seen.device_hours * 3600 >= alone
    assert sum(seen.cycle_s.values()) == pytest.approx(alone / sum(jobs) + 8)
