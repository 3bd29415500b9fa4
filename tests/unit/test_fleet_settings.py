"""A fleet file is checked where it is read, and what is wrong with it is said so that it can be mended."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcraft.cli.main import main
from fleetcraft.fleet.load import load_fleet
from fleetcraft.fleet.settings import FleetSettings
from fleetcraft.ground.errors import BadInput
from fleetcraft.spool import Request

GOOD: dict[str, Any] = {
    "lanes": {
        "gh": {
            "partition": "gh",
            "account": "ABC-123",
            "nodes": {"min": 1, "max": 16},
            "walltime_min": 720,
            "node": {"cores": 72, "memory_mb": 200_000, "gpus": 1, "gpu_model": "H100", "gpu_mem_mb": 96_000},
        }
    },
    "site": {"nodes": 96},
    "workers": {"caches": "/scratch/caches"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good document with one key changed; `...` takes it away."""
    document = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    inner = document
    for key in parents:
        inner = inner.setdefault(key, {})
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return document


def load(tmp_path: Path, document: Any) -> FleetSettings:
    file = tmp_path / "fleet.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return load_fleet(file)


def test_a_good_file_is_understood(tmp_path: Path) -> None:
    fleet = load(tmp_path, GOOD)
    lane = fleet.lanes["gh"]
    assert lane.cost(16) == 16 * 12
    assert fleet.site.poll_s >= 10
    assert fleet.refusal(Request(threads=72, gpus=1, gpu_mem_mb=96_000, runtime_s=3600)) is None


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("lanes.gh.account", ..., ["lanes.gh.account", "missing"]),
        ("lanes.gh.nodes", {"min": 4, "max": 2}, ["lanes.gh.nodes", "min is 4 and max is 2"]),
        ("lanes.gh.walltime_min", 2, ["lanes.gh.walltime_min", "no task fits in"]),
        ("lanes.gh.walltime_min", "12:00:00", ["lanes.gh.walltime_min", "12:00:00"]),
        ("lanes.gh.sbatch", ["--nodes=3"], ["lanes.gh.sbatch", "written by Fleetcraft itself"]),
        ("lanes.gh.sbatch", ["rm -rf /"], ["lanes.gh.sbatch", "--name=value"]),
        ("lanes.gh.partition", "gh\n#SBATCH --nodes=9", ["lanes.gh.partition"]),
        ("lanes.gh.partion", "gh", ["lanes.gh.partion", "unknown key", "Did you mean 'partition'"]),
        ("lanes.gh.nodes", {"min": 100, "max": 100}, ["lanes.gh.nodes.min", "site.nodes"]),
        ("lanes", {}, ["lanes"]),
        ("site.poll_s", 2, ["site.poll_s", "10"]),
        ("site.stop_launching_at", 200, ["stop_launching_at", "ceiling"]),
        ("workers.environment", {"A-B": "x"}, ["workers.environment"]),
        ("workers.caches", "$NOBODY_SETS_THIS/caches", ["workers.caches", "NOBODY_SETS_THIS is not set"]),
        ("workers.software", {"archive": "x.zip", "replaces": "/x"}, ["workers.software.archive", ".tar"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, value: Any, says: list[str]
) -> None:
    monkeypatch.delenv("NOBODY_SETS_THIS", raising=False)
    with pytest.raises(BadInput) as caught:
        load(tmp_path, changed(path, value))
    message = str(caught.value)
    assert str(tmp_path / "fleet.yaml") in message
    for part in says:
        assert part in message, message


@pytest.mark.parametrize("text", ["", "- a", "lanes: [", "a: 1\na: 2"])
def test_what_is_no_fleet_file_at_all_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"fleet\.yaml"):
        load(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a fleet file was expected"):
        load_fleet(tmp_path / "none.yaml")


def test_variables_are_expanded_but_not_in_what_the_shell_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    document = changed("workers.caches", "${SCRATCH}/caches")
    document["budget"] = {"command": "echo $UNSET", "headroom": 10}
    fleet = load(tmp_path, document)
    assert fleet.workers.caches == "/scratch/me/caches"
    assert fleet.budget is not None
    assert fleet.budget.command == "echo $UNSET"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(lane="hg"), "there is no lane 'hg'. Choose from: gh"),
        (Request(runtime_s=13 * 3600), "may run 46800 s"),
        (Request(gpus=2), "gpus=2"),
        (Request(nodes=17, access="exclusive"), "at most 16"),
    ],
)
def test_what_no_lane_could_ever_serve_is_refused_with_the_reason(tmp_path: Path, request_: Request, says: str) -> None:
    assert says in (load(tmp_path, GOOD).refusal(request_) or "")


def test_the_schema_is_the_one_that_the_models_give(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "fleet"]) == 0
    assert (root / "config/fleet.schema.json").read_text() == capsys.readouterr().out, "run `make schema`"


@pytest.mark.parametrize("profile", ["vista", "ls6"])
def test_the_fleet_files_that_ship_are_good(root: Path, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    monkeypatch.setenv("FLEETCRAFT_ACCOUNT", "ABC-123")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    file = root / "profiles" / profile / "fleet.yaml"
    assert load_fleet(file).lanes
    assert "fleet.schema.json" in file.read_text().splitlines()[0]


def test_the_example_in_the_documentation_is_a_good_file(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCRAFT_ACCOUNT", "ABC-123")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    text = (root / "profiles/README.md").read_text()
    example = text.split("## Fleets on Slurm")[1].split("```yaml\n")[1].split("```")[0]
    assert load(tmp_path, example).budget is not None


@pytest.mark.parametrize("profile", ["vista", "ls6", "inside"])
def test_a_profile_says_nothing_that_the_default_profile_would_override(root: Path, profile: str) -> None:
    """Snakemake loads profiles/default beside the one that is named, and what it says wins."""
    default = yaml.safe_load((root / "profiles/default/config.yaml").read_text())
    named = yaml.safe_load((root / "profiles" / profile / "config.yaml").read_text())
    assert {key: value for key, value in named.items() if default.get(key, value) != value} == {}
    assert named["spool-fleet"] == ("inside" if profile == "inside" else "slurm")


def rules_alone(text: str) -> set[str]:
    """Names of the rules in a file that are to have their node to themselves."""
    rules = re.split(r"^rule ", text, flags=re.MULTILINE)[1:]
    return {rule.partition(":")[0] for rule in rules if re.search(r"node_access\s*=\s*[\"']exclusive", rule)}


def test_every_rule_that_is_to_be_alone_is_so_without_the_spool_too(root: Path) -> None:
    """The plugin of `profiles/vista-slurm` doesn't know our resource: the profile names these rules."""
    assert rules_alone("rule a:\n    resources:\n        node_access='exclusive'\nrule b:\n    threads: 1\n") == {"a"}
    profile = yaml.safe_load((root / "profiles/vista-slurm/config.yaml").read_text())
    named = {rule for rule, resources in profile["set-resources"].items() if "--exclusive" in resources["slurm_extra"]}
    files = [root / "Snakefile", *(root / "rules").glob("*.smk")]
    assert set().union(*(rules_alone(file.read_text()) for file in files)) <= named
