"""What our way of scoring costs beside VBench called directly, in a dimension in which a video is scored fast.

    .venv/bin/python tests/benchmarks/scoring.py [--videos 1000] [--rounds 3] [--directory DIR]

Encodes short videos with ffmpeg, each of its own, and takes them into a store as an arm of existing videos. Then scores
all of them again and again, in turn:

- VBench directly: one process, upstream's `evaluate` on the directory;
- our driver: one process, what a job calls;
- a job: the stage of a shard of all videos, which also digests each video and leaves its record;
- a campaign of one job: Snakemake, its worker, the plan and that job;
- two jobs, one core and two jobs, two cores: a campaign of two shards, whose worker may run one or both at a time.

Prints seconds of each round, by the clock and of processors, how the medians compare, and the median of how the rounds
compare, which is the figure to look at where others use the machine. Videos are far smaller than real ones: what is
ours weighs more here. With `--directory`, what was made is kept for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from campaigns import ROOT, Campaign
from checkpoints import list_digests

from fleetcraft.ground.toolchain import Toolchain, clean_environment
from fleetcraft.stages.describe import describe
from fleetcraft.stages.launch import command_of

DIMENSION = "temporal_flickering"
WIDTH, HEIGHT, FRAMES, FPS = 416, 240, 33, 8
SEEDS = 4

FFMPEG = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())"

OURS = f"""
import sys
from pathlib import Path
sys.path.append({str(ROOT / "scripts")!r})
from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.vbench import score
videos = sorted(Path(sys.argv[1]).glob("*.mp4"))
(values,) = score({DIMENSION!r}, [Pair("a prompt", video, None) for video in videos], {{}}, Ledger())
assert len(values) == int(sys.argv[2]) and all(isinstance(value, float) for value in values)
"""

UPSTREAM = f"""
import json, sys
from pathlib import Path
from vbench import VBench
VBench("cpu", "", sys.argv[3]).evaluate(sys.argv[1], "all", dimension_list=[{DIMENSION!r}], mode="custom_input")
rows = json.loads(Path(sys.argv[3], "all_eval_results.json").read_text())[{DIMENSION!r}][1]
assert len(rows) == int(sys.argv[2])
"""


def prompts(count: int) -> list[str]:
    return [f"test picture {number}" for number in range(count // SEEDS)]


def make_videos(directory: Path, count: int) -> None:
    """Cuts of one long test picture that has a running clock in it, named as existing videos are."""
    directory.mkdir(parents=True)
    python = Toolchain("diffusion").home / "bin/python"
    ffmpeg = subprocess.run([python, "-c", FFMPEG], check=True, capture_output=True, text=True).stdout.strip()
    cuts = ",".join(str(FRAMES * number) for number in range(1, count))
    source = ["-f", "lavfi", "-i", f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS}", "-frames:v", str(FRAMES * count)]
    encoder = ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast", "-crf", "18", "-threads", "1"]
    pieces = ["-g", str(FRAMES), "-sc_threshold", "0", "-f", "segment", "-segment_frames", cuts]
    command = [ffmpeg, "-v", "error", *source, *encoder, *pieces, "-reset_timestamps", "1", directory / "%06d.mp4"]
    subprocess.run(command, check=True)
    names = [f"{prompt}-{place}.mp4" for prompt in prompts(count) for place in range(SEEDS)]
    for video, name in zip(sorted(directory.iterdir()), names, strict=True):
        video.rename(directory / name)
    list_digests(directory)


def campaign(directory: Path, name: str, count: int, shards: int) -> Campaign:
    """A campaign of the videos, in so many shards; all of them share a store."""
    document = {
        "name": name,
        "paths": {"scratch": "scratch", "work": "work"},
        "stack": {"device": "cpu"},
        "arms": {"theirs": {"source": {"videos": "videos"}}},
        "baseline": "theirs",
        "prompts": {"file": "prompts.txt"},
        "seeds": list(range(SEEDS)),
        "video": {"width": WIDTH, "height": HEIGHT, "frames": FRAMES, "fps": FPS},
        "scoring": {"dimensions": [DIMENSION]},
        "shard_size": count // shards,
    }
    (directory / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in prompts(count)))
    made = Named(directory, document)
    made.write()
    assert len(made.plan().shards) == shards
    run(made.command("--until", "ingest", "--cores", "all"))
    return made


class Named(Campaign):
    """One of several campaigns in a directory."""

    @property
    def experiment(self) -> Path:
        return self.directory / f"{self.document['name']}.yaml"


def run(command: list[str], **options: object) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"this failed: {command}\n{done.stdout.decode()[-3000:]}")


def seconds_of(way: Callable[[], None]) -> tuple[float, float]:
    """By the clock, and of processors for all processes that it started."""
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    way()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begin, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def measure(directory: Path, count: int, rounds: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "videos").exists():
        make_videos(directory / "videos", count)
    one, two = campaign(directory, "one", count, 1), campaign(directory, "two", count, 2)
    python = str(Toolchain("vbench").home / "bin/python")
    environment = clean_environment()

    def directly(code: str) -> None:
        arguments = [str(directory / "videos"), str(count), str(directory / "results")]
        run([python, "-P", "-W", "ignore", "-c", code, *arguments], env=environment)

    def forget() -> None:
        """Let no score be there, and no manifest of scores."""
        shutil.rmtree(directory / "scratch/store/scores", ignore_errors=True)
        for each in (one, two):
            shutil.rmtree(directory / "scratch" / each.document["name"] / "scores", ignore_errors=True)

    def score(of: Campaign, cores: int) -> None:
        run(of.command("--until", "score", "--cores", str(cores)))
        assert len(of.artifacts()["scores"]) == count

    (shard,) = one.plan().shards
    wildcards = {"arm": "theirs", "dimension": DIMENSION, "shard": shard}

    def job() -> None:
        os.chdir(directory)
        run(command_of(describe(one.plan(), "score", wildcards), directory / "job.json", {}), env=environment)

    ways: dict[str, Callable[[], None]] = {
        "VBench directly": lambda: directly(UPSTREAM),
        "our driver": lambda: directly(OURS),
        "a job": job,
        "a campaign of one job": lambda: score(one, 1),
        "two jobs, one core": lambda: score(two, 1),
        "two jobs, two cores": lambda: score(two, 2),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            forget()
            taken[name].append(seconds_of(way))
    print(json.dumps({"videos": count, "processors": len(os.sched_getaffinity(0)), "rounds": rounds}))
    for kind, what in enumerate(("by the clock", "of processors")):
        reference = [pair[kind] for pair in taken["VBench directly"]]
        print(f"seconds {what}: median, of medians, of rounds")
        for name, pairs in taken.items():
            figures = [pair[kind] for pair in pairs]
            medians = statistics.median(figures) / statistics.median(reference) - 1
            by_round = statistics.median(one / other for one, other in zip(figures, reference, strict=True)) - 1
            shown = ", ".join(f"{second:.2f}" for second in figures)
            print(f"  {name:<22} {statistics.median(figures):7.2f}  {medians:+7.1%}  {by_round:+7.1%}  ({shown})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=1000, help="a multiple of 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    chosen = parser.parse_args()
    if chosen.videos < 8 or chosen.videos % 8:
        parser.error("--videos: a multiple of 8")
    if chosen.directory is not None:
        measure(chosen.directory.absolute(), chosen.videos, chosen.rounds)
        return
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory), chosen.videos, chosen.rounds)


if __name__ == "__main__":
    main()
