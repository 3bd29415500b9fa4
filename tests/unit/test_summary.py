"""The summary: readable whatever is compared, true to what the tables are of, and made from work alone."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkpoints import list_digests

from fleetcraft.analysis.tables import csv_text
from fleetcraft.cli.main import main
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan

Write = Callable[[dict[str, Any]], Path]
Show = Callable[[dict[str, Any]], str]


def write_tables(plan: Plan, arms: Sequence[str], dimensions: Sequence[str], mean: float = 0.5) -> None:
    """Tables as a campaign has them that came so far; a second call is a campaign's that ran again."""
    baseline = arms[0]
    score, difference = [f"{mean:.6f}", "0.400000", "0.600000"], ["-0.000175", "-0.000332", "-0.000013"]
    tables = {
        "samples": (
            ["arm", "prompt", "seed", "sample", "video_sha256", *dimensions],
            [[arm, "a red bicycle", 0, "abc", "def", *["0.5"] * len(dimensions)] for arm in arms],
        ),
        "scores": (
            ["arm", "dimension", "videos", "mean", "low", "high"],
            [[arm, dimension, 1, *score] for arm in arms for dimension in dimensions],
        ),
        "paired": (
            ["arm", "baseline", "dimension", "pairs", "mean_difference", "low", "high"],
            [[arm, baseline, dimension, 1, *difference] for arm in arms[1:] for dimension in dimensions],
        ),
        "compute": (
            ["arm", "videos", "flops_per_video", "share_of_blocks", "share_of_flops", "cut_prompts"],
            [[arm, 1, 100, "1.0", "1.0", 1] for arm in arms],
        ),
        "latency": (
            ["arm", "phase", "median_s", "passes", "invalid"],
            [[arm, "total", "12.5", 3, 1] for arm in arms],
        ),
        "latency_ratios": (
            ["arm", "baseline", "phase", "ratio", "low", "high"],
            [[arm, baseline, "total", "0.5", "0.4", "0.6"] for arm in arms[1:]],
        ),
    }
    for name, (header, rows) in tables.items():
        file = Path(plan.paths.table(name))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(csv_text(header, rows))


def write_plan(plan: Plan, seconds: int = 0) -> None:
    """As the first job of a campaign does, `seconds` after the tables that are there."""
    file = Path(plan.paths.plan)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plan.document()))
    tables = Path(plan.paths.table("scores"))
    if tables.is_file():
        moment = tables.stat().st_mtime + seconds
        os.utime(file, (moment, moment))


def conclude(plan: Plan) -> None:
    """Gather the evidence, as far as the summary looks at it."""
    evidence = Path(plan.paths.evidence)
    shutil.rmtree(evidence, ignore_errors=True)
    shutil.copytree(Path(plan.paths.table("scores")).parent, evidence / "tables")
    shutil.copy(plan.paths.plan, evidence / "plan.json")
    Path(plan.paths.evidence_digest).write_text("0  evidence/manifest-sha256.txt\n")


