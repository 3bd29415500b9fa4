"""A checkpoint is judged by its files: what is wrong is named, and what was verified is not read again."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from checkpoints import safetensors, write_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.mirror.digests import Digests, verify_digests
from fleetcraft.mirror.headers import read_header
from fleetcraft.mirror.inspection import distinct, inspect
from fleetcraft.mirror.memory import Memory, cache_home
from fleetcraft.mirror.progress import Progress
from fleetcraft.mirror.sums import compare, model_digest, read_sums

TRANSFORMER = "transformer/diffusion_pytorch_model"
FIRST, SECOND = f"{TRANSFORMER}-00001-of-00002.safetensors", f"{TRANSFORMER}-00002-of-00002.safetensors"
VAE = "vae/diffusion_pytorch_model.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A whole checkpoint, in a directory with a space in its name."""
    return write_checkpoint(tmp_path / "check point")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "cache")


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user who owns nothing, where this one is root, whom no permission keeps out."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def open_to_all(path: Path) -> None:
    """Let others through the directories that pytest keeps to the user."""
    for parent in list(path.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)


# ---------------------------------------------------------------------- what is wrong is named


def damage_link(directory: Path) -> None:
    (directory / SECOND).unlink()
    (directory / SECOND).symlink_to("../blobs/gone")


def damage_size(directory: Path) -> None:
    (directory / VAE).write_bytes(safetensors(w=10) + b"more")


def damage_truncation(directory: Path) -> None:
    (directory / VAE).write_bytes(safetensors(v=10, w=10)[:-7])


def damage_offsets(directory: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [10], "data_offsets": [0, 10]}}).encode()
    (directory / VAE).write_bytes(len(header).to_bytes(8, "little") + header + bytes(10))


def damage_fifo(directory: Path) -> None:
    (directory / VAE).unlink()
    os.mkfifo(directory / VAE)


def damage_pickles(directory: Path) -> None:
    (directory / VAE).rename(directory / "vae/diffusion_pytorch_model.bin")


def written(name: str, data: bytes) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return write


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4932\n"


@pytest.mark.parametrize(
    ("damage", "error", "file", "said"),
    [
        (written(VAE, POINTER), MissingWeights, VAE, "pointer of Git LFS.*git lfs pull"),
        (written("tokenizer/tokenizer.json", POINTER), MissingWeights, "tokenizer/tokenizer.json", "Git LFS"),
        (written("vae/config.json", POINTER), MissingWeights, "vae/config.json", "Git LFS"),
        (damage_link, MissingWeights, SECOND, "link to ../blobs/gone, which isn't there"),
        (written(VAE, b""), CorruptWeights, VAE, "this file is empty"),
        (written("vae/config.json", b""), CorruptWeights, "vae/config.json", "this file is empty"),
        (written(f"{SECOND}.incomplete", b"x"), CorruptWeights, f"{SECOND}.incomplete", "download that didn't end"),
        (written("vae/weights.part", b"x"), CorruptWeights, "vae/weights.part", "download that didn't end"),
        (damage_size, CorruptWeights, VAE, "4 bytes after its last tensor"),
        (damage_truncation, CorruptWeights, VAE, "truncated.*the first of 1 tensors that are cut is 'w'"),
        (damage_offsets, CorruptWeights, VAE, "bytes of the tensor 'w' aren't where they must be"),
        (written(VAE, b"not safetensors at all"), CorruptWeights, VAE, "header of this file is cut or unreadable"),
        (damage_fifo, BadInput, VAE, "no regular file"),
        (damage_pickles, MissingWeights, "vae", "no safetensors weights.*there is diffusion_pytorch_model.bin"),
        (written(SECOND, safetensors(z=50)), CorruptWeights, SECOND, "it lacks y.*doesn't list z"),
        (written(SECOND, safetensors(y=50, z=5)), CorruptWeights, SECOND, "doesn't list z"),
        (
            written(f"{TRANSFORMER}.safetensors.index.json", b'{"weight_map": ["x"]}'),
            CorruptWeights,
            f"{TRANSFORMER}.safetensors.index.json",
            "doesn't say which tensor is in which file",
        ),
        (written("scheduler/scheduler_config.json", b"[1]"), CorruptWeights, "scheduler/scheduler_config.json", "JSON"),
    ],
)
def test_a_damaged_file_is_named_once_with_what_to_do(
    checkpoint: Path, damage: Callable[[Path], None], error: type[FleetcraftError], file: str, said: str
) -> None:
    damage(checkpoint)
    named = {str(finding.file): finding for finding in inspect(checkpoint).findings}
    assert str(checkpoint / file) in named
    finding = named.pop(str(checkpoint / file))
    assert type(finding) is error
    assert re.search(said, str(finding))
    assert not named


