"""A mistake in an experiment is named: file and line, key, value, remedy; never a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed

from fleetcraft.cli.main import main
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.models import Experiment
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.scoring.dimensions import DIMENSIONS

Write = Callable[[dict[str, Any]], Path]


def refusal(file: Path) -> str:
    with pytest.raises(FleetcraftError) as caught:
        plan_of_file(file)
    return str(caught.value)


MISTAKES = [
    ("guidence", "arms.full.guidence", 5.0, ["unknown key", "'arms.full.guidence'", "Did you mean 'guidance'"]),
    ("scorring", "scorring", {}, ["unknown key", "Did you mean 'scoring'"]),
    ("unknown key of a cache", "arms.cached.cache.treshold", 1, ["unknown key", "Did you mean 'threshold'"]),
    ("unknown key of a source", "models.tiny.source.sed", 1, ["unknown key", "Did you mean 'seed'"]),
    ("text for a number", "arms.full.steps", "eight", ["valid integer", "'arms.full.steps'", "'eight'"]),
    ("number for text", "name", 7, ["valid string", "'name'", "found 7"]),
    ("fraction for a count", "video.frames", 5.5, ["'video.frames'", "5.5"]),
    ("true for a count", "video.fps", True, ["valid integer", "'video.fps'"]),
    ("zero steps", "arms.full.steps", 0, ["greater than or equal to 1", "'arms.full.steps'"]),
    ("negative seed", "seeds", [0, -1], ["'seeds.1'", "found -1"]),
    ("a seed twice", "seeds", [1, 1], ["1 is given twice", "'seeds'"]),
    (
        "further seeds for one's own prompts",
        "further_seeds",
        {"temporal_flickering": [5]},
        ["'further_seeds'", "prompts from a file", "give their seeds in `seeds`"],
    ),
    ("no further seeds", "further_seeds", {"scene": []}, ["'further_seeds.scene'", "at least 1"]),
    ("a further seed twice", "further_seeds", {"scene": [5, 5]}, ["'further_seeds.scene'", "5 is given twice"]),
    ("a negative further seed", "further_seeds", {"scene": [-5]}, ["'further_seeds.scene.0'", "found -5"]),
    (
        "a filter of what isn't scored",
        "scoring.dimensions",
        ["ssim", "static_filter"],
        ["'scoring.dimensions'", "static_filter", "temporal_flickering, which isn't scored"],
    ),
    ("no arms", "arms", {}, ["'arms'", "at least 1"]),
    ("an arm of a missing model", "arms.full.model", "tinny", ["'arms.full.model'", "'tinny'", "Did you mean 'tiny'"]),
    ("a missing baseline", "baseline", "ful", ["'baseline'", "no arm is named 'ful'", "Did you mean 'full'"]),
    ("an unknown family", "models.tiny.family", "wann", ["'models.tiny.family'", "Did you mean 'wan'"]),
    ("an unknown dimension", "scoring.dimensions", ["sim"], ["'scoring.dimensions'", "Did you mean 'ssim'"]),
    ("an unknown preset", "encoder.preset", "h264-crf19", ["'encoder.preset'", "Did you mean 'h264-crf18'"]),
    ("quality of a preset with a factor", "encoder.quality", 8, ["'encoder.quality'", "no `quality`", "knob is `crf`"]),
    (
        "a factor for imageio's quality",
        "encoder",
        {"preset": "imageio-quality", "crf": 20},
        ["'encoder.crf'", "no `crf`", "Give `quality`"],
    ),
    ("a factor for no loss", "encoder", {"preset": "lossless", "crf": 1}, ["'encoder.crf'", "it loses nothing"]),
    ("a factor beyond x264's", "encoder.crf", 52, ["'encoder.crf'", "less than or equal to 51"]),
    ("quality beyond imageio's", "encoder.quality", 0.5, ["'encoder.quality'", "greater than or equal to 1"]),
    ("a name with a slash", "name", "a/b", ["'name'", "'a/b'", "letters, digits"]),
    ("odd width", "video.width", 33, ["'video.width'", "even", "use 32 or 34", "found 33"]),
    ("width off the VAE's grid", "video.width", 40, ["'video.width'", "no multiple of 16", "use 32 or 48"]),
    ("frames that the VAE can't express", "video.frames", 6, ["'video.frames'", "use 5 or 9", "family wan"]),
    ("attention that no CPU has", "arms.full.attention", "cudnn", ["'arms.full.attention'", "CPU has no 'cudnn'"]),
    ("an unknown kernel", "arms.full.attention", "flash3", ["'arms.full.attention'", "'math', 'flash'"]),
    ("an empty batch", "arms.full.batch", 0, ["'arms.full.batch'", "greater than or equal to 1"]),
    ("a batch that shares a cache", "arms.cached.batch", 2, ["'arms.cached.batch'", "one decision for all samples"]),
    ("a batch that no shard fills", "arms.full.batch", 5, ["'arms.full.batch'", "at most 4 samples", "shard_size"]),
    ("both tiny and a path", "models.tiny.source.path", "/models", ["'models.tiny.source'", "either"]),
    ("neither suite nor file", "prompts", {"limit": 2}, ["'prompts'", "either"]),
    (
        "a dimension that the suite lacks",
        "prompts",
        {"suite": "vbench", "dimensions": ["colour"]},
        ["Did you mean 'color'"],
    ),
    ("no such prompt file", "prompts.file", "/nowhere/prompts.txt", ["/nowhere/prompts.txt", "'prompts.file'"]),
    (
        "an unset variable",
        "paths.scratch",
        "${NOT_SET_ANYWHERE}/x",
        ["yaml:3, key 'paths.scratch'", "NOT_SET_ANYWHERE is not set"],
    ),
    ("no such model directory", "models.tiny.source", {"path": "/nowhere/model"}, ["/nowhere/model", "no such model"]),
]


@pytest.mark.parametrize(("key", "value", "said"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_mistake_is_named(small: dict[str, Any], write: Write, key: str, value: object, said: list[str]) -> None:
    text = refusal(write(changed(small, key, value)))
    assert all(part in text for part in said), text
    assert "experiment.yaml" in text or "/nowhere" in text, "the file is named"
    assert "\n" not in text, "one paragraph"


def test_a_dimension_that_has_nothing_to_score_is_refused(small: dict[str, Any], write: Write) -> None:
    del small["arms"]["cached"]
    assert "no other arm" in refusal(write(small))
    small["prompts"] = {"suite": "vbench", "dimensions": ["color"], "limit": 2}
    small["scoring"]["dimensions"] = ["temporal_flickering"]
    assert "none of the prompts" in refusal(write(small))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("arms.full", "tiny", "with the keys model, dtype, steps"),
        ("arms.best", {"search": {"candidates": 2, "rounds": ["full"]}}, "with the keys arm, keep"),
        ("arms.cached.cache", "first_block", "with the key type"),
        ("decode", {"tiling": 256}, "with the keys width, height, stride_width, stride_height"),
        ("scoring", "ssim", "with the keys verifiers, dimensions, weights"),
        ("models", ["wan"], "a mapping of names was expected"),
    ],
)
def test_where_a_mapping_belongs_the_error_says_what_it_looks_like_and_names_no_class(
    small: dict[str, Any], write: Write, key: str, value: object, said: str
) -> None:
    text = refusal(write(changed(small, key, value)))
    assert f"key '{key}" in text
    assert "a mapping" in text
    assert said in text
    assert "dictionary" not in text
    assert "instance" not in text


def test_the_file_and_the_line_are_named(small: dict[str, Any], write: Write) -> None:
    file = write(changed(small, "arms.cached.steps", "two"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "two" in text)
    assert refusal(file).startswith(f"{file}:{line}, key 'arms.cached.steps'")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("prompts.file", "prompts.file"),
        ("batch_table", "batch_table"),
        ("models.tiny.source", "models.tiny.source.path"),
        ("arms.cached", "arms.cached.source.videos"),
        ("scoring.weights", "scoring.weights"),
        ("scoring.verifiers", "scoring.verifiers.a.path"),
    ],
)
def test_a_wrong_path_is_told_after_the_line_of_the_key_that_names_it(
    small: dict[str, Any], write: Write, key: str, path: str
) -> None:
    value: Any = "/nowhere"
    for part in reversed(path.removeprefix(key).split(".")[1:]):
        value = {part: value}
    if key == "scoring.verifiers":
        value["a"]["type"] = "xclip"
    small["video"] |= {"width": 128, "height": 128}
    small["scoring"]["dimensions"] = ["motion_smoothness"]
    file = write(changed(small, key, value))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "/nowhere" in text)
    text = refusal(file)
    assert text.startswith(f"{file}:{line}, key '{path}': /nowhere: there is no such "), text


def test_a_key_of_a_file_that_the_experiment_names_is_told_after_the_experiment_s(
    small: dict[str, Any], write: Write, tmp_path: Path
) -> None:
    table = tmp_path / "batches.yaml"
    table.write_text("format: 1\npolicy: {}\nentry: []\n")
    file = write(small | {"batch_table": str(table)})
    text = refusal(file)
    assert f"{file}:" in text
    assert f"key 'batch_table': {table}:3, key 'entry': unknown key" in text, text


def test_a_missing_key_is_named_with_its_parent_s_line(small: dict[str, Any], write: Write) -> None:
    del small["arms"]["full"]["steps"]
    file = write(small)
    line = file.read_text().splitlines().index("  full:") + 1
    text = refusal(file)
    assert "this key is missing" in text
    assert f"{file}:{line}, key 'arms.full.steps'" in text


def test_a_key_given_twice_is_refused_with_both_lines(small: dict[str, Any], write: Write) -> None:
    file = write(small)
    file.write_text(file.read_text() + "name: again\n")
    text = refusal(file)
    assert "given twice, first in line 1" in text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("name: 2020-13-45", "month must be in 1..12"),
        pytest.param(f"name: {'1' * 5000}", "can't be read", id="a number of 5,000 digits"),
        ("name: !campaign demo", "'!campaign'"),
        ("name: =", "can't be read"),
        ("[a, b]: demo", "a key has to be a word"),
        ("name: &all [*all]", "this alias stands for what it is a part of"),
    ],
)
def test_yaml_that_can_not_be_meant_is_named_with_its_line(tmp_path: Path, written: str, said: str) -> None:
    file = tmp_path / "meaningless.yaml"
    file.write_text(f"# an experiment\n{written}\n")
    text = refusal(file)
    assert f"{file}:2" in text
    assert said in text


def test_broken_yaml_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("name: x\narms: [\n")
    assert f"{file}:3" in refusal(file)


@pytest.mark.parametrize("work", ["scratch", "scratch/work", "."])
def test_work_must_not_be_lost_when_scratch_is_purged(
    small: dict[str, Any], write: Write, tmp_path: Path, work: str
) -> None:
    text = refusal(write(changed(small, "paths.work", str(tmp_path / work))))
    assert "neither inside the other" in text


def test_a_link_does_not_hide_that_scratch_and_work_are_one(
    small: dict[str, Any], write: Write, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "work").symlink_to(tmp_path / "scratch")
    assert "neither inside the other" in refusal(write(small))


def test_a_root_below_a_file_can_t_be_written(small: dict[str, Any], write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = refusal(write(changed(small, "paths.scratch", str(tmp_path / "file/scratch"))))
    assert "'paths.scratch'" in text
    assert "is a file" in text


def test_a_root_without_permission_can_t_be_written(small: dict[str, Any], write: Write, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "mine").mkdir(mode=0o555)
    file = write(changed(small, "paths.scratch", str(tmp_path / "mine/scratch")))
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # root may write everywhere
    try:
        text = refusal(file)
    finally:
        if was_root:
            os.seteuid(0)
    assert "read-only for you" in text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a cat", "a dog", "a cat"], "is the same as the one in line 1"),
        (["A fantasy landscape", "a fantasy landscape"], "differs only in case or Unicode form from the one in line 1"),
        (["a caf\u00e9", "a cafe\u0301"], "differs only in case or Unicode form from the one in line 1"),
        (["", "# only a comment"], "has no prompts"),
    ],
)
def test_prompts_that_would_be_mixed_up_are_refused(
    small: dict[str, Any], write: Write, tmp_path: Path, lines: list[str], said: str
) -> None:
    (tmp_path / "prompts.txt").write_text("\n".join(lines) + "\n")
    text = refusal(write(small))
    assert said in text
    assert "prompts.txt" in text


def test_a_byte_order_mark_is_no_part_of_a_file_s_first_line(
    small: dict[str, Any], write: Write, tmp_path: Path
) -> None:
    file, prompts = write(small), tmp_path / "prompts.txt"
    for marked in (file, prompts):
        marked.write_bytes(b"\xef\xbb\xbf# mine\n" + marked.read_bytes())
    plan = plan_of_file(file)
    assert [prompt.text for prompt in plan.prompts] == ["a red bicycle", "a blue boat", "a green kite"]


def test_a_file_of_prompts_that_can_t_be_opened_is_named(small: dict[str, Any], write: Write, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").unlink()
    (tmp_path / "prompts.txt").symlink_to("prompts.txt")
    text = refusal(write(small))
    assert f"key 'prompts.file': {tmp_path}/prompts.txt: this file of prompts can't be read" in text


def test_variables_are_expanded_in_paths_and_nowhere_else(
    small: dict[str, Any], write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path / "elsewhere"))
    small = changed(small, "paths.scratch", "${PLACE}/scratch")
    small = changed(small, "arms.full.negative_prompt", "costs $PLACE")
    experiment = plan_of_file(write(small)).experiment
    assert experiment.paths.scratch == str(tmp_path / "elsewhere/scratch")
    assert experiment.arms["full"].negative_prompt == "costs $PLACE"


@pytest.mark.parametrize(
    ("dimension", "numbers", "said"),
    [
        ("temporal_flickring", [5], ["the suite has no such dimension", "Did you mean 'temporal_flickering'"]),
        ("temporal_flickering", [5, 1], ["1 is one of `seeds` already"]),
        ("human_action", [5], ["`scoring.dimensions` doesn't have it"]),
        ("subject_consistency", [5], ["none of the prompts is one that the suite has for this dimension"]),
    ],
)
def test_further_seeds_that_could_not_be_meant_are_refused(
    small: dict[str, Any], write: Write, dimension: str, numbers: list[int], said: list[str]
) -> None:
    small["prompts"] = {"suite": "vbench", "dimensions": ["temporal_flickering"]}
    small["scoring"] = {"dimensions": ["temporal_flickering", "proxy-subject_consistency"]}
    text = refusal(write(small | {"further_seeds": {dimension: numbers}}))
    assert f"'further_seeds.{dimension}'" in text
    assert all(part in text for part in said), text


def test_a_prompt_gets_further_seeds_by_one_dimension_alone(small: dict[str, Any], write: Write) -> None:
    small["prompts"] = {"suite": "vbench", "dimensions": ["dynamic_degree"]}
    small["scoring"] = {"dimensions": ["dynamic_degree", "motion_smoothness"]}
    text = refusal(write(small | {"further_seeds": {"dynamic_degree": [5], "motion_smoothness": [5]}}))
    assert "'further_seeds.motion_smoothness'" in text
    assert "the suite has the same prompt for dynamic_degree" in text


def test_the_command_line_prints_the_paragraph_and_fails(
    small: dict[str, Any], write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(changed(small, "arms.full.guidence", 5.0))
    assert main(["plan", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"fleetcraft: {file}:")
    assert not (tmp_path / "scratch").exists(), "nothing is written"


def test_the_schema_is_the_one_that_the_models_give(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert (root / "config/schema.json").read_text() == capsys.readouterr().out, "run `make schema`"


def test_every_shipped_experiment_follows_the_schema(root: Path) -> None:
    import yaml

    files = [root / "config/config.yaml", *sorted((root / "config/experiments").glob("*.yaml"))]
    assert len(files) >= 2
    for file in files:
        assert "# yaml-language-server: $schema=" in file.read_text().splitlines()[0]
        Experiment.model_validate(yaml.safe_load(file.read_text()))


def test_the_schema_describes_every_key(root: Path) -> None:
    schema = json.loads((root / "config/schema.json").read_text())
    assert schema["properties"]["video"]["$ref"] == "#/$defs/Video"
    assert schema["$defs"]["Arm"]["additionalProperties"] is False
    assert schema["$defs"]["Scoring"]["properties"]["dimensions"]["items"]["anyOf"][0]["enum"] == sorted(DIMENSIONS)
