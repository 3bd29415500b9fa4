"""What can be said of a checkpoint by listing its directory and reading its JSON and the headers of its weights.

A plan does this before anything is asked of a cluster, in every job: a few kilobytes a file are read, and no weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleetcraft.ground.errors import BadInput, CorruptWeights, FleetcraftError, MissingWeights
from fleetcraft.mirror.headers import Header, Tensor, read_header
from fleetcraft.mirror.listing import Listing, list_files
from fleetcraft.mirror.reading import read_json

INDEX = "model_index.json"
_CONFIG = "config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"

_TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "vocab.json")
_NAMED = 5
"""How many of several names an error shows."""


@dataclass
class Part:
    """A component of a pipeline, as model_index.json names it, or a model on its own, whose name is empty.

    tensors : of the weights that the pipeline loads, by name; empty for what has none.
    """

    name: str
    library: str
    class_name: str
    files: dict[str, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def path(self, file: str) -> str:
        """Where a file of it is, relative to the checkpoint's directory."""
        return f"{self.name}/{file}" if self.name else file

    @property
    def kind(self) -> Literal["tokenizer", "scheduler", "model", "other"]:
        if "Tokenizer" in self.class_name:
            return "tokenizer"
        if "Scheduler" in self.class_name:
            return "scheduler"
        # What prepares images has no weights.
        has_weights = self.library in _WEIGHTS and not self.class_name.endswith(("Processor", "FeatureExtractor"))
        return "model" if has_weights else "other"


_WEIGHTS = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}
"""Library → what the files are called from which it loads a model's weights."""


