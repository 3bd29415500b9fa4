"""VBench's dimensions of quality run through upstream's code, offline, on weights in the layout of its cache.

The weights are generated, random numbers: that everything runs is what these tests show, and no score means anything.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from campaigns import ROOT
from vbench_runs import PYTHON, answer, ffmpeg
from vbench_weights import QUALITY

from fleetcraft.ground.records import read_records
from fleetcraft.ground.toolchain import clean_environment
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.scoring.weights import find
from fleetcraft.stages.job import Job
from fleetcraft.stages.launch import command_of
from fleetcraft.store.store import Store

PROXIES = [f"proxy-{name}" for name in QUALITY]

CHEAP = [f"proxy-{name}" for name in ("background_consistency", "motion_smoothness", "subject_consistency")]

OURS = """
import json, sys
from importlib import import_module
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.pipelines import numerics
from fleetcraft.scoring.dimensions import DIMENSIONS
from fleetcraft.scoring.interface import Pair
numerics.pin("cpu")
answers = []
for asked in json.loads(sys.argv[2]):
    pairs = [Pair("a red bicycle", Path(video), None) for video in asked["videos"]]
    settings = {"device": "cpu", "weights": {"directory": sys.argv[3], "files": asked["files"]}} | asked["more"]
    score = import_module("fleetcraft.scoring." + DIMENSIONS[asked["dimension"]].scorer).score
    try:
        found = [value for values in score(asked["dimension"], pairs, settings, Ledger()) for value in values]
        answers.append([str(value) if isinstance(value, FleetcraftError) else value for value in found])
    except FleetcraftError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""

# Upstream by itself, where it can be: with weights that it finds by itself, and a directory of nothing but videos.
UPSTREAM = """
import json, os, sys
os.environ["VBENCH_CACHE_DIR"] = sys.argv[3]
sys.path.append(sys.argv[1])
from fleetcraft.pipelines import numerics
numerics.pin("cpu")
from vbench import VBench
dimensions = json.loads(sys.argv[2])
VBench("cpu", "", sys.argv[4]).evaluate(
    sys.argv[5], "all", dimension_list=dimensions, local=True, mode="custom_input"
)
print(json.dumps(json.load(open(sys.argv[4] + "/all_eval_results.json"))))
"""

# Its script as it is, but for the device, which it has no option for.
UPSTREAM_FILTER = """
import argparse, json, sys
sys.path.append(sys.argv[1])
from fleetcraft.pipelines import numerics
numerics.pin("cpu")
from vbench.cli import static_filter
static_filter.DEVICE = "cpu"
options = ["--videos_path", sys.argv[2], "--model", sys.argv[3], "--result_path", sys.argv[4]]
parser = argparse.ArgumentParser()
static_filter.register_subparsers(parser.add_subparsers())
static_filter.static_filter(parser.parse_args(["static_filter", *options]))
found = json.load(open(sys.argv[4] + "/filtered_static_video.json"))
print(json.dumps({prompt: one["static_path"] for prompt, one in found.items() if one["static_path"]}))
"""

TOLD = """
import json, sys
from pathlib import Path
from tempfile import TemporaryDirectory
sys.path.append(sys.argv[1])
import vbench
from vbench.human_action import build_dict
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.scoring.actions import known_actions, wanted_action
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.vbench import _entries
suite = json.loads(Path(vbench.__file__).with_name("VBench_full_info.json").read_text())
def told(dimension, prompts):
    with TemporaryDirectory() as scratch:
        return _entries(dimension, [Pair(prompt, Path("a.mp4"), None) for prompt in prompts], Path(scratch))
asked = {name: [one for one in suite if name in one["dimension"]] for name in ("human_action", "scene", "color")}
entries = {name: told(name, [one["prompt_en"] for one in ones]) for name, ones in asked.items()}
known = set(build_dict().values())
labels = [
    one["video_list"][0].split("/")[-1].lower().split("-")[0].split("person is ")[-1].split("_")[0]
    for one in entries["human_action"]
]
assert len(labels) == 100 and set(labels) <= known, set(labels) - known
assert labels == [wanted_action(one["prompt_en"]) for one in asked["human_action"]]
assert known_actions() == known and len(known) == 400
for name in ("scene", "color"):
    assert [one["auxiliary_info"] for one in entries[name]] == [one["auxiliary_info"] for one in asked[name]]
# Two bytes a letter: names of files are as long as their bytes.
assert len(Path(told("human_action", ["я" * 300])[0]["video_list"][0]).name.encode()) <= 255
try:
    told("scene", ["a red bicycle"])
except FleetcraftError as error:
    print(json.dumps(str(error)))
"""

