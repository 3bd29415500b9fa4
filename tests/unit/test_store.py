"""The store: what is there, what is not, and what is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.store.store import Store

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def commit(store: Store, data: bytes = b"frames") -> dict[str, object]:
    return store.commit("videos", KEY, {"seed": 1}, lambda path: path.write_bytes(data) and None)


def test_a_committed_artifact_is_found_with_its_size_and_digest(store: Store) -> None:
    assert store.find("videos", KEY) is None
    record = commit(store)
    assert store.find("videos", KEY) == record
    assert record["bytes"] == 6
    assert record["seed"] == 1
    assert store.verified("videos", KEY).read_bytes() == b"frames"
    assert store.keys("videos") == {KEY}


def test_what_a_failing_stage_wrote_is_not_there(store: Store) -> None:
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.commit("videos", KEY, {}, write)
    assert store.find("videos", KEY) is None
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_a_file_without_its_record_is_not_there(store: Store) -> None:
    commit(store)
    store.record_file("videos", KEY).unlink()
    assert store.find("videos", KEY) is None


def test_a_purged_file_is_not_there_and_reading_it_says_so(store: Store) -> None:
    commit(store)
    store.file("videos", KEY).unlink()
    assert store.find("videos", KEY) is None
    with pytest.raises(PurgedScratch, match=f"{KEY}.mp4.*audit --repair"):
        store.verified("videos", KEY)


def test_a_truncated_file_is_named(store: Store) -> None:
    commit(store)
    store.file("videos", KEY).write_bytes(b"fram")
    assert store.find("videos", KEY) is None
    with pytest.raises(Damaged, match=f"{KEY}.mp4.*truncated: 4 of 6 bytes"):
        store.verified("videos", KEY)


def test_changed_bytes_of_the_same_length_are_named(store: Store) -> None:
    commit(store)
    store.file("videos", KEY).write_bytes(b"FRAMES")
    with pytest.raises(Damaged, match=f"{KEY}.mp4.*SHA-256 differs"):
        store.verified("videos", KEY)


def test_a_damaged_record_means_that_the_artifact_is_made_again(store: Store) -> None:
    commit(store)
    store.record_file("videos", KEY).write_text("{")
    assert store.find("videos", KEY) is None
    record = commit(store, b"again!")
    assert store.find("videos", KEY) == record


def test_a_discarded_artifact_is_gone(store: Store) -> None:
    commit(store)
    store.discard("videos", KEY)
    assert store.find("videos", KEY) is None
    assert store.keys("videos") == set()