@settings(max_examples=40)
@given(cut=st.integers(1, 4000), sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
def test_no_cut_of_a_file_of_weights_goes_unnoticed(cut: int, sizes: list[int]) -> None:
    data = safetensors(**{f"t{number}": size for number, size in enumerate(sizes)})
    with TemporaryDirectory() as directory:
        file = Path(directory) / "model.safetensors"
        file.write_bytes(data[: max(0, len(data) - cut)])
        with pytest.raises(CorruptWeights):
            read_header(file).check(file.stat().st_size)
        file.write_bytes(data)
        read_header(file).check(file.stat().st_size)


def test_a_whole_checkpoint_has_no_findings_and_all_of_its_tensors(checkpoint: Path) -> None:
    inspection = inspect(checkpoint)
    assert not inspection.findings
    assert not inspection.notes
    tensors = {part.name: sorted(part.tensors) for part in inspection.parts.values()}
    assert tensors == {
        "transformer": ["x", "y"],
        "vae": ["w"],
        "text_encoder": ["x", "y"],
        "tokenizer": [],
        "scheduler": [],
    }


def test_everything_that_is_wrong_is_found_at_once(checkpoint: Path) -> None:
    (checkpoint / SECOND).unlink()
    (checkpoint / "tokenizer/tokenizer.json").unlink()
    damage_size(checkpoint)
    files = read_sums(checkpoint)
    inspection = inspect(checkpoint)
    findings = distinct([*inspection.findings, *compare(checkpoint, None, files, inspection.sizes)])
    assert sorted(str(Path(str(finding.file)).relative_to(checkpoint)) for finding in findings) == [
        "tokenizer",
        "tokenizer/tokenizer.json",
        SECOND,
        VAE,
    ]


def test_weights_and_the_names_of_their_files_are_those_that_are_loaded(checkpoint: Path) -> None:
    """Where there are both, diffusers takes the index and transformers the single file."""
    for part, base in (("transformer", "diffusion_pytorch_model"), ("text_encoder", "model")):
        (checkpoint / part / f"{base}.safetensors").write_bytes(safetensors(single=1))
        (checkpoint / part / f"{base}.fp16.safetensors").write_bytes(safetensors(half=1))
    parts = inspect(checkpoint).parts
    assert sorted(parts["transformer"].tensors) == ["x", "y"]
    assert sorted(parts["text_encoder"].tensors) == ["single"]


def test_what_prepares_images_needs_no_weights(checkpoint: Path) -> None:
    index = json.loads((checkpoint / "model_index.json").read_text())
    index["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    (checkpoint / "model_index.json").write_text(json.dumps(index))
    (checkpoint / "feature_extractor").mkdir()
    (checkpoint / "feature_extractor/preprocessor_config.json").write_text("{}")
    assert not inspect(checkpoint).findings


def test_a_wrong_total_in_an_index_is_a_note(checkpoint: Path) -> None:
    index = checkpoint / f"{TRANSFORMER}.safetensors.index.json"
    document = json.loads(index.read_text())
    document["metadata"]["total_size"] = 300
    index.write_text(json.dumps(document))
    inspection = inspect(checkpoint)
    assert not inspection.findings
    (note,) = inspection.notes
    assert "300 bytes of tensors; they hold 150" in note


def test_what_is_no_checkpoint_is_said_with_what_may_have_been_meant(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match="no such model directory"):
        inspect(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="this is a file and no model directory"):
        inspect(checkpoint / VAE)
    with pytest.raises(MissingWeights, match=r"no model_index\.json here.*Perhaps .*check point was meant"):
        inspect(tmp_path)
    with pytest.raises(MissingWeights, match="Name the directory that has it"):
        inspect(checkpoint / "vae")


def test_a_file_or_directory_without_permission_is_named(checkpoint: Path) -> None:
    open_to_all(checkpoint / "vae")
    (checkpoint / VAE).chmod(0)
    (checkpoint / "tokenizer").chmod(0)
    with unprivileged():
        findings = {str(finding.file): str(finding) for finding in inspect(checkpoint).findings}
    (checkpoint / "tokenizer").chmod(0o700)
    assert "can't be read (Permission denied)" in findings[str(checkpoint / VAE)]
    assert "can't be read (Permission denied)" in findings[str(checkpoint / "tokenizer")]


def test_a_snapshot_of_links_as_in_a_hub_s_cache_is_the_same_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/snapshots/0123"
    for number, file in enumerate(sorted(file for file in checkpoint.rglob("*") if file.is_file())):
        blob, link = tmp_path / f"hub/blobs/{number}", snapshot / file.relative_to(checkpoint)
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(file.read_bytes())
        link.symlink_to(blob)
    assert not inspect(snapshot).findings
    assert read_sums(snapshot) == read_sums(checkpoint)
    assert not verify_digests(snapshot, read_sums(snapshot), Memory(None), 2).findings


def test_a_link_to_a_directory_above_is_not_followed_for_ever(checkpoint: Path) -> None:
    (checkpoint / "vae/again").symlink_to(checkpoint)
    assert not inspect(checkpoint).findings


def test_what_downloaders_keep_in_hidden_directories_is_not_of_the_checkpoint(checkpoint: Path) -> None:
    (checkpoint / ".cache").mkdir()
    (checkpoint / ".cache/a.incomplete").touch()
    inspection = inspect(checkpoint)
    assert not inspection.findings
    assert not compare(checkpoint, None, read_sums(checkpoint), inspection.sizes)


# ---------------------------------------------------------------------- lists of digests


def test_the_digest_of_a_model_stays_what_it_was(checkpoint: Path) -> None:
    assert model_digest(read_sums(checkpoint)) == "3f9c5e2b32f6fff4b467d54e76216b3a"


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "﻿" + text,
        lambda text: text.replace("  ./", " *"),
        lambda text: text.rstrip("\n"),
        lambda text: "\n".join(reversed(text.splitlines())) + "\n\n",
        lambda text: "".join(line[:64].upper() + line[64:] for line in text.splitlines(keepends=True)),
    ],
    ids=["ends of lines of Windows", "byte order mark", "binary mode", "no last end", "another order", "upper case"],
)
def test_a_list_says_the_same_however_it_is_written(checkpoint: Path, changed: Callable[[str], str]) -> None:
    before, sums = read_sums(checkpoint), checkpoint / "SHA256SUMS"
    sums.write_bytes(changed(sums.read_text()).encode())
    assert read_sums(checkpoint) == before


DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"SHA256 (vae/config.json) = 00\n", "SHA256SUMS:1: this line is not `SHA256  FILE`"),
        (f"{DIGEST}  a\n{DIGEST[:-1]}  b\n".encode(), "SHA256SUMS:2: this line is not"),
        (f"{DIGEST}  \n".encode(), "this line is not"),
        (f"{DIGEST}  ../other/file\n".encode(), "not about a file in the directory"),
        (f"{DIGEST}  /models/file\n".encode(), "not about a file in the directory"),
        (f"{DIGEST}  a\n{'1' * 64}  ./a\n".encode(), "SHA256SUMS:2: a is listed twice, with different digests"),
        (f"{DIGEST}  a\n".encode("utf-16"), "no UTF-8 text"),
    ],
)
def test_a_list_that_is_none_is_refused_with_the_line(checkpoint: Path, text: bytes, said: str) -> None:
    (checkpoint / "SHA256SUMS").write_bytes(text)
    with pytest.raises(BadInput, match=said):
        read_sums(checkpoint)


def test_names_with_spaces_backslashes_and_ends_of_lines_are_read_as_sha256sum_writes_them(tmp_path: Path) -> None:
    names = ["a file", "back\\slash", "two\nlines", "separator\u2028here"]
    for name in names:
        (tmp_path / name).write_text(name)
    listed = subprocess.run(["sha256sum", "--", *names], cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "SHA256SUMS").write_text(listed.stdout)
    assert sorted(read_sums(tmp_path)) == sorted(names)
    assert not verify_digests(tmp_path, read_sums(tmp_path), Memory(None), 1).findings


