"""Weights of dimensions are looked for, and named with their sources, before anything is asked of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkpoints import list_digests, write_verifier_files
from experiments import changed

from fleetcraft.cli.main import main
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.errors import BadEnvironment, BadInput, CorruptWeights, MissingWeights
from fleetcraft.scoring.actions import known_actions, named_for, wanted_action
from fleetcraft.scoring.dimensions import DIMENSIONS, READER
from fleetcraft.scoring.vbench_dimensions import VBENCH
from fleetcraft.scoring.weights import FILE, find, needed
from fleetcraft.stages.describe import describe

Planner = Callable[[dict[str, Any]], Plan]

TWO = ["motion_smoothness", "dynamic_degree"]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Files that stand for the weights of all dimensions, and their list."""
    directory = tmp_path / "weights"
    for dimension in DIMENSIONS:
        for file in needed(dimension):
            (directory / file.path).parent.mkdir(parents=True, exist_ok=True)
            (directory / file.path).write_text(file.path)
    list_digests(directory)
    return directory


@pytest.fixture
def scored(small: dict[str, Any], weights: Path) -> dict[str, Any]:
    """The small experiment with videos that all dimensions can score, in two that need weights."""
    shaped = changed(small, "video", {"width": 128, "height": 128, "frames": 9, "fps": 8})
    return changed(shaped, "scoring", {"dimensions": TWO, "weights": str(weights)})


def test_every_dimension_but_flickering_needs_weights_and_all_of_them_have_a_source() -> None:
    used = {file for dimension in DIMENSIONS for file in needed(dimension)}
    assert {name for name in VBENCH if not needed(name)} == {"temporal_flickering"}
    assert {file.path for file in used} == set(yaml.safe_load(FILE.read_text())["files"])
    assert all(file.source.startswith("https://") for file in used)


