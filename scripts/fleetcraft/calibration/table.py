"""The frozen batch table: which batch each arm denoises with, why, and what its phases take.

A committed file. An entry is for one subject: family, model, arm, shape, media settings, hardware and stack, digests of
which it carries, so that it can't be taken for anything that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from fleetcraft.ground.digests import key_of
from fleetcraft.ground.documents import Kind, Model, explained, read
from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.files import write_text


class Subject(Model):
    """What was measured. The long digests are those of the plan's own documents."""

    family: str
    model: str = Field(description="Digest of the model's files")
    arm: str = Field(description="Digest of the arm's settings, its batch left out")
    shape: str = Field(description="WIDTHxHEIGHTxFRAMES")
    media: str = Field(description="Digest of the settings of decode and encode")
    hardware: str
    stack: str = Field(description="Digest of the pinned software, device class and settings of determinism")

    @cached_property
    def digest(self) -> str:
        return key_of(self.model_dump())


class PhaseFigures(Model):
    """What one phase took at the frozen batch; null is "not measured"."""

    seconds: float = Field(ge=0, description="A video; once a job for phases that load")
    host_mb: float | None = Field(None, ge=0, description="Peak of the process in host memory, MiB")
    device_mb: float | None = Field(None, ge=0, description="Peak in device memory, MiB")


class TrialVerdict(Model):
    """What became of one trial, and why."""

    batch: int = Field(ge=1)
    taken: bool
    reason: str


class Entry(Model):
    """One arm's frozen batch."""

    arm: str = Field(description="Name of the arm when it was measured; it decides nothing")
    subject: Subject
    digest: str = Field(description="Of the subject")
    batch: int = Field(ge=1)
    verdicts: list[TrialVerdict] = Field(min_length=1)
    advice: str | None = None
    phases: dict[str, PhaseFigures] = Field(min_length=1)
    flops: float | None = Field(None, description="Of the transformer, a sample")
    measured: dict[str, Any] = Field(description="Where and when")


class Document(Model):
    """The file."""

    format: Literal[1]
    policy: dict[str, Any] = Field(description="The limits that the batches were chosen by")
    entries: list[Entry]


_SHORT = {"family", "shape", "hardware"}
"""The parts of a subject that tell something by themselves."""

_KIND = Kind(Document, "a batch table", "config/README.md", "Make it: `snakemake calibrate`, then `fleetcraft freeze`")


@dataclass(frozen=True)
class BatchTable:
    """Entries by the digest of their subject."""

    file: Path
    entries: Mapping[str, Entry]

    @classmethod
    def read(cls, file: Path) -> BatchTable:
        """The table in `file`.

        Raises
        ------
        BadInput : it isn't there, or can't be used.
        """
        found, tree = read(file, _KIND)
        try:
            document = Document.model_validate(found)
        except ValidationError as error:
            raise explained(error, [(file, tree)], _KIND) from None
        for number, entry in enumerate(document.entries):
            if entry.digest != entry.subject.digest:
                raise BadInput(
                    "the digest of this entry is not that of its subject, which was changed by hand",
                    file=file,
                    key=f"entries.{number}.digest",
                    value=entry.digest,
                    remedy="Measure again: `snakemake calibrate`, then `fleetcraft freeze`",
                )
        return cls(file, {entry.digest: entry for entry in document.entries})

    def entry(self, subject: Subject) -> Entry | None:
        return self.entries.get(subject.digest)

    def difference(self, subject: Subject) -> str:
        """In what the entry that is nearest to `subject` differs from it; in words."""
        if not self.entries:
            return "the table is empty"
        wanted = subject.model_dump()

        def parts(entry: Entry) -> list[str]:
            found = entry.subject.model_dump()
            return [
                f"{name} ({found[name]} there, {value} here)" if name in _SHORT else name
                for name, value in wanted.items()
                if value != found[name]
            ]

        nearest = min(self.entries.values(), key=lambda entry: len(parts(entry)))
        return f"the nearest entry, {nearest.arm!r}, was measured with another {', '.join(parts(nearest))}"


def write_table(file: Path, policy: Mapping[str, Any], entries: Iterable[Entry], kept: Iterable[Entry]) -> None:
    """Write `entries` and those of `kept` that none of them replaces, in a stable order."""
    merged = {entry.digest: entry for entry in kept} | {entry.digest: entry for entry in entries}
    document = Document(
        format=1, policy=dict(policy), entries=sorted(merged.values(), key=lambda entry: (entry.arm, entry.digest))
    )
    text = yaml.safe_dump(document.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    head = (
        "# Frozen by `fleetcraft freeze` from trials of whole tasks. A protocol and not a cache: commit it, and\n"
        "# measure again, rather than edit it, where hardware, stack, shape or arm change.\n"
    )
    write_text(file, head + text)