# The detector itself, detectron2, isn't everywhere: one in its place fails as it does for want of memory.
FAILING = """
import json, sys, tempfile, types
from pathlib import Path
sys.path.append(sys.argv[1])
import torch
from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.vbench import _Evaluation, _entries
class DenseCaptioning:
    def __init__(self, device):
        pass
    def initialize_model_det(self, **weights):
        pass
    def run_caption_tensor(self, frame):
        raise FAILURES[0]
grit = types.ModuleType("vbench.third_party.grit_model")
grit.DenseCaptioning = DenseCaptioning
sys.modules[grit.__name__] = grit
import vbench
vbench.init_submodules = lambda *_, **__: {"object_class": {}}
FAILURES = [torch.OutOfMemoryError("CUDA out of memory"), IndexError("nothing is seen"), RuntimeError("CUDA error: x")]
found = []
while FAILURES:
    with tempfile.TemporaryDirectory() as scratch:
        entries = _entries("object_class", [Pair("a person", Path(sys.argv[2]), None)], Path(scratch))
        try:
            found += _Evaluation("object_class", Path(scratch), "cpu", Ledger()).of(entries).values()
        except Exception as error:
            found.append(type(error).__name__)
    del FAILURES[0]
print(json.dumps(found))
"""

REFUSED = """
import json, os, socket, subprocess, sys, tempfile, urllib.request
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.scoring.upstream import upstream
def connect():
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))
attempts = {
    "127.0.0.1:9": connect,
    "weights.invalid:443": lambda: socket.getaddrinfo("weights.invalid", 443),
    "http://weights.invalid/a.pth": lambda: urllib.request.urlopen("http://weights.invalid/a.pth"),
    "https://weights.invalid/b.pth": lambda: subprocess.run(["wget", "https://weights.invalid/b.pth"]),
    "https://weights.invalid/c": lambda: os.system("git clone https://weights.invalid/c"),
}
said = {}
for name, attempt in attempts.items():
    # Even where upstream passes over the error, as it does in places.
    try:
        with tempfile.TemporaryDirectory() as scratch, upstream(Path(scratch), None):
            try:
                attempt()
            except Exception:
                pass
    except FleetcraftError as error:
        said[name] = str(error)
subprocess.run(["true"], check=True)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    script = ROOT / "tests/support/vbench_weights.py"
    subprocess.run([PYTHON, "-W", "ignore", script, directory, *QUALITY], check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two videos of 4 frames, 128 pixels square."""
    directory = tmp_path_factory.mktemp("videos")
    made = []
    for number in range(2):
        made.append(directory / f"a red bicycle-{number}.mp4")
        source = f"testsrc2=size=128x128:rate=8,hue=h={90 * number},noise=alls={30 * number}:allf=t"
        ffmpeg("-f", "lavfi", "-i", source, "-frames:v", 4, "-pix_fmt", "yuv420p", made[-1])
    return made


def asked(weights: Path, dimension: str, videos: Sequence[Path], **more: str) -> dict[str, Any]:
    files = find(weights, [dimension])[dimension]
    return {"dimension": dimension, "videos": [str(video) for video in videos], "files": files, "more": more}


@pytest.fixture(scope="module")
def together(weights: Path, videos: list[Path]) -> dict[str, list[float]]:
    """Dimension → the values of all videos, from one job."""
    answers = answer(OURS, json.dumps([asked(weights, name, videos) for name in PROXIES]), weights)
    return dict(zip(PROXIES, answers, strict=True))


def test_every_dimension_of_quality_runs_through_upstream_s_code(together: dict[str, list[float]]) -> None:
    for name, values in together.items():
        assert len(values) == 2, f"{name}: {values}"
        assert all(isinstance(value, float) for value in values)
    apart = {name for name, values in together.items() if values[0] != values[1]}
    assert apart >= set(PROXIES) - {"proxy-dynamic_degree"}
    assert set(together["proxy-dynamic_degree"]) <= {0.0, 1.0}
    assert all(40 < value < 60 for value in together["proxy-imaging_quality"])


