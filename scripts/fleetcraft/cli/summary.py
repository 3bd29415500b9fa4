"""A campaign's results at a glance: a short table, and where everything is."""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan
from fleetcraft.experiment.alike import mixed

if TYPE_CHECKING:
    from fleetcraft.experiment.plan import Plan


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "summary",
        help="results at a glance",
        description="Print a campaign's results as a short table, and where its report, videos and evidence are.",
    )
    add_experiment(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    print(summary_text(load_plan(chosen)))
    return 0


def summary_text(plan: Plan) -> str:
    """The summary as plain text; it says so where the campaign isn't finished."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    scores, paired = _rows(plan, "scores"), _rows(plan, "paired")
    compute = {row["arm"]: row for row in _rows(plan, "compute")}
    flops = _flops(plan, compute)
    if not scores:
        return f"{plan.experiment.name}: no tables yet; `snakemake` makes them"
    videos = Counter(row["arm"] for row in _rows(plan, "samples"))
    table = Table(box=box.SIMPLE_HEAD, title=f"{plan.experiment.name}: mean [95 % interval]", title_justify="left")
    for column in ("arm", "videos", "FLOPs"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for dimension in plan.dimensions:
        table.add_column(dimension, justify="right")
        if any(row["dimension"] == dimension for row in paired):
            table.add_column(f"Δ to {plan.baseline}", justify="right")
    for arm in plan.arms:
        cells = [arm, str(videos[arm]), flops.get(arm, "–")]
        for dimension in plan.dimensions:
            cells.append(_cell(scores, arm, dimension, "mean", ".4f"))
            if any(row["dimension"] == dimension for row in paired):
                cells.append(_cell(paired, arm, dimension, "mean_difference", "+.1e"))
        table.add_row(*cells)
    cut = {arm: int(row.get("cut_prompts", 0)) for arm, row in compute.items()}
    places = Table(box=None, show_header=False, pad_edge=False)
    report = Path(plan.paths.report)
    places.add_row("report", str(report) if report.exists() else f"snakemake --report {report}")
    places.add_row("videos", f"{plan.paths.views('ARM')}/")
    places.add_row("figures", f"{plan.paths.work}/figures/")
    places.add_row("tables", f"{plan.paths.work}/tables/")
    places.add_row("evidence", f"{plan.paths.evidence}/   (check it: fleetcraft verify {plan.paths.evidence})")
    text = io.StringIO()
    console = Console(file=text, width=160)
    console.print(table)
    for line in [*_encoder_note(plan), *_noise_note(plan)]:
        console.print(line, highlight=False)
    if any(cut.values()):
        numbers = ", ".join(f"{number} of {arm}" for arm, number in cut.items() if number)
        console.print(f"videos of prompts that were cut to what the text encoder takes: {numbers}\n")
    if plan.experiment.timing:
        console.print(_latencies(plan))
    console.print(places)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _encoder_note(plan: Plan) -> list[str]:
    """Which arms are not compared, which are by the experiment's own word, and which mix encoders in themselves."""
    lines, existing = [], defaultdict[str, Counter[str]](Counter)
    for row in _rows(plan, "encoders"):
        # A table of an earlier version doesn't tell.
        verdict, _, reason = row.get("compared", "").partition(": ")
        if verdict == "no":
            lines.append(f"  {row['arm']}: {row['encoder']}, not compared with {plan.baseline}: {reason}")
        elif row["settings"] == "vouched for":
            lines.append(f"  {row['arm']}: {row['encoder']}, encoded as the others are by the experiment's own word")
        if row["settings"] in ("unknown", "vouched for"):
            existing[row["arm"]][row["encoder"]] += int(row["videos"])
    lines += [f"  {arm}: {remark}" for arm, videos in existing.items() if (remark := mixed(videos))]
    return ["Encoders shift scores: only arms that share one are compared.", *lines, ""] if lines else []


def _noise_note(plan: Plan) -> list[str]:
    """Which scores compare videos that were never meant to be alike."""
    lines = [f"  {arm}: {', '.join(dimensions)}" for arm, dimensions in plan.of_other_noise.items()]
    head = f"Of a search, these compare winners with {plan.baseline}'s videos of another noise:"
    return [head, *lines, ""] if lines else []


def _latencies(plan: Plan) -> str:
    """One line an arm: seconds from the prompt to frames, and the ratio to the baseline with its interval."""
    totals = {row["arm"]: row for row in _rows(plan, "latency") if row["phase"] == "total"}
    ratios = {row["arm"]: row for row in _rows(plan, "latency_ratios") if row["phase"] == "total"}
    lines = [f"latency, prompt to frames, alone on {'a GPU' if plan.experiment.stack.device == 'cuda' else 'the node'}"]
    for arm, row in totals.items():
        if not row["median_s"]:
            lines.append(f"  {arm:<12} none of {row['invalid']} passes was alone on its node")
            continue
        text = f"{float(row['median_s']):.3f} s, {row['passes']} passes"
        if arm in ratios:
            ratio = ratios[arm]
            interval = f" [{float(ratio['low']):.3f}, {float(ratio['high']):.3f}]" if ratio["low"] else ""
            text += f", {float(ratio['ratio']):.3f}{interval} of {ratio['baseline']}'s"
        if int(row["invalid"]):
            text += f" ({row['invalid']} more were not alone on their node)"
        lines.append(f"  {arm:<12} {text}")
    return "\n".join([*lines, ""])


def _rows(plan: Plan, table: str) -> list[dict[str, str]]:
    file = Path(plan.paths.table(table))
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _flops(plan: Plan, compute: Mapping[str, dict[str, str]]) -> dict[str, str]:
    """Arm → its FLOPs as a share of the baseline's, a search's with all candidates.

    Where there is no such baseline, of all that the arm's own transformer has; where records of an earlier version lack
    FLOPs, of its blocks.
    """
    searched = {row["arm"]: row["flops_to_baseline"] for row in _rows(plan, "search") if row["step"] == "total"}
    baseline = compute.get(plan.baseline, {}).get("flops_per_video")
    shares = {}
    for arm, row in compute.items():
        share = searched.get(arm) if arm in searched else row["share_of_flops"] or row["share_of_blocks"]
        if arm not in searched and baseline and row["flops_per_video"]:
            share = str(float(row["flops_per_video"]) / float(baseline))
        if share:
            shares[arm] = f"{float(share):.0%}"
    return shares


def _cell(rows: Sequence[dict[str, str]], arm: str, dimension: str, field: str, style: str) -> str:
    row = next((row for row in rows if row["arm"] == arm and row["dimension"] == dimension), None)
    if row is None:
        return "–"
    interval = f" [{float(row['low']):{style}}, {float(row['high']):{style}}]" if row["low"] else ""
    return f"{float(row[field]):{style}}{interval}"
