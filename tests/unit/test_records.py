"""Sealed records: whole, or known not to be."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetcraft.ground.errors import Damaged, PurgedScratch
from fleetcraft.ground.records import iterate_records, read_records, write_records

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=4), max_size=5)
same_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_directory
@given(written=records)
def test_what_was_written_is_read(tmp_path: Path, written: list[dict[str, object]]) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, written)
    assert read_records(file) == written


@same_directory
@given(written=records, cut=st.integers(min_value=1, max_value=10_000))
def test_a_file_cut_anywhere_is_damaged(tmp_path: Path, written: list[dict[str, object]], cut: int) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, written)
    data = file.read_bytes()
    file.write_bytes(data[: max(0, len(data) - cut)])
    with pytest.raises(Damaged, match=r"records\.jsonl"):
        read_records(file)


@same_directory
@given(written=records.filter(bool), position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_changed_byte_of_a_record_is_damage(
    tmp_path: Path, written: list[dict[str, object]], position: int, flip: int
) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, written)
    data = bytearray(file.read_bytes())
    body = data.rindex(b"\n", 0, len(data) - 1) + 1
    data[position % body] ^= flip
    file.write_bytes(data)
    with pytest.raises(Damaged):
        read_records(file)


def test_two_files_glued_together_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, [{"a": 1}])
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(Damaged):
        read_records(file)


def test_a_file_that_has_gone_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(PurgedScratch, match=r"gone\.jsonl"):
        read_records(tmp_path / "gone.jsonl")


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, [{"a": 1}])

    def failing():
        yield {"a": 2}
        raise RuntimeError("the stage died here")

    with pytest.raises(RuntimeError):
        write_records(file, failing())
    assert read_records(file) == [{"a": 1}]
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_is_read_from_a_damaged_file_before_the_damage_is_found(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    write_records(file, [{"a": 1}, {"a": 2}])
    file.write_bytes(file.read_bytes().replace(b'{"a":2}', b'{"a":3}'))
    with pytest.raises(Damaged, match="aren't the ones that were sealed"):
        next(iterate_records(file))


def test_reading_and_writing_many_records_holds_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"

    def peak(count: int) -> int:
        tracemalloc.start()
        write_records(file, ({"prompt": "x" * 1000, "seed": seed} for seed in range(count)))
        assert sum(1 for _ in iterate_records(file)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(20_000) < 2 * peak(200)