def test_files_that_the_list_lacks_and_files_that_only_it_has_are_named(checkpoint: Path) -> None:
    files = read_sums(checkpoint)
    (checkpoint / VAE).unlink()
    for name in ("one.txt", "two.txt"):
        (checkpoint / name).touch()
    unlisted, missing = compare(checkpoint, None, files, inspect(checkpoint).sizes)
    assert "2 files are not in the list of digests: one.txt, two.txt" in str(unlisted)
    assert str(missing).startswith(str(checkpoint / VAE))
    assert "in the list of digests and not in the checkpoint" in str(missing)
    assert [str(finding) for finding in verify_digests(checkpoint, files, Memory(None), 1).findings] == [str(missing)]


def test_a_list_by_another_name_in_the_directory_need_not_list_itself(checkpoint: Path) -> None:
    sums = (checkpoint / "SHA256SUMS").rename(checkpoint / "digests of mine")
    assert not compare(checkpoint, sums, read_sums(checkpoint, sums), inspect(checkpoint).sizes)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the directory", "elsewhere"])
def test_the_command_that_is_shown_where_the_list_is_missing_makes_it(
    checkpoint: Path, tmp_path: Path, elsewhere: bool
) -> None:
    before = read_sums(checkpoint)
    (checkpoint / "SHA256SUMS").unlink()
    (checkpoint / ".cache").mkdir()
    (checkpoint / ".cache/note").touch()
    sums = tmp_path / "my list" if elsewhere else None
    with pytest.raises(MissingWeights, match="no number could be traced") as caught:
        read_sums(checkpoint, sums)
    command = caught.value.remedy.partition(": ")[2]
    subprocess.run(["bash", "-euc", command], check=True)
    assert read_sums(checkpoint, sums) == before


# ---------------------------------------------------------------------- digests, read once


def verify(directory: Path, memory: Memory) -> Digests:
    return verify_digests(directory, read_sums(directory), memory, readers=2)


def test_what_was_verified_is_not_read_again(checkpoint: Path, memory: Memory) -> None:
    first, second = verify(checkpoint, memory), verify(checkpoint, memory)
    size = sum(inspect(checkpoint).sizes.values()) - (checkpoint / "SHA256SUMS").stat().st_size
    assert (first.files, first.remembered, first.read) == (14, 0, size)
    assert (second.files, second.remembered, second.read) == (14, 14, 0)
    again = verify(checkpoint, Memory(memory.root, again=True))
    assert (again.remembered, again.read) == (0, size)


