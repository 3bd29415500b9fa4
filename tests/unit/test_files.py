"""Files and directories that are whole or absent."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fleetcraft.ground.errors import BadInput, NoSpace
from fleetcraft.ground.files import explained_os_errors, new_directory, new_file


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with new_file(tmp_path / "a" / "file.mp4") as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list((tmp_path / "a").iterdir()) == []


def test_the_temporary_name_keeps_the_suffix_that_tools_go_by(tmp_path: Path) -> None:
    with new_file(tmp_path / "video.mp4") as temporary:
        assert temporary.suffix == ".mp4"
        temporary.write_text("whole")
    assert (tmp_path / "video.mp4").read_text() == "whole"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_explained(tmp_path: Path, number: int) -> None:
    with pytest.raises(NoSpace, match=r"store\.bin.*Free space"), explained_os_errors(tmp_path / "store.bin"):
        raise OSError(number, "no room")


def test_a_really_full_device_is_explained() -> None:
    with pytest.raises(NoSpace), explained_os_errors(Path("/dev/full")), Path("/dev/full").open("w") as file:
        file.write("x")


def test_a_path_below_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="can't be written"), new_file(tmp_path / "file" / "below"):
        pass


def test_an_existing_content_addressed_directory_stays(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with new_directory(tmp_path / "model") as directory:
            (directory / "weights").write_text(text)
    assert (tmp_path / "model/weights").read_text() == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_replaced_directory_is_the_new_one_and_only_that(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with new_directory(tmp_path / "evidence", replace=True) as directory:
            (directory / name).write_text("")
    assert [entry.name for entry in (tmp_path / "evidence").iterdir()] == ["second"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence"]


def test_a_failure_while_replacing_keeps_the_old_directory(tmp_path: Path) -> None:
    with new_directory(tmp_path / "evidence", replace=True) as directory:
        (directory / "first").write_text("")
    with pytest.raises(RuntimeError), new_directory(tmp_path / "evidence", replace=True) as directory:
        raise RuntimeError
    assert [entry.name for entry in (tmp_path / "evidence").iterdir()] == ["first"]
