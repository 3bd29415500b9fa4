"""LPIPS compares an arm's videos with the baseline's through pyiqa's code, on weights that were mirrored.

The weights are generated, random numbers: distances are real ones of those, and say nothing of what a viewer sees.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaigns import ROOT

from fleetcraft.ground.toolchain import clean_environment
from fleetcraft.scoring.weights import find

PYTHON = ROOT / ".envs/vbench/bin/python"
NAME = "proxy-lpips"
LINEAR = "lpips/LPIPS_v0.1_alex-df73285e.pth"

MAKE = """
import subprocess, sys, imageio_ffmpeg
ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
for video, frames, change in (("plain", 3, "null"), ("noisy", 3, "noise=alls=4:all_seed=1"), ("blurred", 3, "gblur=8"),
                              ("short", 2, "null"), ("small", 3, "scale=32:32")):
    source = ["-f", "lavfi", "-i", f"testsrc2=size=64x48:rate=8,{change}", "-frames:v", str(frames)]
    command = [ffmpeg, "-v", "error", *source, "-pix_fmt", "yuv420p", "-crf", "10", f"{sys.argv[1]}/{video}.mp4"]
    subprocess.run(command, check=True)
"""

OURS = """
import json, shutil, sys, torch
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import ffmpeg_binary
from fleetcraft.pipelines import numerics
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.lpips import score
numerics.pin("cpu")
def scores(directory, files, asked):
    weights = {"directory": str(directory), "files": files}
    settings = {"device": "cpu", "ffmpeg_sha256": ffmpeg_binary()[1], "weights": weights}
    pairs = [Pair("a prompt", Path(one), Path(other)) for one, other in asked]
    found = [value for values in score("proxy-lpips", pairs, settings, Ledger()) for value in values]
    return [str(value) if isinstance(value, FleetcraftError) else value for value in found]
def refused(directory, files):
    try:
        return scores(directory, files, [])
    except FleetcraftError as error:
        return f"{type(error).__name__}: {error}"
directory, files, lacking = Path(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4])
answers = [scores(directory, files, asked) for asked in json.loads(sys.argv[5])]
answers.append(refused(directory, files | {sys.argv[6]: "0" * 64}))
shutil.copytree(directory, lacking)
layers = torch.load(lacking / sys.argv[6])
del layers["lin3.model.1.weight"]
torch.save(layers, lacking / sys.argv[6])
answers.append(refused(lacking, files | {sys.argv[6]: sha256_file(lacking / sys.argv[6])}))
print(json.dumps(answers))
"""

# pyiqa's own call, on all frames of both videos at once.
PYIQA = """
import json, os, sys
sys.path.append(sys.argv[1])
os.makedirs(sys.argv[3] + "/checkpoints", exist_ok=True)
os.symlink(sys.argv[2] + "/lpips/alexnet-owt-7be5be79.pth", sys.argv[3] + "/checkpoints/alexnet-owt-7be5be79.pth")
import numpy, pyiqa, torch
from fleetcraft.media.playing import play
from fleetcraft.pipelines import numerics
numerics.pin("cpu")
torch.hub.set_dir(sys.argv[3])
metric = pyiqa.create_metric("lpips", device="cpu", pretrained_model_path=sys.argv[2] + "/" + sys.argv[4])
def frames(video):
    return torch.from_numpy(numpy.stack(list(play(video)))).permute(0, 3, 1, 2) / 255
print(json.dumps([float(metric(frames(one), frames(other)).mean()) for one, other in json.loads(sys.argv[5])]))
"""


def answer(code: str, *arguments: object) -> Any:
    command = [PYTHON, "-P", "-W", "ignore", "-c", code, str(ROOT / "scripts"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    script = ROOT / "tests/support/vbench_weights.py"
    subprocess.run([PYTHON, "-W", "ignore", script, directory, "lpips"], check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("videos")
    subprocess.run([PYTHON, "-c", MAKE, directory], check=True)
    return {video.stem: str(video) for video in directory.iterdir()}


def test_lpips_is_what_pyiqa_gives_for_the_frames_and_the_same_whoever_is_scored_with_it(
    weights: Path, videos: dict[str, str], tmp_path: Path
) -> None:
    files = json.dumps(find(weights, [NAME])[NAME])
    plain, noisy, blurred = (videos[name] for name in ("plain", "noisy", "blurred"))
    unlike = [videos["short"], videos["small"]]
    asked = [[plain, plain], [noisy, plain], [blurred, plain], [plain, noisy], *([video, plain] for video in unlike)]
    lacking = tmp_path / "lacking"
    parts = json.dumps([asked, asked[2:3], asked[3::-1]])
    together, alone, turned, changed, incomplete = answer(OURS, weights, files, lacking, parts, LINEAR)
    same, noise, blur, back, *said = together
    assert same == 0.0
    assert noise == back
    assert 0 < noise != blur > 0
    assert alone == [blur]
    assert turned == [back, blur, noise, same]
    for video, why in zip(unlike, said, strict=True):
        assert f"{video}: this video and {plain} have frames of other numbers or sizes" in why
    assert "the SHA-256 of this file is not the listed one" in changed
    assert incomplete.startswith(f"CorruptWeights: {lacking / LINEAR}: these aren't weights of LPIPS: it has no lin3")
    theirs = answer(PYIQA, weights, tmp_path / "hub", LINEAR, json.dumps(asked[1:3]))
    assert [noise, blur] == pytest.approx(theirs, rel=1e-5)
