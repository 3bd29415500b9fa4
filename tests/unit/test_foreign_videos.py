"""Arms of existing videos: which file is of which prompt and seed, what is refused without decoding, and their keys."""

from __future__ import annotations

import copy
import csv
import hashlib
import os
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed
from hypothesis import given
from hypothesis import strategies as st
from plans import all_samples

from fleetcraft.analysis.encodings import ENCODERS
from fleetcraft.cli.plan import plan_text
from fleetcraft.cli.summary import summary_text
from fleetcraft.evidence.archive import manifests_of
from fleetcraft.experiment import foreign as foreign_module
from fleetcraft.experiment.alike import not_compared_in
from fleetcraft.experiment.arms import VideosSource
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.foreign import look
from fleetcraft.experiment.models import Prompts
from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.prompts import load_prompts
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.video_names import video_name
from fleetcraft.ground.errors import FleetcraftError

Write = Callable[[dict[str, Any]], Path]
PlanOf = Callable[[dict[str, Any]], Plan]

PROMPTS, SEEDS = ["a red bicycle", "a blue boat", "a green kite"], [0, 1]


def list_digests(directory: Path) -> None:
    list_digests_of(directory, Path.is_file)


def list_digests_of(directory: Path, listed: Callable[[Path], bool]) -> None:
    files = filter(listed, directory.glob("*.mp4"))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (directory / "SHA256SUMS").write_text("".join(lines))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Files with the names that the small experiment's videos have; nothing here decodes them."""
    directory = tmp_path / "the samples"
    directory.mkdir()
    for prompt in PROMPTS:
        for seed in SEEDS:
            (directory / video_name(prompt, seed, SEEDS)).write_bytes(f"{prompt} {seed}".encode())
    list_digests(directory)
    return directory


