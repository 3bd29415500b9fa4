"""What our way of scoring costs beside VBench called directly, in a dimension in which a video is scored fast.

    .envs/vbench/bin/python tests/benchmarks/scoring.py

Scores the same videos with both in turn, in processes of their own that come up, read everything and end. Then the job
of a campaign, which also digests each video and leaves its record, as one job, and as two at the same time with half of
the videos each. Prints seconds of each round, by the clock and of processors, and how the medians compare.
The videos are far smaller than real ones, so that what is ours weighs more here than in a campaign.
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
from typing import Any

import cv2
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from fleetcraft.stages.job import Job
from fleetcraft.store.store import Store

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
DIMENSION = "temporal_flickering"
SIZE, FRAMES = (416, 240), 33

OURS = f"""
import sys
from pathlib import Path
sys.path.append({SCRIPTS!r})
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.vbench import score
videos = sorted(Path(sys.argv[1]).iterdir())
values = score({DIMENSION!r}, [Pair("a prompt", video, None) for video in videos], {{}})
assert len(values) == len(videos) and all(isinstance(value, float) for value in values)
"""

UPSTREAM = f"""
import sys
from vbench import VBench
VBench("cpu", "", sys.argv[2]).evaluate(sys.argv[1], "all", dimension_list=[{DIMENSION!r}], mode="custom_input")
"""

STAGE = f"import sys; sys.path.append({SCRIPTS!r}); from fleetcraft.stages.__main__ import main; main()"


def make_videos(directory: Path, count: int) -> None:
    """Noise that moves, the same in every video."""
    directory.mkdir()
    first = directory / "a prompt-000000.mp4"
    generator = np.random.default_rng(0)
    writer = cv2.VideoWriter(str(first), cv2.VideoWriter.fourcc(*"mp4v"), 8, SIZE)
    still = generator.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    for index in range(FRAMES):
        writer.write(np.roll(still, index, axis=1))
    writer.release()
    for number in range(1, count):
        shutil.copy(first, directory / f"a prompt-{number:06}.mp4")


def fill_store(store: Store, videos: Path) -> list[dict[str, Any]]:
    """The videos as a campaign has them; the samples of its jobs."""
    samples = []
    for number, video in enumerate(sorted(videos.iterdir())):
        key = f"{number:02x}-{number:06}"
        store.commit("videos", key, {}, lambda file, video=video: shutil.copy(video, file))
        labels = {"arm": "full", "sample": key, "prompt": "a prompt", "seed": number}
        samples.append(labels | {"video": key, "baseline_video": None, "score": key})
    return samples


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-P", "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, **quiet)  # type: ignore[call-overload,no-any-return]


def finish(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        if process.wait() != 0:
            raise SystemExit(f"this failed: {process.args}")


def children_s() -> float:
    """Seconds that processors have worked for the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def jobs(store: Store, parts: list[list[dict[str, Any]]], scratch: Path) -> None:
    """A job a part, all at the same time, on a store without scores."""
    shutil.rmtree(store.root / "scores", ignore_errors=True)
    started = []
    for number, samples in enumerate(parts):
        description = scratch / f"job{number}.json"
        settings = {"dimension": DIMENSION, "scorer": "vbench"}
        manifest = str(scratch / f"scores{number}.jsonl")
        Job("score", "vbench", ("vbench",), str(store.root), manifest, tuple(samples), settings).write(description)
        started.append(start(STAGE, description))
    finish(*started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        make_videos(videos := scratch / "videos", chosen.videos)
        samples = fill_store(store := Store(scratch / "store"), videos)
        half = len(samples) // 2
        ways: dict[str, Callable[[], None]] = {
            "VBench directly": lambda: finish(start(UPSTREAM, videos, scratch / "results")),
            "our driver": lambda: finish(start(OURS, videos)),
            "a job": lambda: jobs(store, [samples], scratch),
            "two jobs": lambda: jobs(store, [samples[:half], samples[half:]], scratch),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        processor: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(chosen.rounds):
            for name, way in ways.items():
                begin, used = time.perf_counter(), children_s()
                way()
                seconds[name].append(time.perf_counter() - begin)
                processor[name].append(children_s() - used)
        print(json.dumps({"videos": chosen.videos, "processors": len(os.sched_getaffinity(0))}))
        for what, figures in (("by the clock", seconds), ("of processors", processor)):
            reference = statistics.median(figures["VBench directly"])
            print(f"seconds {what}")
            for name, taken in figures.items():
                median = statistics.median(taken)
                rounds = ", ".join(f"{second:.2f}" for second in taken)
                print(f"  {name:<16} {median:7.2f}  {median / reference - 1:+7.1%}  ({rounds})")


if __name__ == "__main__":
    main()