def test_a_video_has_the_same_score_to_the_last_bit_whoever_is_scored_with_it(
    weights: Path, videos: list[Path], together: dict[str, list[float]]
) -> None:
    for names, some in ((CHEAP, videos[1:]), (CHEAP[:2], videos[::-1])):
        values = answer(OURS, json.dumps([asked(weights, name, some) for name in names]), weights)
        assert values == [[together[name][videos.index(video)] for video in some] for name in names]


def test_the_values_are_those_that_upstream_gives_by_itself(
    weights: Path, videos: list[Path], together: dict[str, list[float]], tmp_path: Path
) -> None:
    shown = tmp_path / "videos"
    shutil.copytree(videos[0].parent, shown)
    names = ["background_consistency", "aesthetic_quality"]
    theirs = answer(UPSTREAM, json.dumps(names), weights, tmp_path, shown)
    for name in names:
        rows = {Path(row["video_path"]).name: row["video_results"] for row in theirs[name][1]}
        assert [rows[video.name] for video in videos] == together[f"proxy-{name}"]


def test_the_static_filter_decides_as_upstream_s_script_does(tmp_path: Path) -> None:
    weights, shown, prompt = tmp_path / "weights", tmp_path / "videos", "a toilet, frozen in time"
    script = ROOT / "tests/support/vbench_weights.py"
    subprocess.run([PYTHON, "-W", "ignore", script, weights, "static_filter"], check=True, capture_output=True)
    shown.mkdir()
    videos = [shown / f"{prompt}-{number}.mp4" for number in range(2)]
    source = "testsrc2=size=128x128:rate=8"
    for video, picture in zip(videos, (source, f"{source},loop=loop=-1:size=1"), strict=True):
        ffmpeg("-f", "lavfi", "-i", picture, "-frames:v", 5, "-pix_fmt", "yuv420p", video)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(videos[0].read_bytes()[:300])
    request = asked(weights, "proxy-static_filter", [videos[0], broken, videos[1]])
    ((moving, said, still),) = answer(OURS, json.dumps([request]), weights)
    assert (moving, still) == (0.0, 1.0)
    assert f"{broken}: VBench gave no result in proxy-static_filter" in said
    raft = weights / "raft_model/models/raft-things.pth"
    assert answer(UPSTREAM_FILTER, shown, raft, tmp_path / "results") == {prompt: [str(videos[1])]}


def test_upstream_is_told_what_the_suite_wants_to_see_and_knows_the_actions_that_a_plan_does() -> None:
    assert "suite has no such prompt for scene" in answer(TOLD)


