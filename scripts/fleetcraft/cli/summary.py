"""A campaign's results at a glance: short tables, how they stand to the experiment, and where everything is.

Everything is read from work: scratch may be purged, and weights and existing videos may have gone.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcraft.cli.common import Subparsers, add_experiment, load_plan, snakemake_command
from fleetcraft.cli.layout import aligned, wrapped
from fleetcraft.experiment.alike import mixed
from fleetcraft.ground.errors import FleetcraftError, ended
from fleetcraft.ground.paths import Paths

if TYPE_CHECKING:
    from fleetcraft.evidence.standing import Standing
    from fleetcraft.experiment.models import Experiment

_Row = dict[str, str]

_NAMED = 4
"""How many changed keys are named."""


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "summary",
        help="results at a glance",
        description="Print a campaign's results as short tables, and where its report, videos and evidence are. Says "
        "so where the tables are of another version of the experiment, or the campaign isn't finished. Needs nothing "
        "but the experiment file and the campaign's directory in work.",
    )
    add_experiment(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.experiment.config import experiment_of_file

    experiment = experiment_of_file(chosen.experiment)
    digest: str | None = None
    problem: FleetcraftError | None = None
    try:
        digest = load_plan(chosen).digest
    except FleetcraftError as error:
        problem = error
        if not Path(_paths(experiment).table("scores")).is_file():
            raise
    print(summary_text(experiment, digest, [chosen.experiment], problem))
    return 0


def summary_text(
    experiment: Experiment, digest: str | None, files: Sequence[Path | str], problem: FleetcraftError | None = None
) -> str:
    """The summary as plain text.

    Parameters
    ----------
    digest : of the experiment's plan; None where it can't be planned any more, for `problem`.
    files : what the experiment was read from.
    """
    from fleetcraft.evidence.standing import standing

    paths, command = _paths(experiment), snakemake_command(files)
    tables = _Tables(paths)
    if not tables["scores"]:
        archived = Path(paths.evidence) / "tables"
        earlier = f"; those of the campaign that came to its end before are in {archived}/" if archived.is_dir() else ""
        return "\n".join(wrapped(f"{experiment.name}: no tables yet; `{command}` makes them{earlier}"))
    state = standing(paths, experiment.model_dump(mode="json"), digest)
    lines = [
        *_title(experiment, tables, state),
        "",
        *_arms(experiment, tables, state),
        "",
        *_scores(tables),
        "",
        *_encoder_note(experiment, tables),
        *_noise_note(experiment, tables),
        *_cut_prompts(tables),
    ]
    if experiment.timing:
        lines += _latencies(experiment, tables, state)
    return "\n".join([*lines, *_state_lines(state, command, problem), *_places(paths, tables, command)])


def _paths(experiment: Experiment) -> Paths:
    return Paths(experiment.paths.scratch, experiment.paths.work, experiment.name)


class _Tables:
    """The tables of a campaign, as rows of text; a table that isn't there has none.

    arms, dimensions : those that the tables have, in their order. An experiment that was changed since has others.
    """

    def __init__(self, paths: Paths):
        self._paths = paths
        self._read: dict[str, list[_Row]] = {}
        samples, scored = self["samples"], {row["dimension"] for row in self["scores"]}
        self.arms = list(dict.fromkeys(row["arm"] for row in [*samples, *self["scores"]]))
        in_order = dict.fromkeys([*(samples[0] if samples else ()), *(row["dimension"] for row in self["scores"])])
        self.dimensions = [name for name in in_order if name in scored]

    @property
    def paths(self) -> Paths:
        return self._paths

    def __getitem__(self, name: str) -> list[_Row]:
        if name not in self._read:
            file = Path(self._paths.table(name))
            self._read[name] = _rows(file) if file.is_file() else []
        return self._read[name]

    def baseline(self, experiment: Experiment) -> str:
        """The arm that the others were compared with."""
        paired = (row["baseline"] for row in self["paired"])
        # A table of encoders of an earlier version doesn't tell.
        told = (row["arm"] for row in self["encoders"] if row.get("compared") == "baseline")
        return next(paired, None) or next(told, None) or experiment.baseline


def _rows(file: Path) -> list[_Row]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _title(experiment: Experiment, tables: _Tables, state: Standing) -> list[str]:
    differences = f" and differences Δ to {tables.baseline(experiment)}" if tables["paired"] else ""
    told = "of another version of the experiment" if state.other else "the campaign isn't finished"
    note = "" if state.finished else f" (see below: {told})"
    return wrapped(f"{experiment.name}: means{differences}, with 95 % intervals{note}")


def _arms(experiment: Experiment, tables: _Tables, state: Standing) -> list[str]:
    videos, flops = Counter(row["arm"] for row in tables["samples"]), _flops(experiment, tables, state)
    rows = [(arm, str(videos[arm]), flops.get(arm, "–")) for arm in tables.arms]
    return aligned([("", "videos", "FLOPs"), *rows], ">>")


def _scores(tables: _Tables) -> list[str]:
    """A block a dimension, a line an arm: arms are compared within a dimension."""
    rows = [("", "mean", "", "Δ" if tables["paired"] else "", "")]
    scores, paired = _by_arm(tables["scores"]), _by_arm(tables["paired"])
    for dimension in tables.dimensions:
        for arm in tables.arms:
            score = _with_interval(scores.get((arm, dimension)), "mean", ".4f")
            difference = _with_interval(paired.get((arm, dimension)), "mean_difference", "+.1e")
            rows.append((arm, *(score or ("–", "")), *(difference or ("", ""))))
    heading, *lines = aligned(rows, ">[>[", "    ")
    blocks = [heading]
    for number, dimension in enumerate(tables.dimensions):
        blocks += [f"  {dimension}", *lines[number * len(tables.arms) : (number + 1) * len(tables.arms)]]
    return blocks


def _by_arm(rows: Iterable[_Row]) -> dict[tuple[str, str], _Row]:
    return {(row["arm"], row["dimension"]): row for row in rows}


def _with_interval(row: _Row | None, field: str, style: str) -> tuple[str, str] | None:
    """The cells of a number and its interval; that one is empty where one prompt gives none."""
    if row is None:
        return None
    return f"{float(row[field]):{style}}", _interval(row, style)


def _interval(row: _Row, style: str) -> str:
    return f"[{float(row['low']):{style}}, {float(row['high']):{style}}]" if row["low"] else ""


def _encoder_note(experiment: Experiment, tables: _Tables) -> list[str]:
    """Which arms are not compared, which are by the experiment's own word, and which mix encoders in themselves."""
    notes, baseline, existing = [], tables.baseline(experiment), defaultdict[str, Counter[str]](Counter)
    for row in tables["encoders"]:
        # A table of an earlier version doesn't tell.
        verdict, _, reason = row.get("compared", "").partition(": ")
        if verdict == "no":
            notes.append(f"{row['arm']}: {row['encoder']}, not compared with {baseline}: {reason}")
        elif row["settings"] == "vouched for":
            notes.append(f"{row['arm']}: {row['encoder']}, encoded as the others are by the experiment's own word")
        if row["settings"] in ("unknown", "vouched for"):
            existing[row["arm"]][row["encoder"]] += int(row["videos"])
    notes += [f"{arm}: {remark}" for arm, videos in existing.items() if (remark := mixed(videos))]
    if not notes:
        return []
    lines = [line for note in notes for line in wrapped(note, "  ", "    ")]
    return [*wrapped("Encoders shift scores: only arms that share one are compared."), *lines, ""]


