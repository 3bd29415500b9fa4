"""`fleetcraft mirror verify`: whether a checkpoint on disk is whole, and would load completely."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetcraft.cli.common import Subparsers
from fleetcraft.ground.errors import BadEnvironment, BadInput, FleetcraftError, nearest
from fleetcraft.ground.units import bytes_text

if TYPE_CHECKING:
    from fleetcraft.mirror.digests import Digests
    from fleetcraft.mirror.inspection import Inspection, Part

_READERS = 4
"""Files that are read at the same time, where there are as many processors."""


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "mirror",
        help="check a checkpoint on disk",
        description="Look after the checkpoints of a mirror: directories as diffusers saves them.",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    verify = actions.add_parser(
        "verify",
        help="check that a checkpoint is whole and would load completely",
        description="Check a checkpoint's files against its list of SHA-256 digests, the headers of its weights "
        "against sizes and indexes, and, in the tool chain `diffusion`, every model's tensors against its "
        "configuration and every tokenizer against a probe. Weights are read once, for their digests: what was "
        "verified is remembered by path, size and time of change, below $XDG_CACHE_HOME/fleetcraft and never in the "
        "checkpoint's directory. Exit status 1 where something is wrong or could not be checked.",
    )
    verify.add_argument("directory", type=Path, metavar="DIR", help="the directory that has model_index.json")
    verify.add_argument(
        "--sha256sums",
        type=Path,
        metavar="FILE",
        help="list of the files' digests, as sha256sum prints it (default: SHA256SUMS in DIR)",
    )
    verify.add_argument("--again", action="store_true", help="read and check everything, remembered or not")
    verify.add_argument("--json", action="store_true", help="print one JSON document")
    verify.set_defaults(run=run)


@dataclass
class _Verdict:
    """What is known of a checkpoint.

    family : of its pipeline; None where none loads it.
    files : the list of digests; empty where it is missing or unreadable.
    unchecked : why it was not loaded; None where it was.
    loading : how it is known that it would load.
    """

    inspection: Inspection
    family: str | None
    files: dict[str, str]
    digests: Digests
    findings: list[FleetcraftError]
    unchecked: str | None
    loading: str
    trouble: str | None

    @property
    def holds(self) -> bool:
        return not self.findings and self.unchecked is None


def run(chosen: argparse.Namespace) -> int:
    verdict = _verify(chosen.directory, chosen.sha256sums, again=chosen.again)
    if chosen.json:
        print(json.dumps(_document(verdict), indent=1, ensure_ascii=False))
    else:
        print(_text(verdict))
    return 0 if verdict.holds else 1


def _verify(directory: Path, sums: Path | None, *, again: bool) -> _Verdict:
    from fleetcraft.experiment.plan import STACK_PACKAGES
    from fleetcraft.experiment.sources import left_out
    from fleetcraft.mirror.digests import verify_digests
    from fleetcraft.mirror.inspection import INDEX, distinct, inspect
    from fleetcraft.mirror.memory import Memory, cache_home
    from fleetcraft.mirror.sums import compare, read_sums
    from fleetcraft.pipelines.families import FAMILIES
    from fleetcraft.stages.completeness import DryLoads, findings_beside

    inspection, memory = inspect(directory), Memory(cache_home(), again=again)
    findings: list[FleetcraftError] = []
    pipelines = {family.pipeline: name for name, family in FAMILIES.items()}
    family = pipelines.get(inspection.pipeline)
    if family is None:
        findings.append(
            BadInput(
                "no family loads checkpoints of this pipeline",
                file=directory / INDEX,
                key="_class_name",
                value=inspection.pipeline,
                remedy=nearest(inspection.pipeline, pipelines),
            )
        )
    else:
        findings += left_out(family, inspection)
    findings += inspection.findings
    files: dict[str, str] = {}
    try:
        files = read_sums(directory, sums)
        findings += compare(directory, sums, files, inspection.sizes)
    except FleetcraftError as finding:
        findings.append(finding)
    digests = verify_digests(directory, files, memory, min(_READERS, len(os.sched_getaffinity(0))))
    findings += digests.findings

    whole, unchecked, loading = not findings, None, "every part would load complete"
    loads = DryLoads(memory, directory, files, STACK_PACKAGES)
    if whole and loads.known:
        loading += ", as it did before"
    else:
        try:
            incomplete = findings_beside(directory, STACK_PACKAGES)
            findings += incomplete
            if whole and not incomplete:
                loads.remember()
            if incomplete:
                loading = "not every part would load complete"
        except BadEnvironment as error:
            unchecked = str(error)
    return _Verdict(inspection, family, files, digests, distinct(findings), unchecked, loading, memory.trouble)


def _text(verdict: _Verdict) -> str:
    """The verdict for people: a line a component, and a paragraph for everything that is wrong."""
    inspection, digests = verdict.inspection, verdict.digests
    parts = inspection.parts.values()
    width = max([len("digests"), *(len(part.name) for part in parts)])
    read = f"{bytes_text(digests.read)} read"
    if digests.read:
        read += f" in {digests.seconds:.1f} s, {bytes_text(digests.read / max(digests.seconds, 1e-6))}/s"
    verified = f"{digests.files} of {len(verdict.files)} listed files looked at, {digests.remembered} verified before"
    if not verdict.files:
        verified, read = "there is no list to compare with", "nothing was read"
    family = f"family {verdict.family}" if verdict.family else "of no family"
    size = bytes_text(sum(inspection.sizes.values()))
    lines = [
        f"{inspection.directory}: {inspection.pipeline}, {family}, {len(inspection.sizes)} files, {size}",
        *(f"  {part.name:<{width}}  {_line(part, verdict)}" for part in parts),
        f"  {'digests':<{width}}  {verified}; {read}",
        f"  {'loading':<{width}}  {'not checked' if verdict.unchecked else verdict.loading}",
        *(f"  note: {note}" for note in inspection.notes),
    ]
    if verdict.trouble:
        lines.append(f"  note: what was verified can't be remembered: {verdict.trouble}")
    lines += [text for finding in verdict.findings for text in ("", str(finding))]
    if verdict.unchecked:
        lines += ["", f"Not checked: whether tensors are missing and tokenizers know words. {verdict.unchecked}"]
    return "\n".join(lines)


def _line(part: Part, verdict: _Verdict) -> str:
    said = [part.class_name]
    if part.kind == "model":
        elements = sum(tensor.elements for tensor in part.tensors.values())
        weights = [name for name in part.files if name.endswith(".safetensors")]
        size = bytes_text(sum(part.files[name] for name in weights))
        count = f"{len(weights)} files" if len(weights) != 1 else "1 file"
        said += [count, f"{len(part.tensors):,} tensors", f"{elements:,} parameters", size]
    wrong = len(_findings_of(part.name, verdict))
    said.append(f"{wrong} to mend" if wrong else "good")
    return ", ".join(said)


def _findings_of(part: str, verdict: _Verdict) -> list[FleetcraftError]:
    """The findings about files of one component."""
    folder = verdict.inspection.directory / part
    return [
        finding
        for finding in verdict.findings
        if finding.file is not None and Path(finding.file).is_relative_to(folder)
    ]


def _document(verdict: _Verdict) -> dict[str, Any]:
    from fleetcraft.mirror.sums import model_digest

    inspection = verdict.inspection
    return {
        "directory": str(inspection.directory),
        "pipeline": inspection.pipeline,
        "family": verdict.family,
        "digest": model_digest(verdict.files) if verdict.files else None,
        "holds": verdict.holds,
        "not_checked": verdict.unchecked,
        "components": {
            part.name: {
                "class": part.class_name,
                "bytes": sum(part.files.values()),
                "tensors": len(part.tensors),
                "findings": len(_findings_of(part.name, verdict)),
            }
            for part in inspection.parts.values()
        },
        "findings": [
            {"class": finding.failure_class, "file": str(finding.file), "text": str(finding)}
            for finding in verdict.findings
        ],
        "notes": inspection.notes,
        "files": {"verified": verdict.digests.files, "remembered": verdict.digests.remembered},
        "bytes_read": verdict.digests.read,
    }
