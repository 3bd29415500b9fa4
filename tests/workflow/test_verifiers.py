"""A campaign that is scored by a verifier, beside what it had."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path

from campaigns import ROOT, Campaign


def write_xclip(directory: Path, seed: int) -> Path:
    """A tiny model with random weights, saved in the tool chain that has its class."""
    python, code = ROOT / ".envs/diffusion/bin/python", ROOT / "tests/support/tiny_xclip.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    subprocess.run([python, code, directory, str(seed)], env=environment, check=True, capture_output=True)
    return directory


def test_a_verifier_enters_the_tables_and_new_weights_rescore_it_alone(campaign: Campaign, tmp_path: Path) -> None:
    model = write_xclip(tmp_path / "xclip", 0)
    before = campaign.artifacts()
    campaign.document["scoring"] = {
        "verifiers": {"alignment": {"type": "xclip", "path": str(model)}},
        "dimensions": ["ssim", "alignment"],
    }
    campaign.write()
    run = campaign.complete()
    assert run.jobs["score"] == 4, "both arms, in two shards"
    assert "generate" not in run.jobs
    after = campaign.artifacts()
    assert after["scores"].items() >= before["scores"].items()
    assert len(after["scores"]) == len(before["scores"]) + 12
    tables = Path(campaign.plan().paths.table("scores"))
    with (campaign.directory / tables).open() as stream:
        rows = {(row["arm"], row["dimension"]): row for row in csv.DictReader(stream)}
    assert rows.keys() == {("cached", "ssim"), ("cached", "alignment"), ("full", "alignment")}
    assert -1 <= float(rows["full", "alignment"]["mean"]) <= 1
    assert (campaign.directory / campaign.plan().paths.score_figure("alignment")).is_file()

    write_xclip(model, 1)
    again = campaign.snakemake("--dry-run")
    assert again.jobs["score"] == 4, again.output
    assert not {"generate", "decode", "encode"} & again.jobs.keys()