def _noise_note(experiment: Experiment, tables: _Tables) -> list[str]:
    """Which scores compare videos that were never meant to be alike."""
    from fleetcraft.scoring.dimensions import DIMENSIONS

    compared = [name for name in tables.dimensions if name in DIMENSIONS and DIMENSIONS[name].pairwise]
    searched = [arm for arm in tables.arms if arm in experiment.searches]
    if not compared or not searched:
        return []
    baseline = tables.baseline(experiment)
    head = f"Of a search, these compare winners with {baseline}'s videos of another noise:"
    return [*wrapped(head), *(line for arm in searched for line in wrapped(f"{arm}: {', '.join(compared)}", "  ")), ""]


def _cut_prompts(tables: _Tables) -> list[str]:
    cut = {row["arm"]: int(row.get("cut_prompts", 0)) for row in tables["compute"]}
    numbers = ", ".join(f"{number} of {arm}" for arm, number in cut.items() if number)
    return [*wrapped(f"Videos of prompts that were cut to what the text encoder takes: {numbers}"), ""] * bool(numbers)


def _latencies(experiment: Experiment, tables: _Tables, state: Standing) -> list[str]:
    """A line an arm: seconds from the prompt to frames, and the ratio to the baseline with its interval."""
    from fleetcraft.evidence.standing import is_outdated

    totals = [row for row in tables["latency"] if row["phase"] == "total"]
    # The table has those without a pass that counts at its end.
    places = {arm: place for place, arm in enumerate(tables.arms)}
    totals.sort(key=lambda row: places.get(row["arm"], -1))
    if not totals:
        return []
    ratios = {row["arm"]: row for row in tables["latency_ratios"] if row["phase"] == "total"}
    rows = [("", "seconds", "passes", "ratio" if ratios else "", "", "not alone")]
    for row in totals:
        seconds = f"{float(row['median_s']):.3f}" if row["median_s"] else "–"
        ratio = _with_interval(ratios.get(row["arm"]), "ratio", ".3f") or ("", "")
        rows.append((row["arm"], seconds, row["passes"], *ratio, row["invalid"]))
    where = "a GPU" if experiment.stack.device == "cuda" else "the node"
    # A change of the experiment need not concern them: then they are as old as the plan before.
    old = not (state.finished or state.other) and is_outdated(tables.paths, "latency")
    heading = f"latency, prompt to frames, alone on {where}{', from before the last change' if old else ''}"
    lines = [heading, *aligned(rows, ">>>[>")]
    if any(int(row["invalid"]) for row in totals):
        lines += wrapped("Passes that were not alone on their node don't count.", "  ")
    return [*lines, ""]