def test_a_video_that_can_t_be_read_is_named_and_keeps_no_other_from_its_score(
    weights: Path, videos: list[Path], together: dict[str, list[float]], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(videos[0].read_bytes()[:300])
    # One reads through decord, the other through OpenCV.
    names = ["proxy-background_consistency", "proxy-motion_smoothness"]
    requests = [asked(weights, name, [videos[0], broken, videos[1]]) for name in names]
    for name, (first, said, last) in zip(names, answer(OURS, json.dumps(requests), weights), strict=True):
        assert [first, last] == together[name]
        assert f"{broken}: VBench gave no result in {name}" in said


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is no decord to compare with")
def test_where_our_reader_stands_in_for_decord_scores_are_the_same_to_the_last_bit(
    weights: Path, videos: list[Path], together: dict[str, list[float]], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(videos[0].read_bytes()[:300])
    names = [name for name in PROXIES if "decord" in DIMENSIONS[name].packages]
    assert len(names) == 4
    requests = [asked(weights, name, videos, reader="av") for name in names]
    # The next reads nothing through decord, and imports it.
    requests.append(asked(weights, "proxy-motion_smoothness", [videos[1], broken, videos[0]], reader="av"))
    requests.append(asked(weights, "proxy-background_consistency", [videos[1], broken, videos[0]], reader="av"))
    *values, smoothness, consistency = answer(OURS, json.dumps(requests), weights)
    assert values == [together[name] for name in names]
    assert smoothness[::2] == together["proxy-motion_smoothness"][::-1]
    assert consistency[::2] == together["proxy-background_consistency"][::-1]
    assert f"{broken}: VBench gave no result" in smoothness[1]
    assert f"{broken}: this video can't be read: PyAV says" in consistency[1]


def test_a_detector_that_runs_out_of_memory_has_not_seen_that_nothing_is_there(videos: list[Path]) -> None:
    assert answer(FAILING, videos[0]) == ["OutOfMemoryError", 0.0, "RuntimeError"]


def test_what_upstream_would_fetch_is_refused_and_named(weights: Path, videos: list[Path]) -> None:
    wanted = {
        "proxy-subject_consistency": "https://github.com/facebookresearch/dino",
        "proxy-motion_smoothness": "https://huggingface.co/lalala125/AMT/resolve/main/amt-s.pth",
    }
    requests = [{"dimension": name, "videos": [str(videos[0])], "files": {}, "more": {}} for name in wanted]
    for said, address in zip(answer(OURS, json.dumps(requests), weights), wanted.values(), strict=True):
        assert f"wanted to fetch {address}, and scoring is offline" in said
    assert not list(weights.rglob("*wget*"))


def test_no_way_to_the_network_is_open_even_where_the_error_is_passed_over() -> None:
    said = answer(REFUSED)
    assert len(said) == 5
    assert all(f"wanted to fetch {address}" in text for address, text in said.items())


def test_the_weights_directory_is_only_read(weights: Path, together: dict[str, list[float]]) -> None:
    assert together
    listed = {line.split("  ./")[1].strip() for line in (weights / "SHA256SUMS").open()}
    present = {str(file.relative_to(weights)) for file in weights.rglob("*") if file.is_file()}
    assert present - {"SHA256SUMS"} == listed


def test_a_job_scores_what_the_store_lacks_and_refuses_weights_that_aren_t_as_listed(
    weights: Path, videos: list[Path], tmp_path: Path, together: dict[str, list[float]]
) -> None:
    store = Store(tmp_path / "store")
    samples = []
    for number, video in enumerate(videos):
        store.commit("videos", f"video{number}", {}, lambda file, video=video: shutil.copy(video, file))
        labels = {"arm": "full", "sample": f"s{number}", "prompt": "a red bicycle", "seed": number}
        samples.append(labels | {"video": f"video{number}", "baseline_video": None, "score": f"score{number}"})

    def run(files: dict[str, str], samples: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
        job = Job(
            "score",
            "vbench",
            ("vbench", "torch"),
            str(store.root),
            str(tmp_path / "scores.jsonl"),
            samples=tuple(samples),
            settings={
                "dimension": "proxy-background_consistency",
                "scorer": "vbench",
                "device": "cpu",
                "hardware": None,
                "weights": {"directory": str(weights), "files": files},
            },
        )
        command = command_of(job, tmp_path / "job.json", {})
        return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)

    files = find(weights, ["proxy-background_consistency"])["proxy-background_consistency"]
    first = run(files, samples)
    assert first.returncode == 0, first.stderr
    assert "2 samples, 0 in the store, 2 to make" in first.stdout
    assert "2 samples, 2 in the store, 0 to make" in run(files, samples).stdout
    records = list(read_records(tmp_path / "scores.jsonl"))
    assert [record["value"] for record in records] == together["proxy-background_consistency"]
    assert {record["dimension"] for record in records} == {"proxy-background_consistency"}
    wrong = run(dict.fromkeys(files, "0" * 64), [{**samples[0], "score": "another"}])
    assert wrong.returncode == 1
    assert "corrupt weights" in wrong.stderr
    assert "the SHA-256 of this file is not the listed one" in wrong.stderr
    # A video that isn't what it was when it came: the other one has its score before the job fails.
    damaged = store.file("videos", "video0")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    again = run(files, [{**sample, "score": f"again{sample['seed']}"} for sample in samples])
    assert again.returncode == 1
    assert str(damaged) in again.stderr
    assert "SHA-256 differs" in again.stderr
    assert store.find("scores", "again1") is not None
    assert store.find("scores", "again0") is None