@pytest.fixture
def foreign(small: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The small experiment with an arm of existing videos in the place of the cached one."""
    small["arms"] = {
        "full": small["arms"]["full"],
        "theirs": {"source": {"videos": str(directory), "same_encoder": True}},
    }
    return small


@pytest.fixture
def index(directory: Path, foreign: dict[str, Any], tmp_path: Path) -> list[list[str]]:
    """The rows of an index for renamed files, one of them in a folder; `write_index` puts them where it is named."""
    table = [["file", "prompt", "seed", "remark"]]
    for number, prompt in enumerate(PROMPTS):
        for seed in SEEDS:
            name = f"deeper/{number}{seed}.mp4" if number else f"{number}{seed}.mp4"
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / video_name(prompt, seed, SEEDS)).rename(directory / name)
            table.append([name, prompt, str(seed), "x"])
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  ./{file.relative_to(directory)}\n"
        for file in directory.rglob("*.mp4")
    ]
    (directory / "SHA256SUMS").write_text("".join(lines))
    foreign["arms"]["theirs"]["source"]["index"] = str(tmp_path / "index.csv")
    write_index(tmp_path, table)
    return table


def write_index(tmp_path: Path, table: list[list[str]]) -> None:
    with (tmp_path / "index.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)


def refusal(file: Path) -> str:
    with pytest.raises(FleetcraftError) as caught:
        plan_of_file(file)
    assert "\n" not in str(caught.value), "one paragraph"
    return str(caught.value)


def ids(plan: Plan, arm: str) -> dict[tuple[str, int], str]:
    return {
        (sample.prompt.text, sample.seed): sample.sample_id
        for shard in plan.shards
        for sample in plan.samples(arm, shard)
    }


# ---------------------------------------------------------------------- which file is which


def test_the_files_of_further_seeds_are_found_by_the_indexes_after_the_others(
    foreign: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    videos = tmp_path / "whole suite"
    videos.mkdir()
    foreign["prompts"] = {"suite": "vbench", "dimensions": ["temporal_flickering", "human_action"]}
    foreign["seeds"], foreign["further_seeds"] = [40, 41], {"temporal_flickering": [7, 3]}
    foreign["scoring"] = {"dimensions": ["temporal_flickering"]}
    foreign["arms"] = {"theirs": {"source": {"videos": str(videos)}}}
    foreign["baseline"] = "theirs"
    for prompt in load_prompts(Prompts(**foreign["prompts"])):
        count = 4 if "temporal_flickering" in prompt.dimensions else 2
        for index in range(count):
            (videos / f"{prompt.text}-{index}.mp4").write_bytes(f"{prompt.text} {index}".encode())
    list_digests(videos)
    plan = plan_of(foreign)
    assert not plan.foreign["theirs"].unused
    text = next(prompt.text for prompt in plan.prompts if "temporal_flickering" in prompt.dimensions)
    files = plan.foreign["theirs"].files
    assert [files[text, seed] for seed in (40, 41, 7, 3)] == [f"{text}-{index}.mp4" for index in range(4)]
    (videos / f"{text}-3.mp4").unlink()
    with pytest.raises(FleetcraftError, match=r"1 of 500 videos are missing.*after these in `further_seeds`"):
        plan_of(foreign)


def test_files_are_found_by_vbench_s_names(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(foreign)
    found = plan.foreign["theirs"]
    assert found.files["a blue boat", 1] == "a blue boat-1.mp4"
    assert found.digests["a blue boat", 1] == hashlib.sha256(b"a blue boat 1").hexdigest()
    assert (len(found.files), found.unused) == (6, ())


def test_the_index_in_a_name_counts_the_seeds_of_the_experiment(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    foreign["seeds"] = [7, 3]
    assert plan_of(foreign).foreign["theirs"].files["a blue boat", 3] == "a blue boat-1.mp4"


def test_a_table_says_which_file_is_which(
    foreign: dict[str, Any], index: list[list[str]], plan_of: PlanOf, directory: Path
) -> None:
    found = plan_of(foreign).foreign["theirs"]
    assert found.files["a red bicycle", 1] == "01.mp4"
    assert found.files["a green kite", 0] == "deeper/20.mp4"
    assert found.digests["a green kite", 0] == hashlib.sha256(b"a green kite 0").hexdigest()


def test_the_same_file_is_the_same_sample_by_whatever_name(
    foreign: dict[str, Any], plan_of: PlanOf, request: pytest.FixtureRequest
) -> None:
    by_name = ids(plan_of(copy.deepcopy(foreign)), "theirs")
    request.getfixturevalue("index")
    assert ids(plan_of(foreign), "theirs") == by_name


def test_videos_of_other_prompts_and_seeds_are_left_alone_and_told(
    foreign: dict[str, Any], plan_of: PlanOf, directory: Path
) -> None:
    foreign["seeds"] = [0]
    plan = plan_of(foreign)
    assert plan.foreign["theirs"].unused == tuple(
        f"a {what}-1.mp4" for what in ("blue boat", "green kite", "red bicycle")
    )
    text = plan_text(plan)
    assert plan.foreign["theirs"].bytes == sum(file.stat().st_size for file in directory.glob("*-0.mp4"))
    assert f"theirs   3 existing videos, as they are, of {directory}" in text
    assert "theirs: 3 others there are not of this experiment: 'a blue boat-1.mp4'" in text


def test_strays_of_every_kind_are_left_alone_and_told(
    foreign: dict[str, Any], plan_of: PlanOf, directory: Path
) -> None:
    for name in ("a blue boat-0.mp4.part", ".DS_Store", "._a blue boat-0.mp4", "read me.txt"):
        (directory / name).write_text("x")
    (directory / "older").mkdir()
    (directory / "older/a blue boat-0.mp4").write_text("another")
    videos = plan_of(foreign).foreign["theirs"]
    assert videos.unused == ("._a blue boat-0.mp4",)
    assert videos.strays == (".DS_Store", "a blue boat-0.mp4.part", "older/", "read me.txt")
    assert "4 strays there are no .mp4 files: '.DS_Store', 'a blue boat-0.mp4.part', 'older/', …" in videos.remarks[1]


def test_a_link_to_itself_among_the_videos_is_named_and_one_whose_target_has_gone_is_a_stray(
    foreign: dict[str, Any], plan_of: PlanOf, write: Write, directory: Path
) -> None:
    (directory / "latest").symlink_to("purged")
    assert plan_of(foreign).foreign["theirs"].strays == ("latest",)
    (directory / "loop").symlink_to("loop")
    text = refusal(write(foreign))
    assert f"key 'arms.theirs.source.videos': {directory}/loop: this link among the videos can't be" in text


def test_an_index_that_can_t_be_opened_is_named(foreign: dict[str, Any], write: Write, tmp_path: Path) -> None:
    (tmp_path / "index.csv").symlink_to("index.csv")
    foreign["arms"]["theirs"]["source"]["index"] = str(tmp_path / "index.csv")
    text = refusal(write(foreign))
    assert f"key 'arms.theirs.source.index': {tmp_path}/index.csv: this index of videos can't be read" in text


def test_an_index_and_a_list_of_digests_beside_the_videos_are_no_strays(
    foreign: dict[str, Any], index: list[list[str]], plan_of: PlanOf, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.csv").rename(directory / "index.csv")
    foreign["arms"]["theirs"]["source"]["index"] = str(directory / "index.csv")
    assert plan_of(foreign).foreign["theirs"].remarks == []


def test_the_names_of_a_suite_s_prompts_differ_two_of_them_in_case_alone() -> None:
    names = {video_name(prompt.text, 0, [0]) for prompt in load_prompts(Prompts(suite="vbench"))}
    assert len(names) == 944
    assert {"A fantasy landscape-0.mp4", "a fantasy landscape-0.mp4"} <= names


# ---------------------------------------------------------------------- keys and jobs


def test_another_file_makes_one_sample_anew(foreign: dict[str, Any], plan_of: PlanOf, directory: Path) -> None:
    before = plan_of(foreign)
    (directory / "a blue boat-1.mp4").write_bytes(b"another")
    list_digests(directory)
    after = plan_of(foreign)
    changes = ids(before, "theirs").items() ^ ids(after, "theirs").items()
    assert {about for about, _ in changes} == {("a blue boat", 1)}
    assert ids(before, "full") == ids(after, "full")
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("key", "value"),
    [("models.tiny.source.seed", 1), ("stack.device", "cuda"), ("encoder.crf", 30), ("arms.full.steps", 9)],
)
def test_what_makes_other_arms_videos_decides_nothing_of_existing_ones(
    foreign: dict[str, Any], plan_of: PlanOf, key: str, value: object
) -> None:
    foreign["scoring"]["dimensions"].append("temporal_flickering")
    before, after = plan_of(foreign), plan_of(changed(foreign, key, value))
    for shard in before.shards:
        assert before.videos_digest("theirs", shard) == after.videos_digest("theirs", shard)
        assert before.videos_digest("full", shard) != after.videos_digest("full", shard)
        for dimension, same in (("temporal_flickering", True), ("ssim", False)):
            digests = [plan.score_digest("theirs", dimension, shard) for plan in (before, after)]
            scores = [
                [plan.score_key(sample, dimension) for sample in plan.samples("theirs", shard)]
                for plan in (before, after)
            ]
            assert (digests[0] == digests[1]) == same, "ssim compares with the baseline's video"
            assert (scores[0] == scores[1]) == same


def test_the_planned_geometry_is_checked_again_when_it_changes(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    before, after = plan_of(foreign), plan_of(changed(foreign, "video.fps", 24))
    assert not set(ids(before, "theirs").values()) & set(ids(after, "theirs").values())


def test_an_arm_of_existing_videos_has_no_job_or_manifest_of_a_model(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(foreign)
    shards = len(plan.shards)
    assert plan.jobs["generate"] == plan.jobs["encode"] == plan.jobs["ingest"] == shards
    manifests = manifests_of(plan)
    assert len(manifests["videos"]) == 2 * shards
    assert not [path for path in manifests["latents"] if "theirs" in path.parts]


def test_an_experiment_of_existing_videos_alone_needs_no_model(
    foreign: dict[str, Any], plan_of: PlanOf, tmp_path: Path
) -> None:
    del foreign["models"], foreign["arms"]["full"]
    foreign["baseline"] = "theirs"
    foreign["scoring"]["dimensions"] = ["temporal_flickering"]
    plan = plan_of(foreign)
    assert not {"models", "generate", "decode", "encode"} & set(plan.jobs)
    assert manifests_of(plan)["models"] == []
    assert "6 existing videos" in plan_text(plan)


def test_variables_are_expanded_where_the_videos_are(
    foreign: dict[str, Any], plan_of: PlanOf, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLES", str(directory))
    assert plan_of(changed(foreign, "arms.theirs.source.videos", "${SAMPLES}")).foreign["theirs"].directory == directory


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("arms.theirs.source.video", "x", ["unknown key", "'arms.theirs.source.video'", "Did you mean 'videos'"]),
        ("arms.theirs.steps", 4, ["unknown key", "'arms.theirs.steps'"]),
        ("arms.theirs.source", {}, ["'arms.theirs.source.videos'", "missing"]),
        ("arms.theirs.source.videos", "/nowhere", ["/nowhere", "'arms.theirs.source.videos'", "no such directory"]),
        ("arms.theirs.source.index", "/nowhere.csv", ["/nowhere.csv", "'arms.theirs.source.index'", "no such index"]),
        ("arms.theirs.source.sha256sums", "/nowhere", ["/nowhere", "'arms.theirs.source.sha256sums'", "is missing"]),
    ],
)
def test_a_mistake_is_named(foreign: dict[str, Any], write: Write, key: str, value: object, said: list[str]) -> None:
    text = refusal(write(changed(foreign, key, value)))
    assert all(part in text for part in said), text


def test_missing_videos_are_counted_and_named_beside_the_strays(
    foreign: dict[str, Any], write: Write, directory: Path
) -> None:
    (directory / "a red bicycle-0.mp4").rename(directory / "A red bicycle-0.mp4")
    (directory / "a blue boat-1.mp4").unlink()
    text = refusal(write(foreign))
    assert f"experiment.yaml:21, key 'arms.theirs.source.videos': {directory}: 2 of 6 videos are missing" in text
    assert "'a red bicycle-0.mp4', 'a blue boat-1.mp4'" in text
    assert "1 others are there, of no prompt and seed: 'A red bicycle-0.mp4'" in text
    assert "names count to the letter: 'A red bicycle-0.mp4' is not 'a red bicycle-0.mp4'" in text
    assert "or say in an `index` which file is which" in text


def empty(directory: Path) -> None:
    (directory / "a blue boat-1.mp4").write_bytes(b"")


def without_target(directory: Path) -> None:
    (directory / "a blue boat-1.mp4").unlink()
    (directory / "a blue boat-1.mp4").symlink_to("purged.mp4")


def a_directory(directory: Path) -> None:
    (directory / "a blue boat-1.mp4").unlink()
    (directory / "a blue boat-1.mp4").mkdir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [(empty, "is empty"), (without_target, "a link whose target has gone"), (a_directory, "this is no file")],
)
def test_a_useless_file_is_named(
    foreign: dict[str, Any], write: Write, directory: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(directory)
    text = refusal(write(foreign))
    assert f"key 'arms.theirs.source.videos': {directory}/a blue boat-1.mp4: " in text
    assert said in text


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_may_not_be_read_is_named(
    foreign: dict[str, Any], write: Write, directory: Path, what: str, tmp_path: Path
) -> None:
    hidden = directory / "a blue boat-1.mp4" if what == "file" else directory
    file = write(foreign)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o777 if parent == tmp_path else 0o755)
    hidden.chmod(0o600 if what == "file" else 0o711)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # root may read everything
    else:
        hidden.chmod(0o000 if what == "file" else 0o111)
    try:
        text = refusal(file)
    finally:
        if was_root:
            os.seteuid(0)
    assert str(hidden) in text
    assert "may not be read" in text or "can't be listed" in text


def test_without_a_list_of_digests_the_error_shows_a_command_that_makes_it(
    foreign: dict[str, Any], write: Write, plan_of: PlanOf, directory: Path
) -> None:
    before = ids(plan_of(foreign), "theirs")
    (directory / "SHA256SUMS").unlink()
    text = refusal(write(foreign))
    assert "'arms.theirs.source.sha256sums'" in text
    command = text[text.index("Make it once: ") :].removeprefix("Make it once: ").removesuffix(".")
    subprocess.run(["bash", "-c", command], check=True)
    assert ids(plan_of(foreign), "theirs") == before


def test_a_video_that_is_not_in_the_list_is_named(foreign: dict[str, Any], write: Write, directory: Path) -> None:
    lines = (directory / "SHA256SUMS").read_text().splitlines(keepends=True)
    (directory / "SHA256SUMS").write_text("".join(line for line in lines if "blue boat-1" not in line))
    text = refusal(write(foreign))
    assert "1 videos are not in the list of digests: 'a blue boat-1.mp4'" in text


def test_one_video_under_two_names_is_refused(foreign: dict[str, Any], write: Write, directory: Path) -> None:
    (directory / "a blue boat-1.mp4").write_bytes((directory / "a blue boat-0.mp4").read_bytes())
    list_digests(directory)
    text = refusal(write(foreign))
    assert "two videos have the same bytes: 'a blue boat-0.mp4' and 'a blue boat-1.mp4'" in text


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("a blue boat-1.mp4", "A blue Boat-1.mp4"),
        ("a blue boat-1.mp4", "a blue boat-1.MP4"),
        ("a caf\u00e9-1.mp4", "a cafe\u0301-1.mp4"),
    ],
)
def test_a_name_that_is_there_twice_but_for_case_or_unicode_form_needs_an_index(
    foreign: dict[str, Any], write: Write, directory: Path, tmp_path: Path, name: str, twin: str
) -> None:
    if "caf" in name:
        (tmp_path / "prompts.txt").write_text("a caf\u00e9\na red bicycle\n", encoding="utf-8")
        for seed in SEEDS:
            (directory / f"a blue boat-{seed}.mp4").rename(directory / f"a caf\u00e9-{seed}.mp4")
        list_digests(directory)
    plan_of_file(write(foreign))
    (directory / twin).write_bytes(b"another")
    text = refusal(write(foreign))
    assert f"1 names are there twice but for case or Unicode form: {twin!r} and {name!r}" in text
    assert "or say in an `index` which file is which" in text


def test_the_suite_s_own_two_names_that_differ_in_case_may_both_be_there(
    foreign: dict[str, Any], plan_of: PlanOf, directory: Path
) -> None:
    prompts = Prompts(suite="vbench", dimensions=["overall_consistency"])
    texts = [prompt.text for prompt in load_prompts(prompts)]
    lower, upper = (texts.index(text) for text in ("a fantasy landscape", "A fantasy landscape"))
    wanted = texts[: max(lower, upper)]
    assert len({"a fantasy landscape", "A fantasy landscape"} & set(wanted)) == 1
    for text in texts:
        (directory / video_name(text, 0, [0])).write_text(text)
    list_digests(directory)
    foreign |= {"seeds": [0], "prompts": {**prompts.model_dump(exclude_none=True), "limit": len(wanted)}}
    found = plan_of(foreign).foreign["theirs"]
    assert len(found.files) == len(wanted)
    assert {"a fantasy landscape-0.mp4", "A fantasy landscape-0.mp4"} & set(found.unused)


@pytest.mark.parametrize("there", ["A RED bicycle-0.mp4", "a red bicycle-0.mp4.mp4", "a red  bicycle-0.webm"])
def test_a_name_that_is_nearly_the_wanted_one_is_told_and_not_taken(
    foreign: dict[str, Any], write: Write, directory: Path, there: str
) -> None:
    (directory / "a red bicycle-0.mp4").rename(directory / there)
    text = refusal(write(foreign))
    assert f"names count to the letter: {there!r} is not 'a red bicycle-0.mp4'" in text


@given(
    name=st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1),
    ending=st.lists(st.sampled_from([".mp4", ".MP4", ".part", ".webm"]), max_size=3),
)
def test_no_mistake_in_case_form_or_ending_keeps_a_name_from_being_recognised(name: str, ending: list[str]) -> None:
    core = foreign_module._core(f"{name}-0.mp4")
    for form in ("NFC", "NFD"):
        assert foreign_module._core(unicodedata.normalize(form, name) + "-0.mp4" + "".join(ending)) == core


def test_everything_that_is_wrong_with_a_folder_is_counted_in_one_error(
    foreign: dict[str, Any], write: Write, directory: Path
) -> None:
    (directory / "a red bicycle-0.mp4").unlink()
    empty(directory)
    a_directory_at = directory / "a green kite-0.mp4"
    a_directory_at.unlink()
    a_directory_at.mkdir()
    (directory / "A green kite-1.mp4").write_bytes(b"twin")
    list_digests_of(directory, lambda file: "kite" not in file.name)
    text = refusal(write(foreign))
    assert "1 of 6 videos are missing: 'a red bicycle-0.mp4'" in text
    assert "3 other things are wrong with these videos: `fleetcraft videos check EXPERIMENT` shows all" in text
    prompts = load_prompts(Prompts(file=foreign["prompts"]["file"]))
    _, faults = look("theirs", VideosSource(videos=str(directory)), prompts, Seeds(SEEDS, {}))
    said = [str(fault) for fault in faults]
    assert "names are there twice" in said[1]
    assert said[2].startswith(str(directory / "a blue boat-1.mp4"))
    assert "1 others can't be used either: 'a green kite-0.mp4'" in said[2]
    assert "2 videos are not in the list of digests: 'a green kite-0.mp4', 'a green kite-1.mp4'" in said[3]


# ---------------------------------------------------------------------- who is compared with whom


def test_an_arm_whose_encoder_nobody_vouches_for_is_scored_and_not_compared(
    foreign: dict[str, Any], plan_of: PlanOf
) -> None:
    foreign["scoring"]["dimensions"].append("temporal_flickering")
    foreign["arms"]["fast"] = foreign["arms"]["full"] | {"steps": 1}
    vouched = plan_of(foreign)
    foreign["arms"]["theirs"]["source"]["same_encoder"] = False
    plan = plan_of(foreign)
    assert vouched.not_compared == {}
    assert plan.not_compared == {"theirs": "how its videos were encoded is unknown"}
    assert plan.scored_shards("theirs", "ssim") == []
    assert plan.scored_shards("theirs", "temporal_flickering") == vouched.scored_shards("theirs", "ssim")
    assert plan.scored_shards("fast", "ssim") == vouched.scored_shards("fast", "ssim")
    text = plan_text(plan)
    assert "theirs is not compared with full: how its videos were encoded is unknown" in text
    assert "theirs was encoded as the others are by the experiment's own word" in plan_text(vouched)


def test_the_summary_tells_of_an_arm_that_mixes_codecs(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(foreign)
    file = Path(plan.paths.table("encoders"))
    file.parent.mkdir(parents=True)
    rows = ["theirs,h264 yuv420p,unknown,8,4,9,no: x", "theirs,hevc yuv420p,unknown,8,2,9,no: x"]
    file.write_text("\n".join([",".join(ENCODERS), "full,libx264 yuv420p,crf 18,8,6,9,baseline", *rows]) + "\n")
    Path(plan.paths.table("scores")).write_text("arm,dimension,videos,mean,low,high\nfull,ssim,6,0.5,0.4,0.6\n")
    said = " ".join(summary_text(plan.experiment, plan.digest, ["experiment.yaml"]).split())
    assert "theirs: its videos were not encoded alike: h264 yuv420p (4), hevc yuv420p (2);" in said


def test_of_a_baseline_that_nobody_vouches_for_nothing_is_compared(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    foreign |= {"baseline": "theirs", "scoring": {"dimensions": ["temporal_flickering"]}}
    assert plan_of(foreign).not_compared == {}
    foreign["arms"]["theirs"]["source"]["same_encoder"] = False
    assert plan_of(foreign).not_compared == {
        "full": "how the videos of the baseline 'theirs' were encoded is unknown",
    }


def test_a_dimension_that_compares_is_refused_where_no_arm_is_encoded_alike(
    foreign: dict[str, Any], write: Write
) -> None:
    foreign["arms"]["theirs"]["source"]["same_encoder"] = False
    text = refusal(write(foreign))
    assert "key 'scoring.dimensions'" in text
    assert "no other arm is known to be encoded alike (found 'ssim')" in text
    assert "say `same_encoder: true` in their `source`" in text


def test_whoever_vouches_changes_the_plan_and_no_key(foreign: dict[str, Any], plan_of: PlanOf) -> None:
    foreign["scoring"]["dimensions"] = ["temporal_flickering"]
    before = plan_of(foreign)
    foreign["arms"]["theirs"]["source"]["same_encoder"] = False
    after = plan_of(foreign)
    assert before.digest != after.digest, "its tables are others"
    assert not_compared_in(after.document()) == after.not_compared
    assert not_compared_in(before.document()) == {}
    assert {before.score_key(s, "temporal_flickering") for s in all_samples(before)} == {
        after.score_key(s, "temporal_flickering") for s in all_samples(after)
    }


def test_what_ingest_holds_a_claim_against_is_the_experiment_s_encoder(
    foreign: dict[str, Any], plan_of: PlanOf
) -> None:
    assert plan_of(foreign).vouched_stream("theirs") == "h264 yuv420p"
    assert plan_of(changed(foreign, "encoder.preset", "lossless")).vouched_stream("theirs") == "h264 gbrp"
    foreign["scoring"]["dimensions"] = ["temporal_flickering"]
    unclaimed = changed(foreign, "arms.theirs.source.same_encoder", False)
    assert plan_of(unclaimed).vouched_stream("theirs") is None


def test_prompts_that_share_a_file_name_need_an_index(foreign: dict[str, Any], write: Write, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("either/or\neither\u2215or\n")
    text = refusal(write(foreign))
    assert "two prompts have the same file name" in text
    assert "'either/or' and 'either\u2215or'" in text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["01.mp4", "a red bicycle", "0", ""], "prompt 'a red bicycle' with seed 0 is in an earlier row too"),
        (["00.mp4", "a red bicycle", "1", ""], "the file '00.mp4' is in an earlier row too"),
        (["01.mp4", "a red bicycle", "one", ""], "a seed is a whole number of at most 19 digits (found 'one')"),
        (["../01.mp4", "a red bicycle", "1", ""], "below the directory of the videos (found '../01.mp4')"),
        (["/tmp/01.mp4", "a red bicycle", "1", ""], "below the directory of the videos"),
        (["01.webm", "a red bicycle", "1", ""], "must name an .mp4 file"),
        (["", "a red bicycle", "1", ""], "must name an .mp4 file"),
        (["01.mp4"], "a seed is a whole number"),
        (["01.mp4", "a red bicycle", "9" * 5000, ""], "a seed is a whole number of at most 19 digits (found '999"),
    ],
)
def test_a_row_of_an_index_that_can_t_be_is_named_with_its_line(
    foreign: dict[str, Any], index: list[list[str]], write: Write, tmp_path: Path, row: list[str], said: str
) -> None:
    index[2] = row
    write_index(tmp_path, index)
    text = refusal(write(foreign))
    assert f"key 'arms.theirs.source.index': {tmp_path}/index.csv:3: " in text, text
    assert said in text


def test_prompts_and_seeds_without_a_row_are_counted_and_named(
    foreign: dict[str, Any], index: list[list[str]], write: Write, tmp_path: Path
) -> None:
    write_index(tmp_path, [index[0], *index[3:]])
    assert "2 of the experiment's 6 prompts and seeds have no row" in refusal(write(foreign))
    write_index(tmp_path, [["file", "prompt"], *[row[:2] for row in index[1:]]])
    assert "it has no column 'seed'" in refusal(write(foreign))
    (tmp_path / "index.csv").write_bytes(b"prompt,seed,file\n\xff\xfe,0,a.mp4\n")
    assert "no CSV file in UTF-8" in refusal(write(foreign))


def test_a_file_that_the_index_names_must_be_there(
    foreign: dict[str, Any], index: list[list[str]], write: Write, directory: Path
) -> None:
    (directory / "deeper/20.mp4").unlink()
    text = refusal(write(foreign))
    assert "1 of 6 videos are missing: 'deeper/20.mp4'" in text
    assert "Correct the index" in text


def test_existing_videos_are_not_timed_and_no_reason_to_time_again(
    foreign: dict[str, Any], plan_of: PlanOf, directory: Path
) -> None:
    foreign["timing"] = {"prompts": 1, "warmup": 1, "repeats": 1}
    before = plan_of(foreign)
    (directory / "a blue boat-1.mp4").write_bytes(b"another")
    list_digests(directory)
    foreign["arms"]["others"] = foreign["arms"].pop("theirs")
    assert plan_of(foreign).timing_digest() == before.timing_digest()
