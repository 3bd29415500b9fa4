"""`fleetcraft videos check`: whether existing videos can enter a campaign, and what they are."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetcraft.cli.common import Subparsers, add_experiment
from fleetcraft.ground.errors import BadInput, FleetcraftError

if TYPE_CHECKING:
    from fleetcraft.experiment.models import Experiment
    from fleetcraft.ground.records import Record

_COLUMNS = ("arm", "videos", "codec", "pixel format", "size", "frames", "fps", "faults")

_AT_ONCE = 200
"""Videos that are played between two words on how far it is."""


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "videos",
        help="check videos that exist already",
        description="Look after the arms of an experiment whose videos exist already.",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="check the videos of all such arms: names, digests and every frame",
        description="Check what a campaign would refuse of existing videos, without starting one. Names are compared "
        "with the experiment's prompts and seeds, bytes with the list of digests, and every video is played to its "
        "end in the tool chain `diffusion`. Printed are a table of what each directory has, everything that is wrong, "
        "and what is left alone there. Nothing is written. Exit status 1 where something is wrong.",
    )
    add_experiment(check)
    check.add_argument(
        "--names", action="store_true", help="look at names, sizes and lists alone, as the plan does, and read no video"
    )
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.set_defaults(run=run)


@dataclass
class _Folder:
    """What is known of an arm's videos.

    wanted : how many the experiment wants.
    records : one of each video that was played.
    """

    arm: str
    directory: str
    wanted: int
    found: int
    findings: list[FleetcraftError]
    remarks: list[str]
    records: list[Record]

    @property
    def streams(self) -> Counter[str]:
        """Codec and pixel format → how many have them, of the videos that can be played."""
        return Counter(
            f"{one['facts']['codec']} {one['facts']['pixel_format']}" for one in self.records if one["facts"]
        )


def run(chosen: argparse.Namespace) -> int:
    from fleetcraft.experiment.config import located
    from fleetcraft.experiment.load import parse, validate

    file = chosen.experiment
    experiment = validate(parse(Path(file)), [file])
    if not experiment.foreign:
        raise BadInput(
            "this experiment has no arm of existing videos",
            file=file,
            key="arms",
            remedy="Give an arm a `source`, as config/README.md shows",
        )
    folders = [_folder(experiment, arm, played=not chosen.names) for arm in experiment.foreign]
    _compare(experiment, folders)
    for one in folders:
        one.findings = [located(finding, [file]) for finding in one.findings]
    print(json.dumps([_document(one) for one in folders], indent=1) if chosen.json else _text(folders))
    return 1 if any(one.findings for one in folders) else 0


def _folder(experiment: Experiment, arm: str, *, played: bool) -> _Folder:
    from fleetcraft.experiment.foreign import look
    from fleetcraft.experiment.prompts import load_prompts
    from fleetcraft.experiment.seeds import Seeds
    from fleetcraft.stages.completeness import finding_of

    source, prompts = experiment.foreign[arm].source, load_prompts(experiment.prompts)
    seeds = Seeds(experiment.seeds, experiment.further_seeds)
    folder = _Folder(arm, source.videos, sum(len(seeds.of(one.dimensions)) for one in prompts), 0, [], [], [])
    try:
        videos, folder.findings = look(arm, source, prompts, seeds)
    except FleetcraftError as error:
        folder.findings = [error]
        return folder
    folder.found, folder.remarks = len(videos.files), videos.remarks
    if played:
        samples = [{"file": name, "sha256": videos.digests.get(about)} for about, name in videos.files.items()]
        for start in range(0, len(samples), _AT_ONCE):
            folder.records += _examined(experiment, arm, samples[start : start + _AT_ONCE])
            print(f"{arm}: {len(folder.records):,} of {folder.found:,} videos played", file=sys.stderr, flush=True)
        folder.findings += [finding_of(one) for record in folder.records for one in record["findings"]]
    return folder


def _examined(experiment: Experiment, arm: str, samples: list[dict[str, Any]]) -> list[Record]:
    """A record of each video, from the tool chain that plays videos."""
    from fleetcraft.media.presets import encoder_settings
    from fleetcraft.stages.describe import ENCODER_PACKAGES
    from fleetcraft.stages.job import Job
    from fleetcraft.stages.launch import answer_of

    encoder, source = experiment.encoder, experiment.foreign[arm].source
    settings = encoder_settings(encoder.preset, experiment.stack.machine, encoder.crf, encoder.quality)
    job = Job(
        "examine",
        "diffusion",
        ENCODER_PACKAGES,
        "",
        "",
        samples=tuple(samples),
        settings={
            "directory": source.videos,
            "video": experiment.video.model_dump(mode="json"),
            "stream": settings.stream if experiment.generated and source.same_encoder else None,
            "ffmpeg_sha256": settings.ffmpeg_sha256,
        },
    )
    return list(answer_of(job, {}))


def _compare(experiment: Experiment, folders: list[_Folder]) -> None:
    """Add what keeps arms, or videos of one, from being compared: a finding where the experiment says the contrary."""
    from fleetcraft.experiment.alike import mixed

    vouched = [one for one in folders if experiment.foreign[one.arm].source.same_encoder]
    first = next((one for one in vouched if len(one.streams) == 1), None)
    for folder in folders:
        ours, remark = _listed(folder), mixed(folder.streams)
        if folder not in vouched:
            folder.remarks.append("how its videos were encoded is unknown: it is not compared with other arms")
            folder.remarks += [remark] if remark else []
        elif remark:
            folder.findings.append(_not_alike(folder, f"these videos are {ours}"))
        elif first is not None and folder.streams and folder.streams.keys() != first.streams.keys():
            theirs = f"those of {first.arm!r} are {_listed(first)}"
            folder.findings.append(_not_alike(folder, f"these videos are {ours}, {theirs}"))


def _listed(folder: _Folder) -> str:
    return " or ".join(sorted(folder.streams))


def _not_alike(folder: _Folder, problem: str) -> BadInput:
    """What the videos say against the experiment's word."""
    return BadInput(
        f"{problem}: they were not encoded alike",
        file=folder.directory,
        key=f"arms.{folder.arm}.source.same_encoder",
        value=True,
        remedy="Leave this key out: the arm is scored all the same, and not compared",
    )


