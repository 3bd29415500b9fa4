"""The checker sees what it is there to see."""

from __future__ import annotations

import json
from pathlib import Path

from journal_checker import check_exclusive, check_single


def write(root: Path, *entries: dict[str, object]) -> Path:
    path = root / "journal" / "000" / "w.jsonl"
    path.parent.mkdir(parents=True)
    common = {"host": "n1", "boot": "b", "writer": "w", "attempt": 1, "slot": "n1/node", "threads": 1}
    path.write_text("\n".join(json.dumps({**common, **entry}) for entry in entries) + "\n{torn")
    return root


def started(task: str, at_s: float, access: str = "shared", **fields: object) -> dict[str, object]:
    return {"event": "started", "task": task, "monotonic_s": at_s, "access": access, **fields}


def ended(task: str, at_s: float, **fields: object) -> dict[str, object]:
    return {"event": "ended", "task": task, "monotonic_s": at_s, **fields}


def test_an_exclusive_attempt_that_was_not_alone_is_found(tmp_path: Path) -> None:
    root = write(tmp_path, started("t", 1, "exclusive"), started("s", 2), ended("s", 3), ended("t", 4))
    assert check_exclusive(root).violations == ["t-a1 and s-a1 ran together on n1"]


def test_shared_ones_may_overlap_and_other_hosts_and_boots_dont_matter(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        started("t", 1, "exclusive"),
        ended("t", 4),
        started("far", 2, host="n2"),
        ended("far", 3),
        started("old", 2, boot="before", attempt=7),
        ended("old", 3, boot="before", attempt=7),
        started("a", 5),
        started("b", 6),
        ended("a", 7),
        ended("b", 8),
    )
    proof = check_exclusive(root)
    assert (proof.exclusive, proof.shared, proof.overlapping_shared, proof.violations) == (1, 4, 1, [])


def test_an_attempt_without_an_end_lasts_until_its_worker_was_found_gone(tmp_path: Path) -> None:
    gone = {"event": "worker gone", "worker": "w", "monotonic_s": 5, "writer": "reaper"}
    late = started("t", 4, "exclusive", writer="v"), ended("t", 6, writer="v")
    assert len(check_exclusive(write(tmp_path / "a", started("s", 1), gone, *late)).violations) == 1
    late = started("t", 5.5, "exclusive", writer="v"), ended("t", 6, writer="v")
    assert check_exclusive(write(tmp_path / "b", started("s", 1), gone, *late)).violations == []


def test_two_attempts_of_a_task_at_a_time_and_one_after_it_was_done_are_found(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        started("t", 1),
        ended("t", 4),
        started("t", 3, attempt=2, writer="v"),
        ended("t", 5, attempt=2, writer="v"),
        {"event": "settled", "to": "done", "task": "t", "monotonic_s": 6},
        started("t", 7, attempt=3),
        ended("t", 8, attempt=3),
    )
    assert check_single(root) == [
        "t ran twice at a time: attempts 1 and 2",
        "t-a3 started after the task was done",
    ]