@pytest.fixture
def show(write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Show:
    """What the command prints of an experiment, on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def show(document: dict[str, Any]) -> str:
        assert main(["summary", str(write(document))]) == 0
        return capsys.readouterr().out

    return show


@pytest.fixture
def finished(small: dict[str, Any], write: Write) -> Plan:
    """The small experiment after its campaign."""
    plan = plan_of_file(write(small))
    write_tables(plan, ["full", "cached"], ["ssim"])
    write_plan(plan, seconds=-1)
    conclude(plan)
    return plan


def edited(small: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(small)
    changed["arms"]["full"]["steps"] = 3
    changed["seeds"] = [0]
    return changed


def said(output: str) -> str:
    """Without line breaks, which are where the terminal ends."""
    return " ".join(output.split())


LONG = [f"first-block-cache-at-threshold-0.{number:02d}-with-unipc-in-25-steps" for number in range(12)]


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("arms", [["full"], ["full", "cached"], [f"arm{n}" for n in range(12)], LONG])
@pytest.mark.parametrize("count", [1, 4, 16, 25])
def test_every_number_is_whole_and_on_its_line_however_much_is_compared(
    columns: int,
    arms: list[str],
    count: int,
    small: dict[str, Any],
    show: Show,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    dimensions = [f"subject_consistency_{number}" for number in range(count)]
    timed = small | {"timing": {"prompts": 1, "warmup": 0, "repeats": 3}, "arms": {"full": small["arms"]["full"]}}
    timed["scoring"] = {"dimensions": ["temporal_flickering"]}
    write_tables(plan_of_file(write(timed)), arms, dimensions)
    output = show(timed)
    assert "…" not in output
    # Paths and what is to be copied have lines as long as they are.
    results = output[: output.index("report    ")]
    assert max(len(line) for line in results.splitlines() if "`" not in line) <= columns
    lines = [line.split() for line in results.splitlines()]
    scores = [line for line in lines if "[0.4000," in line]
    assert len(scores) == len(arms) * count
    assert all(line[-3:] == ["-1.7e-04", "[-3.3e-04,", "-1.3e-05]"] for line in scores if len(line) > 4)
    assert sum("-1.7e-04" in line for line in scores) == (len(arms) - 1) * count
    for dimension in dimensions:
        assert lines.count([dimension]) == 1
    for arm in arms:
        assert sum(line[:1] == [arm] for line in lines) >= count + 2, "in each dimension, the compute and the latencies"
    assert sum("[0.400," in line for line in lines) == len(arms) - 1, "the ratios of latencies"


def test_a_finished_campaign_has_nothing_said_about_it(small: dict[str, Any], finished: Plan, show: Show) -> None:
    output = said(show(small))
    assert "0.5000 [0.4000, 0.6000]" in output
    assert "isn't finished" not in output
    assert "another version" not in output
    assert f"evidence {finished.paths.evidence}/" in output


def test_tables_from_before_an_edit_are_said_to_be_and_the_changed_keys_named(
    small: dict[str, Any], finished: Plan, show: Show
) -> None:
    output = said(show(edited(small)))
    assert "of another version of the experiment: since then, this has changed: arms.full.steps, seeds." in output
    assert "experiment.yaml` makes those of the present one" in output
    assert "0.5000 [0.4000, 0.6000]" in output


def test_other_prompts_are_another_version_too(
    small: dict[str, Any], finished: Plan, show: Show, tmp_path: Path
) -> None:
    (tmp_path / "prompts.txt").write_text("a red bicycle\na blue boat\na black kite\n")
    assert "These tables are of another version of the experiment. `snakemake" in said(show(small))


def test_a_run_that_failed_before_the_tables_is_told_beside_the_old_ones(
    small: dict[str, Any], finished: Plan, show: Show, write: Write
) -> None:
    added = edited(small)
    added["arms"]["slow"] = small["arms"]["full"] | {"steps": 4}
    write_plan(plan_of_file(write(added)), seconds=60)
    output = said(show(added))
    assert "this has changed: arms.full.steps, arms.slow, seeds." in output, "from what the evidence tells"
    assert "A campaign of the present one was started and isn't finished" in output
    assert "slow" not in output.replace("arms.slow", ""), "no line of what isn't there"
    assert "of another version" not in said(show(small)), "going back to what the tables are of costs nothing"


def test_tables_without_their_evidence_are_of_an_unfinished_campaign(
    small: dict[str, Any], finished: Plan, show: Show, write: Write
) -> None:
    plan = plan_of_file(write(edited(small)))
    write_tables(plan, ["full", "cached"], ["ssim"], mean=0.55)
    write_plan(plan, seconds=-1)
    output = said(show(edited(small)))
    assert "The campaign isn't finished; these tables are of the experiment as it is. `snakemake" in output
    conclude(plan)
    assert "isn't finished" not in said(show(edited(small)))
    # A run that makes the evidence anew takes the seal away first.
    Path(plan.paths.evidence_digest).unlink()
    assert "isn't finished" in said(show(edited(small)))


@pytest.fixture
def timed(small: dict[str, Any], write: Write) -> tuple[dict[str, Any], Plan]:
    """An experiment that times its arms, with tables, and its plan."""
    experiment = small | {"timing": {"prompts": 1, "warmup": 0, "repeats": 3}}
    plan = plan_of_file(write(experiment))
    write_tables(plan, ["full", "cached"], ["ssim"])
    write_plan(plan, seconds=-1)
    return experiment, plan


def test_latencies_and_searches_from_before_a_change_do_not_pass_for_new_ones(
    timed: tuple[dict[str, Any], Plan], show: Show
) -> None:
    experiment, plan = timed
    assert "alone on the node seconds" in said(show(experiment))
    os.utime(plan.paths.table("latency"), (0, 0))
    assert "alone on the node, from before the last change" in said(show(experiment))


def test_an_arm_whose_passes_do_not_count_keeps_its_place_among_the_latencies(
    timed: tuple[dict[str, Any], Plan], show: Show
) -> None:
    experiment, plan = timed
    rows = [["cached", "total", "12.5", 2, 1], ["cached", "decode", "2.5", 2, 1], ["full", "total", "", 0, 3]]
    table = csv_text(["arm", "phase", "median_s", "passes", "invalid"], rows)
    Path(plan.paths.table("latency")).write_text(table)
    first, second = (line.split()[0] for line in show(experiment).partition("not alone\n")[2].splitlines()[:2])
    assert (first, second) == ("full", "cached")


def test_a_summary_needs_nothing_but_work(small: dict[str, Any], show: Show, write: Write, tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir()
    for prompt in ("a red bicycle", "a blue boat", "a green kite"):
        for seed in (0, 1):
            (directory / f"{prompt}-{seed}.mp4").write_bytes(f"{prompt}-{seed}".encode())
    list_digests(directory)
    theirs = small | {"arms": {**small["arms"], "theirs": {"source": {"videos": str(directory)}}}}
    theirs["paths"] = {"scratch": str(tmp_path / "fast/scratch"), "work": small["paths"]["work"]}
    plan = plan_of_file(write(theirs))
    write_tables(plan, ["full", "cached", "theirs"], ["ssim"])
    write_plan(plan, seconds=-1)
    conclude(plan)
    assert "can't be planned" not in said(show(theirs))

    shutil.rmtree(directory)
    output = said(show(theirs))
    assert "0.5000 [0.4000, 0.6000]" in output
    assert "The experiment can't be planned now, which only a campaign needs:" in output
    assert "there is no such directory of videos" in output
    assert "another version" not in output
    assert "isn't finished" not in output

    # Not even the filesystem of scratch has to be there.
    (tmp_path / "fast").write_text("no directory")
    assert "0.5000 [0.4000, 0.6000]" in said(show(theirs))

    theirs["seeds"] = [0]
    output = said(show(theirs))
    assert "These tables are of another version of the experiment: since then, this has changed: seeds." in output
    assert "After that, `snakemake --configfile" in output


def test_without_tables_what_keeps_the_experiment_from_running_is_an_error(
    small: dict[str, Any], show: Show, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no tables yet; `snakemake --configfile" in said(show(small))
    (tmp_path / "prompts.txt").unlink()
    assert main(["summary", str(write(small))]) == 1
    assert "prompts.txt" in capsys.readouterr().err


def test_a_report_that_is_older_than_the_tables_is_told(small: dict[str, Any], finished: Plan, show: Show) -> None:
    report = Path(finished.paths.report)
    report.write_text("report")
    assert "older than the tables" not in show(small)
    os.utime(report, (0, 0))
    assert f"(older than the tables: snakemake --configfile {report.parents[2]}/experiment.yaml --report" in show(small)
