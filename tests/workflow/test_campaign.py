"""A campaign from its experiment to its evidence."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, new_campaign, small_document
from plans import all_samples

from fleetcraft.ground.ledger import PHASES
from fleetcraft.ground.records import Record, read_records, write_records


def table(campaign: Campaign, name: str) -> list[dict[str, str]]:
    with (campaign.directory / f"work/small/tables/{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_sample_has_a_video_whose_digest_is_in_the_table(finished: Campaign) -> None:
    rows = table(finished, "samples")
    assert len(rows) == 12
    plan = finished.plan()
    by_sample = {sample.sample_id: plan.video_key(sample) for sample in all_samples(plan)}
    for row in rows:
        key = by_sample[row["sample"]]
        video = finished.directory / f"scratch/store/videos/{key[:2]}/{key}.mp4"
        assert hashlib.sha256(video.read_bytes()).hexdigest() == row["video_sha256"]


def test_caching_is_seen_in_the_blocks_that_ran_and_in_the_pixels(finished: Campaign) -> None:
    full, cached = table(finished, "compute")
    assert float(full["share_of_blocks"]) == 1
    assert float(cached["share_of_blocks"]) < 1
    assert float(cached["share_of_flops"]) < 1
    assert int(cached["flops_per_video"]) < int(full["flops_per_video"])
    assert 0 < float(table(finished, "scores")[0]["mean"]) < 1, "SSIM to the baseline"


def test_frames_are_gone_and_views_show_every_video(finished: Campaign) -> None:
    assert not list((finished.directory / "scratch/small/frames").rglob("*.npy"))
    for arm in ("full", "cached"):
        views = finished.directory / f"scratch/small/views/{arm}"
        assert sorted(path.name for path in views.iterdir()) == [
            f"a {what}-{index}.mp4" for what in ("blue boat", "green kite", "red bicycle") for index in (0, 1)
        ]
        assert all(path.is_file() for path in views.iterdir()), "no link is broken"


def test_records_tell_where_and_how_each_artifact_was_made(finished: Campaign) -> None:
    (record, *_) = read_records(finished.directory / "scratch/small/latents/cached/s0.jsonl")
    assert record["made"]["versions"]["torch"].startswith("2.")
    assert record["made"]["host"]
    assert record["seconds"]["denoise"] > 0
    assert record["memory"]["denoise"]["peak"]["host_mb"] > 50
    assert record["memory"]["denoise"]["peak"]["device_mb"] is None, "not measured where there is no GPU"
    assert record["work"]["blocks_computed"] < record["work"]["blocks_possible"]
    assert record["work"]["flops_computed"] < record["work"]["flops_possible"]
    assert record["work"]["hooked_modules"] == 4
    (record, *_) = read_records(finished.directory / "scratch/small/videos/cached/s0.jsonl")
    assert record["encoder"]["crf"] == 18
    assert record["decoded"]["made"]["versions"]["torch"].startswith("2.")
    assert record["decoded"]["seconds"]["decode"] > 0
    rows = [row for row in table(finished, "memory") if row["arm"] == "cached"]
    assert all(row["device_mb"] == "" for row in rows), "not measured where there is no GPU"
    owners = {(row["phase"], row["owner"]): float(row["host_mb"]) for row in rows}
    assert [phase for phase in PHASES if (phase, "peak") in owners] == [
        *("load", "text_encoder", "denoise", "load_decoder", "decode", "encode", "check", "score")
    ]
    for phase, owner in (("denoise", "transformer"), ("denoise", "feature_cache"), ("decode", "staging")):
        assert 0 < owners[phase, owner] < owners[phase, "peak"]
    assert len(record["encoder"]["ffmpeg_sha256"]) == 64


def test_two_runs_in_different_directories_give_the_same_bytes(finished: Campaign, tmp_path: Path) -> None:
    document = small_document()
    document["name"] = "again"
    # Both seeds of an arm in one job.
    document["shard_size"] = 8
    document["seeds"] = [1, 0]
    second = new_campaign(tmp_path / "elsewhere" / "deeper", document)
    second.complete()
    for name in ("scores", "paired", "compute"):
        ours = (finished.directory / f"work/small/tables/{name}.csv").read_bytes()
        assert ours == (second.directory / f"work/again/tables/{name}.csv").read_bytes()
    digests = [
        {
            video.name: hashlib.sha256(video.read_bytes()).hexdigest()
            for video in (base / "scratch/store").rglob("*.mp4")
        }
        for base in (finished.directory, second.directory)
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 12


TARGET = "scratch/small/latents/full/s0.jsonl"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign whose samples take a while, and that has its model and nothing else."""
    document = small_document()
    document["arms"] = {"full": {"model": "tiny", "dtype": "float32", "steps": 60}}
    document["seeds"] = [0]
    document["scoring"]["dimensions"] = ["temporal_flickering"]
    campaign = new_campaign(tmp_path_factory.mktemp("built") / "campaign", document)
    run = campaign.snakemake("scratch/small/models/tiny.jsonl")
    assert run.status == 0, run.output
    return campaign


