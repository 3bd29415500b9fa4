"""Evidence: what it must hold, and what is found where somebody has been at it."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkpoints import list_digests
from conclusions import conclude
from experiments import changed, document

from fleetcraft.analysis.tables import Results, make_tables, read_results
from fleetcraft.analysis.vbench import official_results, vbench_table
from fleetcraft.cli.main import main
from fleetcraft.evidence.archive import MANIFEST
from fleetcraft.evidence.planned import check_nothing_else, check_passes, check_scores
from fleetcraft.evidence.verify import verify
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.experiment.keys import score_key, video_key
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.digests import key_of, sha256_file
from fleetcraft.ground.records import Record, read_records, write_records
from fleetcraft.timing.order import interleaved

PlanOf = Callable[[dict[str, Any]], Plan]
Forge = Callable[[list[Record]], "list[Any]"]

FLICKERING = "temporal_flickering"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence of a campaign in temporal flickering, whose scores are better the later the seed."""
    directory = tmp_path_factory.mktemp("campaign")
    small = changed(document(directory), "scoring.dimensions", [FLICKERING])
    file = directory / "experiment.yaml"
    file.write_text(yaml.safe_dump(small, sort_keys=False))
    return Path(conclude(plan_of_file(file)).paths.evidence)


@pytest.fixture
def evidence(untouched: Path, tmp_path: Path) -> Path:
    """A copy of it, to be forged."""
    return Path(shutil.copytree(untouched, tmp_path / "evidence"))


def reseal(evidence: Path) -> None:
    """Give the manifest the digests of the files that are there now."""
    files = [file for file in sorted(evidence.rglob("*")) if file.is_file() and file.name != MANIFEST]
    (evidence / MANIFEST).write_text("".join(f"{sha256_file(file)}  {file.relative_to(evidence)}\n" for file in files))


def forge(evidence: Path, kind: str, change: Forge) -> None:
    """Change the records of a kind, and their seal and digests with them."""
    file = evidence / f"records/{kind}.jsonl"
    write_records(file, change(read_records(file)))
    reseal(evidence)


def derive(evidence: Path) -> None:
    """Conclude anew from the records that are left."""
    plan = json.loads((evidence / "plan.json").read_text())
    results = read_results(plan, [evidence / f"records/{kind}.jsonl" for kind in ("latents", "videos", "scores")])
    for name, text in {**make_tables(results), "vbench": vbench_table(results)}.items():
        (evidence / f"tables/{name}.csv").write_text(text)
    for arm, text in official_results(results).items():
        (evidence / f"vbench/{arm}_eval_results.json").write_text(text)
    reseal(evidence)


# ---------------------------------------------------------------------- scores


def test_bad_scores_that_were_left_out_of_everything_are_missed(evidence: Path) -> None:
    before = (evidence / "tables/scores.csv").read_text()
    forge(evidence, "scores", lambda records: [one for one in records if (one["arm"], one["seed"]) != ("full", 0)])
    derive(evidence)
    assert (evidence / "tables/scores.csv").read_text() != before, "it is worth the forger's while"
    assert sorted(verify(evidence)) == [
        f"incomplete: no scores record of {FLICKERING} for arm 'full', prompt {prompt!r}, seed 0"
        for prompt in ("a blue boat", "a green kite", "a red bicycle")
    ]


def of_another_scorer(records: list[Record]) -> list[Record]:
    return [one | {"key": score_key(one["video"], None, key_of({"dimension": FLICKERING}))} for one in records]


def encoded_otherwise(records: list[Record]) -> list[Record]:
    return [one | {"key": video_key(one["sample"], key_of({"encoder": "another"}))} for one in records]


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (
            "scores",
            of_another_scorer,
            f"mismatched: {FLICKERING} of arm 'full', prompt 'a blue boat', seed 0 is not of",
        ),
        ("videos", encoded_otherwise, "mismatched: the video of arm 'full', prompt 'a blue boat', seed 0 is "),
    ],
)
def test_what_was_scored_or_encoded_otherwise_than_planned_is_found(
    evidence: Path, kind: str, change: Forge, said: str
) -> None:
    forge(evidence, kind, change)
    assert any(one.startswith(said) for one in verify(evidence))


def test_a_score_against_another_video_than_the_baseline_s_is_found(tmp_path: Path) -> None:
    small = changed(document(tmp_path), "scoring.dimensions", [FLICKERING, "ssim"])
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(small, sort_keys=False))
    plan = conclude(plan_of_file(file))
    evidence = Path(plan.paths.evidence)
    assert list(verify(evidence)) == []
    settings = key_of(plan.scorer_settings("ssim"))

    def against_itself(records: list[Record]) -> list[Record]:
        flattered = [one | {"key": score_key(one["video"], one["video"], settings)} for one in records]
        return [new if new["dimension"] == "ssim" else old for new, old in zip(flattered, records, strict=True)]

    forge(evidence, "scores", against_itself)
    assert any("ssim of arm 'cached'" in one and "not of these videos" in one for one in verify(evidence))


