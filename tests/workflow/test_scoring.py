"""Scores come from upstream's code, one video at a time, in upstream's own environment."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaigns import ROOT, Campaign

from fleetcraft.analysis.tables import Results
from fleetcraft.analysis.vbench import official_results

PYTHON = ROOT / ".envs/vbench/bin/python"

OURS = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring.interface import Pair
from fleetcraft.scoring.vbench import score
pairs = [Pair("a prompt", Path(path), None) for path in sys.argv[2:]]
(values,) = score("temporal_flickering", pairs, {}, Ledger())
print(json.dumps([str(value) if isinstance(value, FleetcraftError) else value for value in values]))
"""

UPSTREAM = """
import json, sys
from vbench.temporal_flickering import cal_score
print(json.dumps([cal_score(path) for path in sys.argv[2:]]))
"""

UPSTREAM_FILE = """
import json, sys, tempfile
from pathlib import Path
from vbench import VBench
with tempfile.TemporaryDirectory() as scratch:
    videos = Path(scratch, "videos")
    videos.mkdir()
    for number, path in enumerate(sys.argv[2:]):
        (videos / f"a prompt-{number}.mp4").symlink_to(path)
    VBench("cpu", "", scratch).evaluate(str(videos), "all", dimension_list=["temporal_flickering"], mode="custom_input")
    print(json.dumps(json.loads(Path(scratch, "all_eval_results.json").read_text())))
"""

OUR_OWN = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[1])
from fleetcraft.scoring.frame_difference import mean_frame_difference
videos = [Path(path) for path in sys.argv[2:]]
print(json.dumps({matrix: [mean_frame_difference(video, matrix) for video in videos] for matrix in ("bt601", "bt709")}))
"""


SUITE = """
import json, pathlib, vbench
print(json.dumps(json.loads(pathlib.Path(vbench.__file__).with_name("VBench_full_info.json").read_text())))
"""


def answer(code: str, videos: list[Path], python: Path = PYTHON) -> Any:
    command = [python, "-P", "-c", code, ROOT / "scripts", *videos]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def videos(finished: Campaign) -> list[Path]:
    return sorted((finished.directory / "scratch/store/videos").rglob("*.mp4"))


def test_our_driver_gives_upstream_s_values_in_the_order_of_the_videos(videos: list[Path]) -> None:
    values = answer(OURS, videos)
    assert values == answer(UPSTREAM, videos)
    assert len(set(values)) > 1
    assert answer(OURS, videos[::-1]) == values[::-1]
    assert answer(OURS, videos[3:4]) == values[3:4]


def test_upstream_s_temporal_flickering_is_our_frame_difference_of_colours_taken_for_bt_601(videos: list[Path]) -> None:
    upstream = answer(UPSTREAM, videos)
    ours = answer(OUR_OWN, videos, ROOT / ".envs/diffusion/bin/python")
    # Upstream adds in single precision.
    assert [1 - difference / 255 for difference in ours["bt601"]] == pytest.approx(upstream, abs=1e-6)
    # The videos are of BT.709 and say so; OpenCV doesn't look.
    by_tags = [1 - difference / 255 for difference in ours["bt709"]]
    assert by_tags == pytest.approx(upstream, abs=0.01)
    assert all(abs(one - other) > 1e-5 for one, other in zip(by_tags, upstream, strict=True))


def test_a_video_that_upstream_would_leave_out_is_named(videos: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    shutil.copy(videos[0], broken)
    broken.write_bytes(broken.read_bytes()[:200])
    first, said, last = answer(OURS, [videos[0], broken, videos[1]])
    assert [first, last] == answer(OURS, videos[:2])
    assert str(broken) in said
    assert "no result in temporal_flickering" in said


def test_the_file_that_vbench_writes_is_the_one_that_records_give(videos: list[Path]) -> None:
    upstream = answer(UPSTREAM_FILE, videos)
    values = answer(OURS, videos)
    plan = {
        "conditions": {"full": {}},
        "scorers": {"temporal_flickering": {}},
        "prompts": [{"text": "a prompt", "dimensions": []}],
        "seeds": list(range(len(videos))),
    }
    results, about = Results(plan), {"arm": "full", "prompt": "a prompt", "sample": "s"}
    encoder = {"codec": "libx264", "pixel_format": "yuv420p", "crf": 18}
    for seed, value in enumerate(values):
        made = {"key": "k", "sha256": "0" * 64, "bytes": 9, "shape": [5, 32, 32, 3]}
        video = {"kind": "videos", "encoder": encoder, **made}
        score = {"kind": "scores", "dimension": "temporal_flickering", "video": "k", "value": value}
        results.add([record | about | {"seed": seed} for record in (video, score)])
    ours = json.loads(official_results(results)["full"])
    assert ours.keys() == upstream.keys()
    (our_score, our_rows, said), (their_score, their_rows) = (
        ours["temporal_flickering"],
        upstream["temporal_flickering"],
    )
    assert said == "the prompts are not those of the suite"
    assert our_score == pytest.approx(their_score, rel=1e-12)
    # Upstream's rows are in the order of its directory, and their paths lead there.
    assert our_rows == sorted(
        ({**row, "video_path": Path(row["video_path"]).name} for row in their_rows),
        key=lambda row: int(row["video_path"].removesuffix(".mp4").rpartition("-")[2]),
    )


def test_the_prompt_suite_is_the_one_that_the_wheel_carries() -> None:
    upstream = answer(SUITE, [])
    ours = json.loads((ROOT / "resources/prompts/vbench.json").read_text())["prompts"]
    assert ours == [{"prompt": entry["prompt_en"], "dimensions": entry["dimension"]} for entry in upstream]
