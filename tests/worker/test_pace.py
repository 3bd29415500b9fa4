"""Only where tasks are short are some claimed ahead."""

from fleetcraft.worker.pace import Pace


def test_nothing_is_claimed_ahead_before_tasks_are_known_to_be_short() -> None:
    pace = Pace()
    assert pace.ahead(4) == 0
    pace.ended(0.01)
    assert pace.ahead(4) == 16
    assert pace.ahead(100) == 32


def test_one_long_task_stops_it() -> None:
    pace = Pace()
    for _ in range(20):
        pace.ended(0.01)
    pace.ended(60.0)
    assert pace.ahead(4) == 0
