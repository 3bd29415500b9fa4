"""What an audit says of scratch: how much of a campaign is there, and whether that is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from experiments import changed

from fleetcraft.cli.main import main
from fleetcraft.evidence.archive import manifests_of
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.records import write_records

Write = Callable[[dict[str, Any]], Path]
Audit = Callable[..., tuple[int, str]]


@pytest.fixture
def audit(small: dict[str, Any], write: Write, capsys: pytest.CaptureFixture[str]) -> Audit:
    """Exit status and output of the command."""

    def audit(*options: str, document: dict[str, Any] | None = None) -> tuple[int, str]:
        status = main(["audit", *options, str(write(document or small))])
        return status, " ".join(capsys.readouterr().out.split())

    return audit


def write_manifests(plan: Plan, *kinds: str) -> None:
    """Manifests that promise nothing, which the store therefore holds."""
    for kind in kinds:
        for manifest in manifests_of(plan)[kind]:
            manifest.parent.mkdir(parents=True, exist_ok=True)
            write_records(manifest, [])


def test_a_campaign_that_never_ran_is_not_whole(audit: Audit) -> None:
    status, output = audit()
    assert status == 1
    assert "0 of the 6 manifests of its plan are there (videos 0 of 4, scores 0 of 2)" in output
    assert "`snakemake --configfile" in output
    assert "scratch holds everything" not in output
    assert "evidence" not in output


def test_manifests_that_are_there_are_counted_and_the_missing_ones_left_to_snakemake(
    small: dict[str, Any], audit: Audit, write: Write
) -> None:
    plan = plan_of_file(write(small))
    write_manifests(plan, "videos", "scores")
    status, output = audit()
    assert (status, "everything that the 6 manifests of its plan promise" in output) == (0, True)

    Path(plan.paths.scores("cached", "ssim", "s0")).unlink()
    Path(plan.paths.evidence_digest).parent.mkdir(parents=True)
    Path(plan.paths.evidence_digest).write_text("0  evidence/manifest-sha256.txt\n")
    status, output = audit()
    assert status == 1
    assert "5 of the 6 manifests of its plan are there (videos 4 of 4, scores 1 of 2)" in output
    assert f"The tables and the evidence in {plan.paths.work} need none of them" in output
    status, output = audit("--repair")
    assert (status, "5 of the 6" in output) == (0, True), "there is nothing to remove: snakemake can be started"


def test_an_edit_is_audited_by_the_plan_that_it_makes(small: dict[str, Any], audit: Audit, write: Write) -> None:
    write_manifests(plan_of_file(write(small)), "videos", "scores")
    more = changed(small, "scoring.dimensions", ["ssim", "temporal_flickering"])
    status, output = audit(document=more)
    assert (status, "scores 2 of 6" in output) == (1, True)


def test_missing_manifests_are_told_beside_damaged_ones(small: dict[str, Any], audit: Audit, write: Write) -> None:
    plan = plan_of_file(write(small))
    write_manifests(plan, "videos")
    cut = Path(plan.paths.videos("full", "s1"))
    cut.write_text("")
    status, output = audit()
    assert status == 1
    assert "damaged: " in output
    assert "4 of the 6 manifests of its plan are there (videos 4 of 4, scores 0 of 2)" in output
    assert "1 findings. `fleetcraft audit --repair" in output
    status, output = audit("--repair")
    assert (status, cut.exists()) == (0, False)
    assert "1 findings repaired. Start `snakemake --configfile" in output


def test_candidates_of_a_search_are_counted_with_what_was_chosen(
    small: dict[str, Any], audit: Audit, write: Write
) -> None:
    search = {"candidates": 2, "rounds": [{"arm": "cached"}], "verifier": "temporal_flickering", "recommit": "full"}
    searched = changed(small, "arms.best", {"search": search})
    searched["scoring"] = {"dimensions": ["temporal_flickering"]}
    status, output = audit(document=searched)
    assert (status, "choices 0 of 2" in output) == (1, True)
    assert "videos 0 of 8" in output, "three arms, and the second candidates of one"