def test_a_table_that_nothing_derives_is_found_although_it_is_listed(evidence: Path) -> None:
    (evidence / "tables/better.csv").write_text("arm,score\ncached,1.0\n")
    reseal(evidence)
    assert list(verify(evidence)) == ["underived: no record gives tables/better.csv"]


def experiments(small: dict[str, Any], tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Experiments that between them have all that decides what is scored, to be planned without weights."""
    paired = changed(small, "scoring", {"dimensions": ["ssim", "mean_frame_difference"]})
    suite = {"suite": "vbench", "dimensions": [FLICKERING, "human_action"]}
    rounds = [{"arm": "draft"}, {"arm": "cached"}]
    search = {"candidates": 4, "rounds": rounds, "verifier": "alignment", "recommit": "full"}
    draft = small["arms"]["full"] | {"steps": 1}
    videos = tmp_path / "videos"
    videos.mkdir()
    for prompt, seed in itertools.product(Path(small["prompts"]["file"]).read_text().splitlines(), small["seeds"]):
        (videos / f"{prompt}-{seed}.mp4").write_bytes(f"{prompt} {seed}".encode())
    list_digests(videos)
    theirs = {"videos": str(videos)}
    return {
        "pairs": paired,
        "existing videos": paired
        | {
            "arms": small["arms"]
            | {"theirs": {"source": theirs}, "vouched": {"source": theirs | {"same_encoder": True}}}
        },
        "existing baseline": paired
        | {
            "arms": small["arms"] | {"theirs": {"source": theirs}},
            "baseline": "theirs",
            "scoring": {"dimensions": ["mean_frame_difference"]},
        },
        "suite": paired | {"prompts": suite, "scoring": {"dimensions": ["ssim", FLICKERING]}},
        "further seeds": paired
        | {
            "prompts": suite,
            "further_seeds": {FLICKERING: [7, 9]},
            "video": {"width": 128, "height": 128, "frames": 5, "fps": 8},
            "scoring": {
                "dimensions": ["psnr", FLICKERING, "static_filter", "proxy-static_filter", "proxy-human_action"],
                "weights": str(tmp_path),
            },
        },
        "search": paired
        | {
            "arms": small["arms"] | {"draft": draft, "best": {"search": search}},
            "scoring": {
                "verifiers": {"alignment": {"type": "xclip", "path": str(tmp_path)}},
                "dimensions": ["ssim", "alignment"],
            },
        },
    }


@pytest.mark.parametrize("name", ["pairs", "existing videos", "existing baseline", "suite", "further seeds", "search"])
def test_evidence_is_asked_for_the_very_scores_that_the_jobs_of_its_plan_make(
    small: dict[str, Any], write: Callable[[dict[str, Any]], Path], tmp_path: Path, name: str
) -> None:
    plan = plan_of_file(write(experiments(small, tmp_path)[name]), without_weights=True)
    made = [
        (arm, dimension, prompt, seed)
        for arm in [*plan.arms, *plan.searches.hidden]
        for dimension in plan.scored_dimensions(arm)
        for shard in plan.scored_shards(arm, dimension)
        for prompt, seed in plan.shards[shard].pairs
        if plan.is_scored(prompt, dimension)
    ]
    assert made
    results = Results(plan.document())
    asked = list(check_scores(results.plan, results))
    assert sorted(asked) == sorted(
        f"incomplete: no scores record of {dimension} for arm {arm!r}, prompt {prompt.text!r}, seed {seed}"
        for arm, dimension, prompt, seed in made
    )
    for arm, dimension, prompt, seed in made:
        results.scores[dimension][arm, prompt.text, seed] = {"sample": "s", "video": "v"}
    assert not list(check_nothing_else(results.plan, results))
    assert not [one for one in check_scores(results.plan, results) if one.startswith("incomplete")]


# ---------------------------------------------------------------------- what nobody planned


def another(**other: Any) -> Forge:
    """The records and one more, as the first of them but for some fields."""
    return lambda records: [*records, {**records[0], **other}]


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("scores", another(dimension="ssim"), "unplanned: a scores record of ssim for arm 'full'"),
        ("scores", another(dimension="beauty"), "unplanned: a scores record of beauty for arm 'full'"),
        ("scores", another(arm="fuller"), f"unplanned: a scores record of {FLICKERING} for arm 'fuller'"),
        ("scores", another(seed=2), "seed 2"),
        ("latents", another(arm="fuller"), "unplanned: a latents record for arm 'fuller'"),
        ("latents", another(prompt="a cat"), "unplanned: a latents record for arm 'full', prompt 'a cat', seed 0"),
        ("videos", another(arm="fuller"), "unplanned: a videos record for arm 'fuller'"),
        ("videos", another(seed=2), "unplanned: a videos record for arm 'full'"),
    ],
)
def test_a_record_of_what_nobody_planned_is_found_and_the_rest_is_looked_at(
    evidence: Path, kind: str, change: Forge, said: str
) -> None:
    (evidence / "tables/scores.csv").write_text("arm\n")
    forge(evidence, kind, change)
    found = list(verify(evidence))
    assert any(one.startswith("unplanned: ") and said in one for one in found), found
    assert "underived: tables/scores.csv is not what the records give" in found


# ---------------------------------------------------------------------- what is no evidence at all


def without(field: str) -> Forge:
    return lambda records: [{name: value for name, value in one.items() if name != field} for one in records]


def with_(**other: Any) -> Forge:
    return lambda records: [one | other for one in records]


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        *(("latents", without(field), f"latents record lacks its '{field}'") for field in ("arm", "sample", "work")),
        *(("videos", without(field), f"videos record lacks its '{field}'") for field in ("seed", "key", "encoder")),
        *(("scores", without(field), f"scores record lacks its '{field}'") for field in ("dimension", "value")),
        ("scores", without("kind"), "this is no record of latents, videos, scores or choices"),
        ("scores", with_(kind="memory"), "this is no record of latents, videos, scores or choices"),
        ("scores", with_(value="high"), "scores record lacks its 'value'"),
        ("scores", with_(prompt=["a"]), "scores record lacks its 'prompt'"),
        ("scores", lambda _: [3], "this is no record of latents, videos, scores or choices"),
        ("latents", with_(work={"blocks_computed": 5}), "KeyError"),
        ("videos", with_(decoded=3), "malformed: "),
        ("videos", with_(encoder={}), "malformed: "),
        ("videos", with_(shape=None), "malformed: "),
    ],
)
def test_a_record_without_its_form_is_a_finding(
    evidence: Path, kind: str, change: Forge, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(evidence, kind, change)
    assert main(["verify", str(evidence)]) == 1
    assert said in capsys.readouterr().out


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda evidence: (evidence / name).write_bytes(content)


def _plan(key: str, value: object) -> Callable[[Path], object]:
    def change(evidence: Path) -> None:
        file = evidence / "plan.json"
        file.write_text(json.dumps(changed(json.loads(file.read_text()), key, value)))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_write("plan.json", b"{"), "malformed: "),
        (_write("plan.json", b"[]"), "malformed: "),
        (_write("plan.json", b"\xff"), "malformed: "),
        (_write("plan.json", b"[" * 100_000), "malformed: "),
        (lambda evidence: (evidence / "plan.json").unlink(), "missing: plan.json"),
        (_write("tables/scores.csv", b"\xff"), "underived: tables/scores.csv"),
        (_write("records/timings.jsonl", b""), "unplanned: records/timings.jsonl"),
        (_plan("timing", {"prompts": 1, "warmup": 0, "repeats": 1}), "records/timings.jsonl: this file of records has"),
        (_plan("conditions.full", {}), "malformed: "),
        (_plan("conditions.full", {"search": {"candidates": 1}}), "malformed: "),
        (_plan("experiment", {}), "malformed: "),
        (_plan("prompts", []), "malformed: "),
        (_plan("baseline", "fuller"), "malformed: "),
        (_plan("scorers.beauty", {}), "plan.json, key 'scorers.beauty': this version of Fleetcraft knows no such"),
        # Both arms made the same: the tables' own refusal is a finding like others.
        (_plan("conditions.cached.arm.cache", None), "mismatched: a latents record"),
    ],
)
def test_a_document_without_its_form_is_a_finding(
    evidence: Path, change: Callable[[Path], object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(evidence)
    reseal(evidence)
    assert main(["verify", str(evidence)]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("line", [b"\xff", b"0  " + b"x" * 300 + b"\n", b"0  a\0b\n", b"0  \n", b"\n"])
def test_a_manifest_without_its_form_is_a_finding(evidence: Path, line: bytes) -> None:
    with (evidence / MANIFEST).open("ab") as file:
        file.write(line)
    assert list(verify(evidence))


def test_what_tables_refuse_is_a_finding_after_the_others(evidence: Path) -> None:
    full = {"forwards": 4, "blocks_computed": 8, "blocks_possible": 8}
    forge(evidence, "latents", with_(work=full, sample="another"))
    found = list(verify(evidence))
    assert found[0].startswith("mismatched: a latents record is of sample another")
    assert "the cache saved nothing" in found[-1]


# ---------------------------------------------------------------------- timed passes


def test_a_slow_pass_that_was_left_out_is_missed(small: dict[str, Any], plan_of: PlanOf) -> None:
    plan = plan_of(small | {"timing": {"prompts": 2, "warmup": 1, "repeats": 2}}).document()
    prompts = [prompt["text"] for prompt in plan["prompts"]]
    records: list[Record] = [
        {"kind": "timings", "arm": one.arm, "prompt": prompts[one.prompt], "seed": 0}
        | {"round": one.round, "warmup": one.warmup}
        for one in interleaved(["full", "cached"], 2, 1, 2)
    ]
    surroundings = {"kind": "surroundings"}
    assert list(check_passes(plan, [surroundings, *records])) == []
    left_out = records.pop()
    (finding,) = check_passes(plan, records)
    about = f"arm {left_out['arm']!r}, prompt 'a blue boat', seed 0"
    assert finding == f"incomplete: no timings record of round 1 for {about}"
    (_, finding) = check_passes(plan, [*records, records[0]])
    assert finding.startswith("unplanned: a timings record of warm-up 0 for arm 'full'")