def _state_lines(state: Standing, command: str, problem: FleetcraftError | None) -> list[str]:
    """What these tables are, where they are not those of a campaign that came to its end; and what to run."""
    sentences = []
    if state.other:
        named = ", ".join(state.changed[:_NAMED])
        more = f" and {len(state.changed) - _NAMED} more" if len(state.changed) > _NAMED else ""
        since = f": since then, this has changed: {named}{more}" if named else ""
        sentences.append(f"These tables are of another version of the experiment{since}.")
        begun = "A campaign of the present one was started and isn't finished: " if state.begun else ""
        run = f"{begun}`{command}` {'goes on and makes its tables' if begun else 'makes those of the present one'}."
    else:
        known = "; these tables are of the experiment as it is" if state.other is False else ""
        sentences += [] if state.finished else [f"The campaign isn't finished{known}."]
        run = f"`{command}` goes on."
    if problem is not None:
        sentences.append(ended(f"The experiment can't be planned now, which only a campaign needs: {problem.account}"))
        sentences.append(ended(problem.remedy))
    if not state.finished:
        sentences.append(f"After that, {run[:1].lower()}{run[1:]}" if problem is not None else run)
    return [*wrapped(" ".join(sentences)), ""] if sentences else []


def _places(paths: Paths, tables: _Tables, command: str) -> list[str]:
    """Where everything is. Never wrapped: paths are there to be copied."""
    report, renew = Path(paths.report), f"{command} --report {paths.report}"
    videos = any(Path(paths.views(arm)).is_dir() for arm in tables.arms)
    places = [
        ("report", str(report) if report.exists() else renew),
        ("videos", f"{paths.views('ARM')}/" if videos else f"gone from {paths.scratch}/; `{command}` makes them again"),
        ("figures", f"{paths.work}/figures/"),
        ("tables", f"{paths.work}/tables/"),
    ]
    if report.exists() and report.stat().st_mtime_ns < Path(paths.table("scores")).stat().st_mtime_ns:
        places.insert(1, ("", f"(older than the tables: {renew})"))
    if Path(paths.evidence_digest).is_file():
        places += [("evidence", f"{paths.evidence}/"), ("", f"(check it: fleetcraft verify {paths.evidence})")]
    return [f"{name:<8}  {place}" for name, place in places]


def _flops(experiment: Experiment, tables: _Tables, state: Standing) -> dict[str, str]:
    """Arm → its FLOPs as a share of the baseline's, a search's with all candidates.

    Where there is no such baseline, of all that the arm's own transformer has; where records of an earlier version lack
    FLOPs, of its blocks. A search has none while its table is from before the last change.
    """
    from fleetcraft.evidence.standing import is_outdated

    compute: Mapping[str, _Row] = {row["arm"]: row for row in tables["compute"]}
    # Snakemake leaves the table of a search that the experiment no longer has.
    searches = experiment.searches
    fresh = searches and (state.other or not is_outdated(tables.paths, "search") or state.finished)
    searched = {row["arm"]: row["flops_to_baseline"] for row in tables["search"] if row["step"] == "total"}
    searched = searched if fresh else {}
    baseline = compute.get(tables.baseline(experiment), {}).get("flops_per_video")
    shares = {}
    for arm, row in compute.items():
        share = searched.get(arm, "") if arm in searches else row["share_of_flops"] or row["share_of_blocks"]
        if arm not in searches and baseline and row["flops_per_video"]:
            share = str(float(row["flops_per_video"]) / float(baseline))
        if share:
            shares[arm] = f"{float(share):.0%}"
    return shares