def test_a_plan_has_the_listed_digest_of_every_file_that_a_dimension_needs(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    found = plan_of(scored).weights
    assert {name: list(files) for name, files in found.items()} == {
        "motion_smoothness": ["amt_model/amt-s.pth"],
        "dynamic_degree": ["raft_model/models/raft-things.pth"],
    }


def test_all_that_is_missing_is_named_with_its_place_and_its_source(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    (weights / "clip_model/ViT-L-14.pt").unlink()
    (weights / "aesthetic_model/emb_reader/sa_0_4_vit_l_14_linear.pth").unlink()
    with pytest.raises(MissingWeights) as caught:
        plan_of(changed(scored, "scoring.dimensions", ["aesthetic_quality"]))
    said = str(caught.value)
    assert "'scoring.weights'" in said
    for file in needed("aesthetic_quality"):
        assert str(weights / file.path) in said
        assert file.source in said
    # Nobody else needs them.
    assert plan_of(scored).weights


def test_an_experiment_without_weights_is_told_which_dimensions_want_them(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    with pytest.raises(MissingWeights, match=r"'scoring\.weights': motion_smoothness, dynamic_degree can't be scored"):
        plan_of(changed(scored, "scoring", {"dimensions": TWO}))
    with pytest.raises(MissingWeights, match=r"yaml:\d+, key 'scoring\.weights': /nowhere: there is no such directory"):
        plan_of(changed(scored, "scoring.weights", "/nowhere"))
    assert plan_of(changed(scored, "scoring", {"dimensions": ["temporal_flickering"]})).weights == {}


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("", CorruptWeights, "this file is empty"),
        ("version https://git-lfs.github.com/spec/v1\n", MissingWeights, r"amt-s\.pth.*a pointer of Git LFS"),
    ],
)
def test_a_file_that_can_t_be_weights_is_refused(
    plan_of: Planner, scored: dict[str, Any], weights: Path, content: str, error: type[Exception], said: str
) -> None:
    (weights / "amt_model/amt-s.pth").write_text(content)
    with pytest.raises(error, match=said):
        plan_of(scored)


def test_the_doctor_tells_a_dead_link_and_a_pointer_from_what_is_not_there(
    weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link, pointer, gone = (weights / file.path for file in needed("object_class")[:3])
    link.unlink()
    link.symlink_to("/nowhere/blob")
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    gone.unlink()
    assert main(["scoring", "doctor", str(weights), "--dimension", "object_class"]) == 1
    said = capsys.readouterr().out
    assert f"{link}: this is a link to /nowhere/blob, which isn't there" in said
    assert f"{pointer}: this is a pointer of Git LFS" in said
    assert f"{gone}: object_class needs this file, and it isn't there" in said


def test_a_file_that_isn_t_in_the_list_of_digests_is_refused(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    sums = weights / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.open() if "amt-s" not in line))
    with pytest.raises(BadInput, match=r"SHA256SUMS.*amt_model/amt-s\.pth is not in this list"):
        plan_of(scored)
    sums.unlink()
    with pytest.raises(MissingWeights, match="sha256sum"):
        plan_of(scored)


def test_weights_that_upstream_publishes_a_digest_of_must_have_it(weights: Path) -> None:
    with pytest.raises(CorruptWeights, match=r"ViT-B-32\.pt.*published 40d36571"):
        find(weights, ["background_consistency"])


def test_the_first_digits_of_a_digest_count_where_no_more_is_published(weights: Path) -> None:
    backbone, layers = needed("lpips")
    assert backbone.sha256 == "7be5be79"
    listed = {backbone.path: "7be5be79" + 56 * "0", layers.path: layers.sha256}
    (weights / "SHA256SUMS").write_text("".join(f"{digest}  ./{path}\n" for path, digest in listed.items()))
    assert find(weights, ["lpips"]) == {"lpips": listed}
    (weights / "SHA256SUMS").write_text("".join(f"{64 * '0'}  ./{path}\n" for path in listed))
    with pytest.raises(CorruptWeights, match=r"alexnet.*published 7be5be79"):
        find(weights, ["lpips"])


def test_lpips_compares_every_arm_with_its_baseline_on_weights_that_are_in_its_key(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    (weights / "PROXY").write_text("random numbers\n")
    document = changed(scored, "scoring.dimensions", ["proxy-lpips"])
    plan = plan_of(document)
    shard = next(iter(plan.shards))
    assert plan.scored_shards(plan.baseline, "proxy-lpips") == []
    job = describe(plan, "score", {"arm": "cached", "dimension": "proxy-lpips", "shard": shard})
    assert (job.toolchain, job.settings["scorer"], job.settings["device"]) == ("vbench", "lpips", "cpu")
    assert all(sample["baseline_video"] not in (None, sample["video"]) for sample in job.samples)
    assert job.settings["weights"] == {"directory": str(weights), "files": plan.weights["proxy-lpips"]}
    with pytest.raises(BadInput, match=r"not upstream's \(random numbers\), so what they give is no lpips"):
        plan_of(changed(document, "scoring.dimensions", ["lpips"]))
    with pytest.raises(BadInput, match=r"'video\.width': proxy-lpips needs 31"):
        plan_of(changed(document, "video.width", 16))
    (weights / needed("lpips")[1].path).write_text("trained anew")
    list_digests(weights)
    again = plan_of(document)
    for sample in plan.samples("cached", shard):
        assert again.score_key(sample, "proxy-lpips") != plan.score_key(sample, "proxy-lpips")


def test_a_changed_digest_changes_the_scores_that_the_file_decides_and_no_others(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    def keys() -> tuple[list[str], list[str], list[str]]:
        plan = plan_of(scored)
        samples = [sample for shard in plan.shards for sample in plan.samples("full", shard)]
        first, second = ([plan.score_key(sample, name) for sample in samples] for name in TWO)
        return first, second, [plan.video_key(sample) for sample in samples]

    before = keys()
    (weights / "raft_model/models/raft-things.pth").write_text("retrained")
    list_digests(weights)
    after = keys()
    assert (after[0], after[2]) == (before[0], before[2])
    assert set(after[1]).isdisjoint(before[1])


def test_the_device_is_part_of_the_scores_that_a_model_gives_and_of_no_others(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    document = changed(scored, "scoring.dimensions", ["temporal_flickering", *TWO])
    here, there = (
        plan_of(changed(document, "stack", {"device": device, "machine": "x86_64"})) for device in ("cpu", "cuda")
    )
    differ = {name for name in here.dimensions if here.scorer_settings(name) != there.scorer_settings(name)}
    assert differ == set(TWO)


def test_where_there_is_no_decord_our_reader_and_pyav_stand_in_its_place_in_keys_and_jobs(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    names = ["subject_consistency", "motion_smoothness"]  # the second reads through OpenCV
    document = changed(scored, "scoring.dimensions", names)
    here, there = (plan_of(changed(document, "stack.machine", machine)) for machine in ("x86_64", "aarch64"))
    before, after = here.scorer_settings(names[0]), there.scorer_settings(names[0])
    # Golden: whoever changes the first makes every score through decord anew.
    assert set(before) == {"dimension", "packages", "weights", "place"}
    assert set(before["packages"]) == {"vbench", "numpy", "torch", "torchvision", "pillow", "decord"}
    assert set(after["packages"]) == {"vbench", "numpy", "torch", "torchvision", "pillow", "av"}
    assert after == before | {"packages": after["packages"], "reader": READER, "machine": "aarch64"}
    assert there.scorer_settings(names[1]) == here.scorer_settings(names[1]) | {"machine": "aarch64"}
    for name in names:
        where = {"arm": "full", "dimension": name, "shard": next(iter(there.shards))}
        one, other = (describe(plan, "score", where) for plan in (here, there))
        assert "reader" not in one.settings
        assert other.settings["reader"] == "av"  # upstream imports it also where it reads nothing by it
        assert set(other.packages) == set(there.scorer_settings(name)["packages"])


def test_what_our_own_code_computes_is_keyed_by_its_ffmpeg_and_not_by_the_machine(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    document = changed(scored, "scoring.dimensions", ["mean_frame_difference"])
    here, there = (
        plan_of(changed(document, "stack.machine", machine)).scorer_settings("mean_frame_difference")
        for machine in ("x86_64", "aarch64")
    )
    assert here.keys() == there.keys() == {"dimension", "packages", "version", "ffmpeg_sha256"}
    assert here["ffmpeg_sha256"] != there["ffmpeg_sha256"]


def test_rgb_that_our_reader_would_have_to_scale_is_refused_before_anything_runs(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    document = changed(scored, "prompts", {"suite": "vbench", "dimensions": ["scene"], "limit": 2})
    document = changed(document, "scoring.dimensions", ["scene"])
    document = changed(document, "encoder", {"preset": "lossless"})
    assert plan_of(document).dimensions == ["scene"]
    with pytest.raises(BadInput, match=r"encoder\.preset.*scene scales frames as they are read.*'lossless'"):
        plan_of(changed(document, "stack.machine", "aarch64"))


def test_other_weights_than_upstream_s_serve_proxies_alone(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    proxies = changed(scored, "scoring.dimensions", ["proxy-background_consistency"])
    with pytest.raises(BadInput, match=r"PROXY.*doesn't say what they are.*ask for background_consistency"):
        plan_of(proxies)
    (weights / "PROXY").write_text("MobileNet in DINO's place\nand more about it\n")
    assert plan_of(proxies).weights
    with pytest.raises(BadInput, match=r"not upstream's \(MobileNet in DINO's place\).*proxy-motion_smoothness"):
        plan_of(scored)


def test_a_proxy_is_no_dimension_of_vbench_and_has_the_prompts_of_the_one_that_it_stands_for(
    plan_of: Planner, scored: dict[str, Any], weights: Path
) -> None:
    (weights / "PROXY").write_text("random numbers\n")
    name = "proxy-appearance_style"
    document = changed(scored, "scoring.dimensions", [name])
    document = changed(document, "prompts", {"suite": "vbench", "dimensions": ["appearance_style", "human_action"]})
    plan = plan_of(document)
    suited = {prompt.text for prompt in plan.prompts if plan.is_scored(prompt, name)}
    assert len(suited) == VBENCH["appearance_style"].prompts < len(plan.prompts)
    assert name not in VBENCH


@pytest.mark.parametrize("name", ["object_class", "scene", "appearance_style", "proxy-scene"])
def test_dimensions_that_ask_the_suite_what_to_see_refuse_prompts_of_one_s_own(
    plan_of: Planner, scored: dict[str, Any], name: str
) -> None:
    with pytest.raises(BadInput, match=rf"'scoring\.dimensions': .*these are your own \(found '{name}'\)"):
        plan_of(changed(scored, "scoring.dimensions", [name]))


@pytest.mark.parametrize("name", ["human_action", "proxy-human_action"])
def test_prompts_of_which_human_action_could_only_say_0_are_refused_and_named(
    plan_of: Planner, scored: dict[str, Any], weights: Path, name: str
) -> None:
    prompts = Path(scored["prompts"]["file"])
    if name.startswith("proxy-"):
        (weights / "PROXY").write_text("random numbers\n")
    document = changed(scored, "scoring.dimensions", [name])
    prompts.write_text("a cat\nA person is riding a bike\nA person is flying kites\nA person is clapping.\na dog\n")
    with pytest.raises(BadInput) as caught:
        plan_of(document)
    said = str(caught.value)
    assert f"experiment.yaml:28, key 'prompts.file': {prompts}: {name} could only say 0 of 4 of these 5 prompts" in said
    assert "the first are 'a cat', 'A person is flying kites', 'A person is clapping.'; names count" in said
    assert "'clapping.' is not 'clapping'" in said
    prompts.write_text("A PERSON is riding a bike\na person is clapping-at night\nThe person is juggling fire_2\n")
    assert plan_of(document).weights


def test_a_prompt_s_action_is_read_from_as_much_of_it_as_the_name_of_its_file_has() -> None:
    assert wanted_action("A person is riding a bike") == "riding a bike"
    assert wanted_action("A/B, the other person is clapping") == "clapping"
    assert wanted_action(f"{'я' * 95}, a person is clapping") not in known_actions()
    assert len(f"{named_for('я' * 300)}-000000.mp4".encode()) <= 255
    assert len(known_actions()) == 400


def test_a_dimension_whose_packages_no_index_has_is_refused_with_how_to_provide_them(
    plan_of: Planner, scored: dict[str, Any]
) -> None:
    document = changed(scored, "prompts", {"suite": "vbench", "dimensions": ["color"]})
    with pytest.raises(BadEnvironment, match=r"vbench\.yaml.*color needs detectron2.*PIP_FIND_LINKS"):
        plan_of(changed(document, "scoring.dimensions", ["color"]))


@pytest.mark.parametrize(
    ("video", "key"),
    [
        ({"width": 112, "height": 128, "frames": 9, "fps": 8}, "width"),
        ({"width": 128, "height": 128, "frames": 9, "fps": 40}, "frames"),
    ],
)
def test_videos_that_a_dimension_would_score_as_nonsense_are_refused(
    plan_of: Planner, scored: dict[str, Any], video: dict[str, int], key: str
) -> None:
    with pytest.raises(BadInput, match=rf"'video\.{key}': dynamic_degree needs"):
        plan_of(changed(changed(scored, "video", video), "scoring.dimensions", ["dynamic_degree"]))


@pytest.mark.parametrize(("fps", "frames"), [(4, 3), (8, 3), (16, 5), (24, 7), (30, 9)])
def test_dynamic_degree_needs_three_frames_of_those_that_it_looks_at(fps: int, frames: int) -> None:
    assert DIMENSIONS["dynamic_degree"].fewest_frames(fps) == frames
    assert len(range(0, frames, max(1, round(fps / 8)))) == 3
    assert DIMENSIONS["motion_smoothness"].fewest_frames(fps) == 3


def test_the_doctor_says_what_can_t_be_scored_and_why(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (weights / "amt_model/amt-s.pth").unlink()
    assert main(["scoring", "doctor", str(weights), "--dimension", "motion_smoothness", "--dimension", "color"]) == 1
    said = capsys.readouterr().out
    assert "motion_smoothness  can't be scored" in said
    assert f"{weights}/amt_model/amt-s.pth" in said
    assert "huggingface.co/lalala125/AMT" in said
    assert "color needs detectron2" in said


def test_the_doctor_lists_what_to_mirror(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scoring", "doctor", "--dimension", "dynamic_degree"]) == 1
    said = capsys.readouterr().out
    assert all(file.path in said and file.source in said for file in needed("dynamic_degree"))


def test_the_doctor_looks_at_what_an_experiment_scores_its_verifiers_too(
    scored: dict[str, Any], weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (weights / "amt_model/amt-s.pth").unlink()
    model = write_verifier_files(tmp_path / "xclip")
    scored["scoring"]["verifiers"] = {"alignment": {"type": "xclip", "path": str(model)}}
    scored["scoring"]["dimensions"].append("alignment")
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(yaml.safe_dump(scored))
    (model / "config.json").unlink()
    assert main(["scoring", "doctor", "--experiment", str(experiment)]) == 1
    said = capsys.readouterr().out
    assert f"{weights}/amt_model/amt-s.pth" in said
    assert "alignment          can't be scored" in said
    assert f"alignment: {experiment}:" in said
    assert f"key 'scoring.verifiers.alignment.path': {model}/config.json: this file" in said
    assert "scene" not in said
    assert main(["scoring", "doctor", "--experiment", str(experiment), "--dimension", "alignmend"]) == 1
    assert "Did you mean 'alignment'" in capsys.readouterr().err


def test_the_doctor_knows_no_other_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scoring", "doctor", "--dimension", "scenes"]) == 1
    assert "Did you mean 'scene'" in capsys.readouterr().err
