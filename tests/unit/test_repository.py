"""The repository's files agree with each other, and the code is light where it must be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from fleetcraft.experiment.plan import STACK_PACKAGES
from fleetcraft.ground.errors import BadEnvironment, BadInput
from fleetcraft.ground.machine import Architecture
from fleetcraft.ground.toolchain import Toolchain, clean_environment
from fleetcraft.scoring.dimensions import DIMENSIONS

PIXELS = ("DIFFUSERS_ATTN_BACKEND", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "ATEN_CPU_CAPABILITY")

TOOLCHAINS = ["analysis", "diffusion", "vbench"]


def lock(root: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (root / "requirements.lock").read_text(), re.MULTILINE))


def test_the_controller_has_the_versions_of_the_analysis_tool_chain(root: Path) -> None:
    assert Toolchain("analysis").pins.items() <= lock(root).items()


@pytest.mark.parametrize("name", PIXELS)
def test_what_a_user_s_shell_says_of_kernels_reaches_no_stage(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "of the user's shell")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert name not in clean_environment()
    assert clean_environment()["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_a_tool_chain_pins_every_package_exactly(name: str) -> None:
    assert Toolchain(name).pins


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_a_tool_chain_can_read_a_job_s_plan(name: str) -> None:
    """Under Snakemake's own deployment the script of a rule runs in the tool chain itself."""
    pins, controller = Toolchain(name).pins, Toolchain("analysis").pins
    assert {package: pins[package] for package in ("pydantic", "pyyaml")} == {
        package: controller[package] for package in ("pydantic", "pyyaml")
    }


def test_what_decides_pixels_and_scores_is_pinned() -> None:
    assert set(Toolchain("diffusion").pinned(STACK_PACKAGES)) == set(STACK_PACKAGES)
    for dimension in DIMENSIONS.values():
        for machine in get_args(Architecture):
            assert Toolchain(dimension.toolchain, machine).pinned(dimension.packages_on(machine))


def test_what_only_one_architecture_has_is_pinned_for_it_alone() -> None:
    here, there = Toolchain("vbench", "x86_64"), Toolchain("vbench", "aarch64")
    assert set(here.pins) - set(there.pins) == {"decord"}
    assert here.pins.items() >= there.pins.items()
    with pytest.raises(BadEnvironment, match=r"vbench\.yaml: the definition pins no decord for aarch64"):
        there.pinned(["torch", "decord"])


def test_an_unknown_tool_chain_is_named_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"'difusion'.*Did you mean 'diffusion'"):
        Toolchain("difusion")


def test_the_current_interpreter_is_kept_where_it_has_the_pins() -> None:
    assert Toolchain("analysis").interpreter({}, ["numpy", "scipy"]) == sys.executable


def test_the_profile_s_interpreter_goes_before_the_built_one() -> None:
    with pytest.raises(BadEnvironment, match=r"/site/python.*toolchains\.diffusion.*make envs"):
        Toolchain("diffusion").interpreter({"diffusion": "/site/python"}, ["torch"])


def test_an_interpreter_with_other_versions_is_refused() -> None:
    with pytest.raises(BadEnvironment, match=r"torch is missing, declared 2\."):
        Toolchain("diffusion").interpreter({"diffusion": sys.executable}, ["torch"])


def test_the_rules_use_the_environments_that_exist(root: Path) -> None:
    named = {
        name
        for rules in (root / "rules").glob("*.smk")
        for name in re.findall(r'"\.\./envs/(\w+)\.yaml"', rules.read_text())
    }
    assert named | {dimension.toolchain for dimension in DIMENSIONS.values()} == {
        file.stem for file in (root / "envs").glob("*.yaml")
    }


def test_the_prompt_suite_has_the_entries_that_vbench_publishes(root: Path) -> None:
    entries = json.loads((root / "resources/prompts/vbench.json").read_text())["prompts"]
    texts = [entry["prompt"] for entry in entries]
    assert len(texts) == 946
    assert len(set(texts)) == 944
    assert len({text.lower() for text in texts}) == 943
    assert sum(len(entry["dimensions"]) for entry in entries) == 1362


@pytest.mark.parametrize("module", ["fleetcraft.cli.main", "fleetcraft.experiment.plan", "fleetcraft.stages.launch"])
def test_what_a_login_node_imports_is_light(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "diffusers", "transformers", "snakemake", "matplotlib", "scipy", "numpy", "pandas", "rich"}
    assert not heavy & set(answer.stdout.split())


def pins(file: Path) -> dict[str, str]:
    """Package → version, as a lock file has them."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", file.read_text(), re.MULTILINE))


def test_the_plugin_that_every_process_would_import_is_in_an_environment_of_its_own(root: Path) -> None:
    usual, own = pins(root / "requirements.lock"), pins(root / "requirements-slurm.lock")
    assert "snakemake-executor-plugin-slurm" in own
    assert not {name for name in usual if name.startswith("snakemake-executor-plugin")}
    # Jobs are what they are in the usual environment.
    assert {name: (version, own[name]) for name, version in usual.items() if own.get(name, version) != version} == {}
    for file in ("requirements.lock", "requirements-slurm.lock"):
        text = (root / file).read_text()
        assert "://" not in text
        assert text.count("--hash=sha256:") >= len(pins(root / file))


def test_the_default_profile_says_what_the_digests_need(root: Path) -> None:
    profile = yaml.safe_load((root / "profiles/default/config.yaml").read_text())
    assert sorted(profile["rerun-triggers"]) == ["input", "mtime", "params"]
    assert profile["rerun-incomplete"] is True


def test_every_rule_has_what_a_rule_owes(root: Path) -> None:
    for file in sorted((root / "rules").glob("*.smk")):
        for rule in re.split(r"^rule ", file.read_text(), flags=re.MULTILINE)[1:]:
            for directive in ('"""', "log:", "benchmark:", "resources:", "message:", "conda:", "script:"):
                assert directive in rule, f"{file.name}: rule {rule.partition(':')[0]} has no {directive}"


def keys_of(schema: dict[str, object]) -> set[str]:
    """Every key that an experiment may have, names of models and arms aside."""
    keys = set(schema.get("properties", {}))  # type: ignore[call-overload]
    for part in schema.get("$defs", {}).values():  # type: ignore[attr-defined]
        keys |= set(part.get("properties", {}))
    return keys


def test_every_key_of_an_experiment_is_explained(root: Path) -> None:
    text = (root / "config/README.md").read_text()
    keys = keys_of(json.loads((root / "config/schema.json").read_text()))
    assert len(keys) > 30
    assert {key for key in keys if not re.search(rf"[`{{ ]{key}[:`]", text)} == set()
