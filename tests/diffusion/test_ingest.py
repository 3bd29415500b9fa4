"""Existing videos go into the store as they are, after a look at every frame; what can't be scored is refused."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.records import read_records
from fleetcraft.media.encoder import encode
from fleetcraft.media.ffmpeg import ffmpeg_binary
from fleetcraft.media.presets import encoder_settings
from fleetcraft.media.probe import probe
from fleetcraft.stages import examine, ingest
from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store

VIDEO = {"width": 64, "height": 48, "frames": 9, "fps": 8}
PRESETS = ("h264-crf18", "imageio-quality", "lossless")
NAME = "it's a cat; or 100% one-0.mp4"


def ffmpeg(*arguments: str | Path) -> None:
    subprocess.run([ffmpeg_binary()[0], "-v", "error", "-y", *map(str, arguments)], check=True)


def made(path: Path, *options: str, size: str = "64x48", rate: int = 8, frames: int = 9) -> None:
    """A moving picture, as some other program may have encoded it."""
    source = f"testsrc2=size={size}:rate={rate}"
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        source,
        "-frames:v",
        str(frames),
        "-pix_fmt",
        "yuv420p",
        "-movflags",
        "+faststart",
        *options,
        path,
    )


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "samples" / NAME
    path.parent.mkdir()
    made(path)
    return path


def job(*videos: Path) -> Job:
    """The job of a shard, as the list of digests that was made just now has it."""
    video, root = videos[0], videos[0].parent.parent
    return Job(
        "ingest",
        "diffusion",
        ("numpy",),
        str(root / "store"),
        str(root / "manifest.jsonl"),
        samples=tuple(
            {
                **{"arm": "theirs", "sample": "s" * 32, "prompt": "a cat", "seed": seed, "video": f"{seed:x}" * 32},
                **{"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
            }
            for seed, file in enumerate(videos)
        ),
        settings={"directory": str(video.parent), "video": VIDEO, "stream": None, "ffmpeg_sha256": ffmpeg_binary()[1]},
    )


def test_a_video_is_copied_as_it_is_and_its_record_says_what_it_is(video: Path) -> None:
    wanted = job(video)
    ingest.run(wanted)
    (record,) = read_records(Path(wanted.output))
    assert record["arm"] == "theirs"
    assert record["sha256"] == wanted.samples[0]["sha256"]
    assert record["source"] == {"file": str(video), "sha256": record["sha256"]}
    assert (record["shape"], record["fps"]) == ([9, 48, 64, 3], 8)
    assert record["encoder"] == "foreign"
    assert (record["probe"]["codec"], record["probe"]["pixel_format"]) == ("h264", "yuv420p")
    kept = Store(wanted.store).verified("videos", "0" * 32)
    assert kept.read_bytes() == video.read_bytes()

    video.write_bytes(b"edited in place")
    assert Store(wanted.store).verified("videos", "0" * 32) == kept, "what was taken in stays what it was"
    ingest.run(wanted)  # and it is not read again


def change_the_bytes(video: Path) -> None:
    made(video, "-crf", "40")


def remove(video: Path) -> None:
    video.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [(change_the_bytes, "as its list of digests says"), (remove, "can't be read any more")],
)
def test_a_video_that_is_no_longer_the_listed_one_is_refused(
    video: Path, change: Callable[[Path], None], said: str
) -> None:
    wanted = job(video)
    change(video)
    refused(wanted, video, said)


def cut(video: Path) -> None:
    video.write_bytes(video.read_bytes()[:-100])


def ten_bits(video: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=8", "-frames:v", "9", "-pix_fmt", "yuv420p10le", video)


def hdr(video: Path) -> None:
    made(video, "-vf", "setparams=color_trc=smpte2084:color_primaries=bt2020:colorspace=bt2020nc")


def with_sound(video: Path) -> None:
    picture = video.with_name("picture.mp4")
    video.rename(picture)
    tone = ("-f", "lavfi", "-i", "sine=duration=1.1")
    ffmpeg("-i", picture, *tone, "-c:v", "copy", "-c:a", "aac", video)
    picture.unlink()


def black(video: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "color=black:size=64x48:rate=8", "-frames:v", "9", "-pix_fmt", "yuv420p", video)


def text(video: Path) -> None:
    video.write_text("<html>404</html>")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "truncated"),
        (ten_bits, "10 bits"),
        (hdr, "HDR"),
        (with_sound, "an audio track"),
        (black, "every frame is black"),
        (text, "this is no video"),
        (lambda video: made(video, rate=9), "9 frames a second, not 8 as planned"),
        (lambda video: made(video, frames=8), "8 frames, not 9 as planned"),
        (lambda video: made(video, size="48x64"), "48×64 pixels, not 64×48 as planned"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_video_that_can_t_be_scored_with_the_others_is_refused(
    video: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(video)
    refused(job(video), video, said)


def test_all_videos_of_a_shard_are_looked_at_and_the_good_ones_kept(
    video: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [video, *(video.with_name(f"{name}.mp4") for name in ("slow", "good", "loud"))]
    made(files[1], rate=4)
    made(files[2], "-crf", "30")
    made(files[3])
    with_sound(files[3])
    black(video)
    wanted = job(*files)
    with pytest.raises(FleetcraftError) as caught:
        ingest.run(wanted)
    assert "every frame is black" in str(caught.value)
    assert "2 others of this job's 4 videos can't be used either" in str(caught.value)
    assert "'slow.mp4', 'loud.mp4'" in str(caught.value)
    log = capsys.readouterr().out
    assert "4 frames a second" in log
    assert "an audio track" in log
    assert Store(wanted.store).keys("videos") == {"2" * 32}


def test_a_video_of_another_codec_than_the_experiment_vouches_for_is_refused(video: Path) -> None:
    made(video, "-c:v", "mpeg4")
    wanted = job(video)
    vouched = replace(wanted, settings=wanted.settings | {"stream": "h264 yuv420p"})
    refused(vouched, video, "it is mpeg4 yuv420p and not h264 yuv420p")
    ingest.run(wanted)
    made(video)
    ingest.run(replace(job(video), store=f"{wanted.store}2", settings=vouched.settings))


@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_player_finds_of_each_preset_is_what_its_settings_say(tmp_path: Path, preset: str) -> None:
    settings = encoder_settings(preset, "x86_64")
    frames = np.random.default_rng(0).integers(0, 256, (9, 48, 64, 3), dtype=np.uint8)
    encode(tmp_path / "x.mp4", frames, 64, 48, 8, settings)
    assert probe(tmp_path / "x.mp4").stream == settings.stream


def test_what_ingest_would_refuse_is_found_without_a_store(video: Path) -> None:
    files = [video, *(video.with_name(f"{name}.mp4") for name in ("deep", "cut", "other", "gone"))]
    for file in files[1:]:
        made(file, "-crf", "30")
    ten_bits(files[1])
    cut(files[2])
    wanted = job(*files)
    files[3].write_bytes(files[3].read_bytes() + b"more")
    files[4].unlink()
    examine.run(replace(wanted, stage="examine"))
    records = {record["file"]: record for record in read_records(Path(wanted.output))}
    assert list(records) == [file.name for file in files]
    said = {name: " ".join(finding["problem"] for finding in one["findings"]) for name, one in records.items()}
    assert said[video.name] == ""
    assert "10 bits a channel (yuv420p10le)" in said["deep.mp4"]
    assert "truncated" in said["cut.mp4"]
    assert said["other.mp4"].startswith("the SHA-256 of this video is not")
    assert "can't be read any more" in said["gone.mp4"]
    assert [one["facts"] is None for one in records.values()] == [False, False, False, False, True]
    assert not Path(wanted.store).exists()


def refused(wanted: Job, video: Path, said: str) -> None:
    with pytest.raises(FleetcraftError) as caught:
        ingest.run(wanted)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(video)), "the file that the user knows is named"
    assert ".tmp" not in str(caught.value)
    assert not Path(wanted.output).exists()
    assert not [path for path in Path(wanted.store).rglob("*") if path.is_file()], "nothing half-made stays"