def test_a_file_that_was_touched_is_read_again_and_no_other(checkpoint: Path, memory: Memory) -> None:
    verify(checkpoint, memory)
    os.utime(checkpoint / VAE, ns=(0, 1))
    assert verify(checkpoint, memory).read == (checkpoint / VAE).stat().st_size


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_file_with_other_bytes_is_named_until_the_right_one_is_back(checkpoint: Path, memory: Memory) -> None:
    """Even one that is back with the very time and size of the wrong one, as copies keep them."""
    flip(checkpoint / SECOND)
    for _ in range(2):
        (finding,) = verify(checkpoint, memory).findings
        assert isinstance(finding, CorruptWeights)
        assert str(finding).startswith(f"{checkpoint / SECOND}: the SHA-256 of this file is not the listed one")
    status = (checkpoint / SECOND).stat()
    flip(checkpoint / SECOND)
    os.utime(checkpoint / SECOND, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not verify(checkpoint, memory).findings


def test_another_list_is_not_believed_for_what_was_verified_by_the_first(checkpoint: Path, memory: Memory) -> None:
    verify(checkpoint, memory)
    files = read_sums(checkpoint) | {VAE: "0" * 64}
    (finding,) = verify_digests(checkpoint, files, memory, 1).findings
    assert finding.file == checkpoint / VAE


def test_a_file_that_changes_while_it_is_read_is_not_judged(
    checkpoint: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Progress.advance

    def copied_on(self: Progress, count: int) -> None:
        with (checkpoint / VAE).open("ab") as file:
            file.write(b"more")
        advance(self, count)

    monkeypatch.setattr(Progress, "advance", copied_on)
    (finding,) = verify_digests(checkpoint, {VAE: read_sums(checkpoint)[VAE]}, memory, 1).findings
    assert "changed while it was verified" in str(finding)


def test_an_interrupt_ends_reading_at_once(checkpoint: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest files read to their end first, as many minutes would go by."""
    read, advance = 0, Progress.advance

    def interrupted(self: Progress, count: int) -> None:
        nonlocal read
        read += 1
        advance(self, count)
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify_digests(checkpoint, read_sums(checkpoint), memory, readers=1)
    assert read == 1
    monkeypatch.undo()
    assert verify(checkpoint, memory).remembered == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"bytes":1}\n'])
def test_a_damaged_memory_is_as_good_as_none(checkpoint: Path, memory: Memory, damage: bytes) -> None:
    verify(checkpoint, memory)
    assert memory.root is not None
    for entry in memory.root.rglob("*.json"):
        entry.write_bytes(damage)
    assert verify(checkpoint, memory).remembered == 0
    assert verify(checkpoint, memory).remembered == 14


def test_a_memory_that_cannot_be_written_costs_time_and_nothing_else(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memory = Memory(tmp_path / "file")
    for _ in range(2):
        answer = verify(checkpoint, memory)
        assert (answer.files, answer.remembered, answer.findings) == (14, 0, [])
    assert memory.trouble is not None
    assert str(tmp_path / "file") in memory.trouble


def _verify_often(directory: Path, root: Path, failures: multiprocessing.Queue[str]) -> None:
    for turn in range(3):
        answer = verify_digests(directory, read_sums(directory), Memory(root, again=turn % 2 == 0), readers=2)
        for finding in answer.findings:
            failures.put(str(finding))


def test_several_processes_verify_the_same_checkpoint(checkpoint: Path, memory: Memory) -> None:
    assert memory.root is not None
    context = multiprocessing.get_context("fork")
    failures: multiprocessing.Queue[str] = context.Queue()
    processes = [context.Process(target=_verify_often, args=(checkpoint, memory.root, failures)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert failures.empty()
    assert verify(checkpoint, memory).remembered == 14
    assert not [path for path in memory.root.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_nothing_is_written_into_the_checkpoint_and_it_may_be_read_only(checkpoint: Path, memory: Memory) -> None:
    paths = [checkpoint, *checkpoint.rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert not inspect(checkpoint).findings
    assert not verify(checkpoint, memory).findings
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert {path: path.stat().st_mtime_ns for path in (checkpoint, *checkpoint.rglob("*"))} == before


def test_the_memory_lies_below_the_user_s_cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/not/allowed")
    assert cache_home() == tmp_path / ".cache/fleetcraft"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_home() == tmp_path / "xdg/fleetcraft"


def test_progress_in_a_log_is_a_line_now_and_then(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress("verifying", 2, 3_000_000) as progress:
        for _ in range(3):
            progress.advance(1_000_000)
        progress.file_done()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("verifying: 1 of 2 files, 3.0 MB of 3.0 MB, ")
    assert line.endswith("/s")
