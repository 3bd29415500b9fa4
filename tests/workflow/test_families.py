"""The demo of each model family runs to its end."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from campaigns import DEMOS, Campaign

from fleetcraft.pipelines.families import FAMILIES


def demo(experiment: Path, directory: Path) -> Campaign:
    """The campaign of a demo, in a directory of its own."""
    directory.mkdir()
    document = yaml.safe_load(experiment.read_text())
    document["paths"] = {"scratch": "scratch", "work": "work"}
    campaign = Campaign(directory, document)
    campaign.write()
    return campaign


def test_every_family_has_a_demo_with_a_full_and_a_cached_arm() -> None:
    shown = set()
    for experiment in DEMOS:
        document = yaml.safe_load(experiment.read_text())
        assert [bool(arm["cache"]) for arm in document["arms"].values()] == [False, True]
        shown |= {model["family"] for model in document["models"].values()}
    assert shown == set(FAMILIES) - {"wan"}, "Wan's is config/config.yaml"


@pytest.mark.parametrize("experiment", DEMOS, ids=lambda path: path.stem)
def test_the_demo_of_a_family_ends_with_what_caching_saved_and_changed(experiment: Path, tmp_path: Path) -> None:
    campaign = demo(experiment, tmp_path / "campaign")
    run = campaign.complete()
    assert run.jobs == campaign.plan().jobs

    def table(name: str) -> list[dict[str, str]]:
        with (campaign.directory / f"work/{campaign.plan().experiment.name}/tables/{name}.csv").open() as file:
            return list(csv.DictReader(file))

    share = {row["arm"]: float(row["share_of_blocks"]) for row in table("compute")}
    assert share["full"] == 1
    assert share["cached"] < 1
    (similarity,) = (float(row["mean"]) for row in table("scores") if row["dimension"] == "ssim")
    assert 0 < similarity < 1
    assert len(list((campaign.directory / "scratch/store/videos").rglob("*.mp4"))) == 4