@dataclass
class Inspection:
    """A checkpoint as far as it was looked at.

    pipeline : the class that model_index.json names.
    findings : everything that is wrong, in the order of the components; none in a checkpoint that is whole.
    notes : what is odd and does no harm.
    """

    directory: Path
    pipeline: str
    sizes: dict[str, int]
    parts: dict[str, Part] = field(default_factory=dict)
    findings: list[FleetcraftError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inspect(directory: Path) -> Inspection:
    """Look at the checkpoint in `directory`.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : this is no checkpoint at all. What is wrong in one, the inspection has.
    """
    index = _model_index(directory)
    listing = list_files(directory)
    inspection = Inspection(directory, str(index.get("_class_name")), listing.sizes, findings=listing.findings)
    for name, value in index.items():
        if isinstance(value, list) and len(value) == 2 and all(isinstance(word, str) for word in value):
            prefix = f"{name}/"
            files = {file: size for file, size in listing.sizes.items() if file.startswith(prefix)}
            library, class_name = value
            part = Part(name, library, class_name, files)
            inspection.parts[name] = part
            inspection.findings.extend(_look_at(directory, part, listing, inspection.notes))
    return inspection


def inspect_model(directory: Path, class_name: str, processor: str) -> Inspection:
    """Look at one model of transformers that is on its own in `directory`, with its tokenizer and a `processor` file.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : this is no such model at all. What is wrong in one, the inspection has.
    """
    _refuse_no_directory(directory, _CONFIG)
    config = read_json(directory / _CONFIG)
    architectures = config.get("architectures") or []
    if class_name not in architectures:
        raise BadInput(
            f"this isn't a model of the class {class_name}",
            file=directory / _CONFIG,
            key="architectures",
            value=architectures,
            remedy="Name the directory of one, or choose the type that loads this one",
        )
    listing = list_files(directory)
    inspection = Inspection(directory, class_name, listing.sizes, findings=listing.findings)
    inspection.parts["model"] = model = Part("", "transformers", class_name, listing.sizes)
    for settings in (processor, _TOKENIZER_CONFIG):
        if settings not in listing.wrong:
            inspection.findings.extend(_errors_of(directory / settings))
    inspection.findings.extend(_look_at_tokenizer(directory, listing.sizes.keys() | listing.wrong))
    inspection.findings.extend(_look_at_weights(directory, model, listing, inspection.notes))
    return inspection


def distinct(findings: Iterable[FleetcraftError]) -> list[FleetcraftError]:
    """`findings` without those that say once more that a file is missing."""
    missing: set[str] = set()
    kept = []
    for finding in findings:
        if isinstance(finding, MissingWeights) and finding.file is not None:
            if str(finding.file) in missing:
                continue
            missing.add(str(finding.file))
        kept.append(finding)
    return kept


def named(names: Iterable[str]) -> str:
    """The first few of `names`, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _model_index(directory: Path) -> dict[str, Any]:
    _refuse_no_directory(directory, INDEX)
    if (directory / INDEX).exists():
        return read_json(directory / INDEX)
    below = sorted([*directory.glob(f"*/{INDEX}"), *directory.glob(f"snapshots/*/{INDEX}")])
    raise MissingWeights(
        f"there is no {INDEX} here, so this is no checkpoint as diffusers saves one",
        file=directory,
        remedy=f"Perhaps {below[0].parent} was meant" if below else "Name the directory that has it",
    )


def _refuse_no_directory(directory: Path, wanted: str) -> None:
    if directory.is_dir():
        return
    if directory.exists():
        raise BadInput(
            "this is a file and no model directory", file=directory, remedy=f"Name the directory that has {wanted}"
        )
    raise MissingWeights(
        "there is no such model directory", file=directory, remedy="Mirror the checkpoint there, or correct the path"
    )


def _look_at(directory: Path, part: Part, listing: Listing, notes: list[str]) -> Iterator[FleetcraftError]:
    """What is wrong with one component."""
    folder = directory / part.name
    if part.name in listing.wrong:
        return
    if not folder.is_dir():
        yield MissingWeights(f"the component {part.name!r} is missing", file=folder, remedy="Mirror it again")
        return
    settings = {"tokenizer": _TOKENIZER_CONFIG, "scheduler": "scheduler_config.json", "model": _CONFIG}
    if part.kind in settings and part.path(settings[part.kind]) not in listing.wrong:
        yield from _errors_of(folder / settings[part.kind])
    if part.kind == "tokenizer":
        here = (Path(file).name for file in (*part.files, *listing.wrong) if file.startswith(f"{part.name}/"))
        yield from _look_at_tokenizer(folder, here)
    elif part.kind == "model":
        yield from _look_at_weights(folder, part, listing, notes)


def _look_at_tokenizer(folder: Path, here: Iterable[str]) -> Iterator[FleetcraftError]:
    """`here` are the names of what there is, whole or not."""
    if set(here).isdisjoint(_TOKENIZER_FILES):
        yield MissingWeights(
            f"the tokenizer has none of {', '.join(_TOKENIZER_FILES)}: every prompt would become unknown tokens",
            file=folder,
            remedy="Mirror the tokenizer's files again",
        )


def _errors_of(file: Path) -> Iterator[FleetcraftError]:
    try:
        read_json(file)
    except FleetcraftError as finding:
        yield finding


def _look_at_weights(folder: Path, part: Part, listing: Listing, notes: list[str]) -> Iterator[FleetcraftError]:
    headers: dict[str, Header] = {}
    for relative, size in part.files.items():
        if relative.endswith(".safetensors"):
            try:
                header = headers[Path(relative).name] = read_header(folder / relative.removeprefix(part.path("")))
                header.check(size)
            except FleetcraftError as finding:
                yield finding
    base = _WEIGHTS[part.library]
    single, index = f"{base}.safetensors", f"{base}.safetensors.index.json"
    # Where there are both, diffusers takes the index and transformers the single file.
    first, second = (index, single) if part.library == "diffusers" else (single, index)
    chosen = next((name for name in (first, second) if part.path(name) in part.files), None)
    if chosen == single:
        part.tensors = headers[single].tensors if single in headers else {}
    elif chosen == index:
        yield from _look_at_shards(folder / index, part, listing, headers, notes)
    elif listing.wrong.isdisjoint({part.path(single), part.path(index)}):
        others = [Path(name).name for name in part.files if name.endswith((".safetensors", ".bin", ".pt", ".ckpt"))]
        found = f"; there is {named(others)}" if others else ""
        yield MissingWeights(
            f"there are no safetensors weights here that {part.library} loads: neither {single} nor {index}{found}",
            file=folder,
            remedy="Mirror them again",
        )


def _look_at_shards(
    index: Path, part: Part, listing: Listing, headers: dict[str, Header], notes: list[str]
) -> Iterator[FleetcraftError]:
    """Every tensor of the index is in the shard that it names, and no shard has others."""
    try:
        document = read_json(index)
        weight_map = document["weight_map"]
        wanted: dict[str, set[str]] = {}
        for tensor, shard in weight_map.items():
            wanted.setdefault(shard, set()).add(tensor)
    except FleetcraftError as finding:
        yield finding
        return
    except (KeyError, TypeError, AttributeError):
        yield CorruptWeights("this index doesn't say which tensor is in which file", file=index, remedy="Copy it again")
        return
    for shard, tensors in sorted(wanted.items()):
        if part.path(shard) in listing.wrong or (part.path(shard) in part.files and shard not in headers):
            continue  # what is wrong with it was found before
        if shard not in headers:
            yield MissingWeights(
                f"the shard is missing that {index.name} lists", file=index.parent / shard, remedy="Mirror it again"
            )
            continue
        there = headers[shard].tensors
        lacking, unknown = sorted(tensors - there.keys()), sorted(there.keys() - tensors)
        if lacking or unknown:
            said = [f"it lacks {named(lacking)}"] if lacking else []
            said += [f"the index doesn't list {named(unknown)}"] if unknown else []
            yield CorruptWeights(
                f"this shard hasn't the tensors that {index.name} says: {'; '.join(said)}",
                file=index.parent / shard,
                remedy="Mirror the shards and their index again, from one revision",
            )
        part.tensors |= there
    total = document.get("metadata", {}).get("total_size") if isinstance(document.get("metadata"), dict) else None
    held = sum(tensor.end - tensor.start for tensor in part.tensors.values())
    # No loader goes by it, and published checkpoints have it wrong after a change of dtype.
    if total is not None and total != held and wanted.keys() <= headers.keys():
        notes.append(f"{part.path(index.name)} says that the shards hold {total} bytes of tensors; they hold {held:,}")