def _text(folders: list[_Folder]) -> str:
    """A line a directory, and a paragraph for everything that is wrong."""
    rows = [_COLUMNS, *(tuple(_cells(one)) for one in folders)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for one in folders:
        lines += ["", f"{one.arm}: {one.directory}", *(f"  note: {remark}" for remark in one.remarks)]
        lines += [f"  {finding}" for finding in one.findings]
    return "\n".join(lines)


def _cells(folder: _Folder) -> list[str]:
    counts = [_counted(values) for values in _values(folder).values()]
    return [folder.arm, f"{folder.found:,} of {folder.wanted:,}", *counts, f"{len(folder.findings):,}"]


def _values(folder: _Folder) -> dict[str, Counter[str]]:
    """Property → how many videos have which value, those of them that can be played."""
    found = [record["facts"] for record in folder.records if record["facts"]]
    return {
        "codec": Counter(facts["codec"] for facts in found),
        "pixel_format": Counter(facts["pixel_format"] for facts in found),
        "size": Counter(f"{facts['width']}×{facts['height']}" for facts in found),
        "frames": Counter(str(facts["frames"]) for facts in found),
        "fps": Counter(_rate(facts["rate"]) for facts in found),
    }


def _rate(rate: str | None) -> str:
    return "none" if rate is None else f"{float(Fraction(rate)):g}"


def _counted(values: Counter[str]) -> str:
    """One value as it is, several with how many have each; a dash where nothing was played."""
    if len(values) < 2:
        return next(iter(values), "–")
    return ", ".join(f"{value} ({count:,})" for value, count in values.most_common())


def _document(folder: _Folder) -> dict[str, Any]:
    return {
        "arm": folder.arm,
        "directory": folder.directory,
        "wanted": folder.wanted,
        "found": folder.found,
        **_values(folder),
        "findings": [
            {"class": finding.failure_class, "file": str(finding.file), "text": str(finding)}
            for finding in folder.findings
        ],
        "remarks": folder.remarks,
        "videos": [{"file": record["file"], "facts": record["facts"]} for record in folder.records],
    }
