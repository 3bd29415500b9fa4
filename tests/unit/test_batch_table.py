"""The frozen batch table as a file, and what a plan makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiments import changed, document

from fleetcraft.calibration.table import BatchTable, Entry, PhaseFigures, Subject, TrialVerdict, write_table
from fleetcraft.experiment.batches import needs, refuse_unfrozen, subject
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.plan import Plan
from fleetcraft.experiment.projection import projection_of
from fleetcraft.ground.errors import BadInput

Planned = Callable[[dict[str, Any]], Plan]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    def of(experiment: dict[str, Any]) -> Plan:
        file = tmp_path / "experiment.yaml"
        file.write_text(yaml.safe_dump(experiment))
        return plan_of_file(file)

    return of


def entry(of: Subject, batch: int, arm: str = "full") -> Entry:
    figures = {
        "load": PhaseFigures(seconds=60, host_mb=9000, device_mb=20_000),
        "denoise": PhaseFigures(seconds=30, host_mb=5000, device_mb=30_000),
        "decode": PhaseFigures(seconds=6, host_mb=4000, device_mb=50_000),
        "encode": PhaseFigures(seconds=2, host_mb=300),
    }
    verdicts = [
        TrialVerdict(batch=batch, taken=True, reason="it makes most"),
        TrialVerdict(batch=8, taken=False, reason="failed: device memory in generate"),
    ]
    return Entry(
        arm=arm, subject=of, digest=of.digest, batch=batch, verdicts=verdicts, phases=figures, measured={"host": "n1"}
    )


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """An experiment with one arm of batch 2, whose table has it."""
    experiment = document(tmp_path)
    experiment["arms"] = {"full": experiment["arms"]["full"] | {"batch": 2}}
    experiment["scoring"] = {"dimensions": ["temporal_flickering"]}
    return experiment


@pytest.fixture
def frozen(small: dict[str, Any], planned: Planned, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "batches.yaml"
    write_table(file, {"headroom": 0.15}, [entry(subject(planned(small), "full"), 2)], [])
    return small | {"batch_table": str(file)}


def test_the_frozen_batch_is_used_and_its_figures_are_what_jobs_ask_for(
    frozen: dict[str, Any], planned: Planned
) -> None:
    plan = planned(frozen)
    refuse_unfrozen(plan)
    assert needs(plan, "generate", "full") == {"mem_mb": 11_300, "gpu_mem_mb": 33_000, "runtime": 10}
    assert needs(plan, "decode", "full") == {"mem_mb": 5000, "gpu_mem_mb": 55_000, "runtime": 6}
    assert needs(plan, "encode", "full") == {"mem_mb": 400, "runtime": 6}
    assert needs(plan, "score", "full") == {}
    assert projection_of(plan, devices=1, host_lanes=1).videos == 6


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("video.frames", 9, r"another shape \(32x32x5 there, 32x32x9 here\)"),
        ("arms.full.steps", 3, "another arm"),
        ("models.tiny.source.seed", 1, "another model"),
        ("encoder.crf", 30, "another media"),
        ("arms.full.batch", 4, "froze batch 2 for this arm"),
        ("arms.full.batch", 8, r"froze batch 2 for this arm \(failed: device memory in generate\)"),
    ],
)
def test_what_was_not_measured_is_refused_with_what_differs(
    frozen: dict[str, Any], planned: Planned, key: str, value: object, said: str
) -> None:
    experiment = changed(frozen, key, value) | {"shard_size": 8}
    with pytest.raises(BadInput, match=said) as caught:
        refuse_unfrozen(planned(experiment))
    assert "arms.full.batch" in str(caught.value)


def test_batch_one_needs_no_table_and_names_no_figures(small: dict[str, Any], planned: Planned) -> None:
    plan = planned(changed(small, "arms.full.batch", 1))
    refuse_unfrozen(plan)
    assert needs(plan, "generate", "full") == {}
    with pytest.raises(BadInput, match="snakemake calibrate"):
        projection_of(plan, devices=1, host_lanes=1)


def test_prompts_seeds_and_scores_are_no_part_of_what_was_measured(frozen: dict[str, Any], planned: Planned) -> None:
    refuse_unfrozen(planned(frozen | {"seeds": [7, 8, 9], "name": "another"}))


def test_freezing_again_replaces_an_entry_and_keeps_the_others(
    small: dict[str, Any], planned: Planned, tmp_path: Path
) -> None:
    one, other = (subject(planned(changed(small, "models.tiny.source.seed", seed)), "full") for seed in (0, 1))
    file = tmp_path / "batches.yaml"
    write_table(file, {}, [entry(one, 2), entry(other, 2)], [])
    write_table(file, {}, [entry(one, 1)], BatchTable.read(file).entries.values())
    table = BatchTable.read(file)
    assert [table.entry(each).batch for each in (one, other)] == [1, 2]  # type: ignore[union-attr]
    again = file.read_bytes()
    write_table(file, {}, [], table.entries.values())
    assert file.read_bytes() == again


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hardware: cpu", "hardware: gh200-96", "changed by hand"),
        ("batch: 2", "batch: two", "valid integer"),
        ("format: 1", "format: 7", "format"),
        ("subject:", "subjct:", "unknown key"),
        ("entries:", "entries: [", "not valid YAML"),
    ],
)
def test_a_table_that_was_edited_is_refused_with_file_and_key(
    frozen: dict[str, Any], planned: Planned, old: str, new: str, said: str
) -> None:
    file = Path(frozen["batch_table"])
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(BadInput, match=said) as caught:
        planned(frozen)
    assert str(file) in str(caught.value)


def test_a_table_that_is_not_there_is_refused_with_how_to_make_it(small: dict[str, Any], planned: Planned) -> None:
    with pytest.raises(BadInput, match="fleetcraft freeze"):
        planned(small | {"batch_table": "nowhere.yaml"})