@pytest.fixture
def long_campaign(built: Campaign, tmp_path: Path) -> Campaign:
    """A copy of it, to be interrupted."""
    return built.copy_to(tmp_path / "campaign")


@contextmanager
def generating(campaign: Campaign, target: str = TARGET) -> Iterator[subprocess.Popen[str]]:
    """Snakemake at work on three samples, of which the first is done; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(campaign.command(target), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 600
        while not campaign.artifacts()["latents"]:
            assert process.poll() is None, "it must not end before it is killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield process
    finally:
        # As when the power goes: the controller, its worker and all that it runs.
        while left := campaign.processes():
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.poll()
        process.communicate()


def test_a_killed_campaign_resumes_at_the_next_sample(long_campaign: Campaign) -> None:
    campaign = long_campaign
    with generating(campaign):
        pass
    before = campaign.artifacts()["latents"]
    assert 0 < len(before) < 3
    assert not (campaign.directory / TARGET).exists()

    assert campaign.snakemake("--unlock").status == 0
    run = campaign.snakemake(TARGET)
    assert run.status == 0, run.output
    after = campaign.artifacts()["latents"]
    assert len(after) == 3
    assert {key: after[key] for key in before} == before, "finished samples are not computed again"
    campaign.fleetcraft("audit", "--repair", "experiment.yaml")
    left = [path.name for path in (campaign.directory / "scratch/store").rglob(".*")]
    assert left == [], "what the killed job was writing is cleared away"


def test_a_killed_job_fails_alone_and_is_taken_up_again(long_campaign: Campaign) -> None:
    campaign = long_campaign
    description = "scratch/small/logs/generate/full/s0.json"
    with generating(campaign) as process:
        (stage,) = [
            number
            for number, command in campaign.processes().items()
            if description in command and "fleetcraft.stages" in command
        ]
        os.kill(stage, signal.SIGKILL)
        output, _ = process.communicate(timeout=300)
        assert process.returncode != 0
        assert "Error in rule generate" in output
    before = campaign.artifacts()["latents"]
    assert campaign.snakemake(TARGET).status == 0
    after = campaign.artifacts()["latents"]
    assert {key: after[key] for key in before} == before


def test_prompts_that_change_during_a_run_reach_no_job_of_it(long_campaign: Campaign) -> None:
    campaign = long_campaign
    videos = "scratch/small/videos/full/s0.jsonl"
    with generating(campaign, videos) as process:
        prompts = campaign.directory / "prompts.txt"
        prompts.write_text(prompts.read_text().replace("blue", "green"))
        output, _ = process.communicate(timeout=300)
        assert process.returncode != 0
        assert "what this campaign was planned from has changed since it started" in output
    assert not (campaign.directory / videos).exists()
    before = campaign.artifacts()["latents"]
    assert campaign.snakemake(videos).status == 0
    after = campaign.artifacts()["latents"]
    assert {key: after[key] for key in before} == before
    assert len(after) == 4, "one prompt is another one"


def test_a_job_can_be_run_again_by_hand_from_its_description(campaign: Campaign) -> None:
    manifest = campaign.directory / "scratch/small/videos/full/s0.jsonl"
    records = read_records(manifest)
    manifest.unlink()
    run = campaign.fleetcraft("stage", "scratch/small/logs/encode/full/s0.json")
    assert run.status == 0, run.output
    assert "3 in the store, 0 to make" in run.output
    assert read_records(manifest) == records


def test_the_report_is_one_file_with_the_figures_in_it(campaign: Campaign) -> None:
    run = campaign.snakemake("--report", "work/small/report.html")
    assert run.status == 0, run.output
    report = (campaign.directory / "work/small/report.html").read_text()
    assert "Contact sheets" in report
    assert report.count("data:image/png") == 3, "two contact sheets and a figure"


def test_the_summary_tells_the_result_and_where_it_is(campaign: Campaign) -> None:
    run = campaign.fleetcraft("summary", "experiment.yaml")
    assert run.status == 0
    mean = next(row["mean"] for row in table(campaign, "scores") if row["arm"] == "cached")
    assert f"{float(mean):.4f}" in run.output
    assert "work/small/evidence" in run.output
    assert "version" not in run.output
    assert "isn't finished" not in run.output


def test_the_plan_says_what_is_there_already(campaign: Campaign) -> None:
    run = campaign.fleetcraft("plan", "experiment.yaml")
    assert "12 samples = 2 arms × 3 prompts × 2 seeds" in run.output
    assert "12 of 12" in run.output
    assert "6 of 6" in run.output
    campaign.document["seeds"].append(2)
    campaign.write()
    assert "12 of 18" in campaign.fleetcraft("plan", "experiment.yaml").output


def test_the_number_of_jobs_in_the_plan_is_what_snakemake_would_run(tmp_path: Path) -> None:
    document = small_document()
    document["scoring"]["dimensions"].append("temporal_flickering")
    document["prompts"] = {"suite": "vbench", "limit": 40}
    document["further_seeds"] = {"temporal_flickering": [2, 3, 4]}
    campaign = new_campaign(tmp_path / "campaign", document)
    plan = campaign.plan()
    assert any(name.startswith("temporal_flickering-") for name in plan.shards)
    assert campaign.snakemake("--dry-run").jobs == plan.jobs


# ---------------------------------------------------------------------- evidence


def evidence(campaign: Campaign) -> Path:
    return campaign.directory / "work/small/evidence"


def test_evidence_holds_and_needs_nothing_but_itself(campaign: Campaign, tmp_path: Path) -> None:
    moved = evidence(campaign).rename(tmp_path / "moved")
    run = campaign.fleetcraft("verify", str(moved))
    assert run.status == 0, run.output
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", "manifest-sha256.txt"],
        cwd=moved,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    names = {path.name for path in moved.rglob("*") if path.is_file()}
    assert {"plan.json", "experiment.yaml", "source.json", "requirements.lock", "diffusion.yaml"} <= names
    assert not any(name.endswith(".mp4") for name in names)
    source = json.loads((moved / "source.json").read_text())
    assert "Snakefile" in source["files"]


def change_a_table(directory: Path) -> None:
    file = directory / "tables/scores.csv"
    file.write_text(file.read_text().replace("0.", "1.", 1))


def change_a_table_and_its_digest(directory: Path) -> None:
    file = directory / "tables/scores.csv"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    change_a_table(directory)
    manifest = directory / "manifest-sha256.txt"
    manifest.write_text(manifest.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))


def rewrite_scores_with_everything_resealed(directory: Path) -> None:
    """The most thorough forgery of a score: records sealed anew, digests too; only the tables still tell."""
    reseal_scores(directory, [{**record, "value": 0.99} for record in scores(directory)])


def leave_the_worst_score_out(directory: Path) -> None:
    reseal_scores(directory, sorted(scores(directory), key=lambda record: float(record["value"]))[1:])


def score_what_nobody_planned(directory: Path) -> None:
    records = scores(directory)
    reseal_scores(directory, [*records, *({**record, "dimension": "beauty"} for record in records)])


def lose_the_arms_of_scores(directory: Path) -> None:
    reseal_scores(directory, [{**record, "arm": None} for record in scores(directory)])


def scores(directory: Path) -> list[Record]:
    return read_records(directory / "records/scores.jsonl")


def reseal_scores(directory: Path, records: list[Record]) -> None:
    file = directory / "records/scores.jsonl"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    write_records(file, records)
    manifest = directory / "manifest-sha256.txt"
    manifest.write_text(manifest.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))


def lose_a_file(directory: Path) -> None:
    (directory / "records/videos.jsonl").unlink()


def add_a_file(directory: Path) -> None:
    (directory / "stray.txt").write_text("?")


def change_the_plan(directory: Path) -> None:
    file = directory / "plan.json"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    plan = json.loads(file.read_text())
    plan["conditions"]["cached"]["arm"]["steps"] = 5
    file.write_text(json.dumps(plan))
    manifest = directory / "manifest-sha256.txt"
    manifest.write_text(manifest.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (change_a_table, "changed: tables/scores.csv"),
        (change_a_table_and_its_digest, "underived: tables/scores.csv"),
        (rewrite_scores_with_everything_resealed, "underived: tables/scores.csv"),
        (leave_the_worst_score_out, "incomplete: no scores record of ssim for arm 'cached'"),
        (score_what_nobody_planned, "unplanned: a scores record of beauty for arm 'cached'"),
        (lose_the_arms_of_scores, "records/scores.jsonl: a scores record lacks its 'arm'"),
        (lose_a_file, "missing: records/videos.jsonl"),
        (add_a_file, "unlisted: stray.txt"),
        (change_the_plan, "mismatched: a latents record"),
    ],
)
def test_evidence_that_was_tampered_with_is_refused(campaign: Campaign, forge: object, said: str) -> None:
    forge(evidence(campaign))  # type: ignore[operator]
    run = campaign.fleetcraft("verify", "work/small/evidence")
    assert run.status == 1
    assert said in run.output


def test_a_manifest_that_was_rewritten_no_longer_has_the_digest_beside_the_directory(campaign: Campaign) -> None:
    change_a_table_and_its_digest(evidence(campaign))
    assert "changed: manifest-sha256.txt" in campaign.fleetcraft("verify", "work/small/evidence").output


def test_a_directory_without_evidence_is_named(campaign: Campaign) -> None:
    run = campaign.fleetcraft("verify", "scratch")
    assert run.status == 1
    assert run.output.startswith("fleetcraft: scratch: this is no evidence directory")


# ---------------------------------------------------------------------- scale


def review(campaign: Campaign) -> tuple[float, float]:
    """Processor seconds and peak MB of a dry run."""
    process = subprocess.Popen(
        campaign.command("--dry-run"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def test_a_review_of_thirty_thousand_samples_is_small(tmp_path: Path) -> None:
    document = small_document()
    document["prompts"], document["seeds"], document["shard_size"] = {"suite": "vbench"}, list(range(17)), 64
    large, small = new_campaign(tmp_path / "large", document), new_campaign(tmp_path / "small")
    assert large.plan().sample_count == 32_096
    seconds, peak_mb = review(large)
    assert peak_mb <= 500
    # Beside a small campaign's, which is Snakemake's start: seconds alone would be those of the machine and of what
    # else it does. tests/benchmarks/dry_run.py shows them.
    assert seconds <= 10 * review(small)[0]
