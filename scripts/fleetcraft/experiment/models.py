"""What an experiment file may say.

These models are the single source: `config/schema.json` is generated from them, and errors name their keys. Only what
decides pixels and scores belongs here; threads, memory and partitions belong to profiles.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from fleetcraft.experiment.arms import AnyArm, Arm, ForeignArm, Search, SearchedArm, attention_problem
from fleetcraft.experiment.decoding import Decode
from fleetcraft.ground.documents import Model
from fleetcraft.ground.errors import nearest
from fleetcraft.ground.machine import Architecture, architecture
from fleetcraft.pipelines import cache_support, schedulers
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.scoring.dimensions import DIMENSIONS, PROXY, STATIC_FILTER
from fleetcraft.scoring.vbench_dimensions import VBENCH
from fleetcraft.scoring.verifiers import VERIFIERS

T = TypeVar("T")

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
"""A name that is also a directory: letters, digits, underscore, dot and hyphen."""


def _without_duplicates(values: list[T]) -> list[T]:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]!r} is given twice")
    return values


SeedList = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1), AfterValidator(_without_duplicates)
]


class Roots(Model):
    """Where a campaign may write. Environment variables are expanded; relative paths start at the working directory."""

    scratch: str = Field(description="Fast, large, may be purged: the store, manifests, frames, logs")
    work: str = Field(description="Small and lasting: plan, tables, figures, report, evidence")


class Stack(Model):
    """The pinned software and hardware that make the samples: declared here, verified where a stage runs."""

    environment: Literal["envs/diffusion.yaml"] = Field(
        "envs/diffusion.yaml", description="The definition of the tool chain that generates, decodes and encodes"
    )
    device: Literal["cpu", "cuda"] = Field("cuda", description="Device class that denoises and decodes")
    hardware: str | None = Field(
        None,
        description="Accelerator of the nodes, a name in resources/hardware.yaml: verified where a stage runs, and what"
        " a batch table is for",
    )
    machine: Architecture = Field(
        default_factory=architecture,
        description="Processor architecture of the nodes, which decides the ffmpeg binary and what reads videos for"
        " VBench; by default this machine's",
    )


class Source(Model):
    """Where a model comes from: built from a seed (`tiny`), or loaded from a checkpoint's directory (`path`)."""

    tiny: Literal[True] | None = Field(None, description="Build a tiny model with random weights, to try things out")
    seed: int | None = Field(None, ge=0, description="Seed of the tiny model's weights (default 0)")
    path: str | None = Field(None, description="Directory of a checkpoint, as diffusers saves it")
    sha256sums: str | None = Field(
        None, description="List of its files' SHA-256, as sha256sum prints it (default: SHA256SUMS in the directory)"
    )

    @model_validator(mode="after")
    def _either_tiny_or_path(self) -> Source:
        if (self.tiny is None) == (self.path is None):
            raise ValueError("give either `tiny: true` or `path: DIRECTORY`")
        if self.path is None and self.sha256sums is not None:
            raise ValueError("`sha256sums` goes with `path`")
        if self.path is not None and self.seed is not None:
            raise ValueError("`seed` goes with `tiny`")
        return self


class VideoModel(Model):
    """A model under comparison."""

    family: str = Field(description="Which pipeline loads and runs it", json_schema_extra={"enum": [*sorted(FAMILIES)]})
    source: Source

    @field_validator("family")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in FAMILIES:
            raise ValueError(f"no family is named {name!r}. {nearest(name, FAMILIES)}")
        return name


class Prompts(Model):
    """The prompts of a campaign: a suite that ships with Fleetcraft, or a text file with one prompt a line."""

    suite: Literal["vbench"] | None = Field(None, description="A suite under resources/prompts")
    dimensions: list[str] | None = Field(None, min_length=1, description="Only the suite's prompts of these dimensions")
    file: str | None = Field(
        None, description="A text file with one prompt a line; empty lines and # comments are skipped"
    )
    limit: int | None = Field(None, ge=1, description="Only the first so many prompts")
    long: Literal["refuse", "cut"] = Field(
        "refuse", description="What becomes of a prompt that is longer than a model's text encoder takes"
    )

    @model_validator(mode="after")
    def _either_suite_or_file(self) -> Prompts:
        if (self.suite is None) == (self.file is None):
            raise ValueError("give either `suite: vbench` or `file: PROMPTS.txt`")
        if self.file is not None and self.dimensions is not None:
            raise ValueError("`dimensions` goes with `suite`")
        return self


class Video(Model):
    """The geometry of every video of the campaign."""

    width: int = Field(ge=2, description="Pixels")
    height: int = Field(ge=2, description="Pixels")
    frames: int = Field(ge=2)
    fps: int = Field(ge=1, le=240, description="Frames per second, as written into the file")

    @field_validator("width", "height")
    @classmethod
    def _even(cls, pixels: int) -> int:
        if pixels % 2:
            raise ValueError(f"yuv420p video needs even sizes; use {pixels - 1} or {pixels + 1}")
        return pixels


class Encoder(Model):
    """The one encoder of the campaign: part of the protocol, not presentation."""

    preset: Name = Field("h264-crf18", description="A preset in resources/encoders.yaml")
    crf: int | None = Field(
        None, ge=0, le=51, description="Another constant rate factor than the preset's; lower is better"
    )
    quality: float | None = Field(
        None, ge=1, le=10, description="Another quality than the preset's, as imageio counts it; higher is better"
    )


class EncoderComparison(Encoder):
    """Another encoder, to be compared with the campaign's on the same frames by `snakemake encoder_comparison`."""

    preset: Name = Field(description="A preset in resources/encoders.yaml")
    arm: str | None = Field(None, description="The arm whose frames are encoded by both; by default the baseline")
    limit: int | None = Field(None, ge=1, description="Only the first so many prompts")


class Verifier(Model):
    """A model that scores how well a video shows its prompt, loaded from a directory; a dimension of the user's own."""

    type: str = Field(description="Which code loads and runs it", json_schema_extra={"enum": [*sorted(VERIFIERS)]})
    path: str = Field(description="Directory of the model, as transformers saves it, with its tokenizer")
    sha256sums: str | None = Field(
        None, description="List of its files' SHA-256, as sha256sum prints it (default: SHA256SUMS in the directory)"
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Of its weights and activations")
    frames: int | None = Field(
        None, ge=1, description="How many frames of a video it reads, where its own config doesn't say (default 8)"
    )

    @field_validator("type")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in VERIFIERS:
            raise ValueError(f"no type of verifier is named {name!r}. {nearest(name, VERIFIERS)}")
        return name


class Scoring(Model):
    """Which scores are computed for every video."""

    verifiers: dict[Name, Verifier] = Field({}, description="Models that score, by names that `dimensions` can have")
    dimensions: list[str] = Field(
        min_length=1,
        description="Names of dimensions, and of verifiers",
        json_schema_extra={"items": {"anyOf": [{"enum": [*sorted(DIMENSIONS)]}, {"type": "string"}]}},
    )
    weights: str | None = Field(
        None, description="Directory of the weights that dimensions need, laid out as VBench's own cache"
    )

    @field_validator("verifiers")
    @classmethod
    def _own_names(cls, verifiers: dict[str, Verifier]) -> dict[str, Verifier]:
        for name in verifiers:
            if name in DIMENSIONS or name in VBENCH or name.startswith(PROXY):
                raise ValueError(f"{name!r} is the name of a dimension, whose scores a verifier's must not pass for")
        return verifiers

    @field_validator("dimensions")
    @classmethod
    def _known_once(cls, names: list[str], info: ValidationInfo) -> list[str]:
        known = [*DIMENSIONS, *info.data.get("verifiers", {})]
        for name in names:
            # Verifiers that aren't valid themselves are complained of first.
            if name not in known and "verifiers" in info.data:
                raise ValueError(f"{name!r} is no dimension that can be scored. {nearest(name, known)}")
        return _without_duplicates(names)


class Timing(Model):
    """A timed pass: exclusive on its node, one sample at a time, arms taking turns. Bulk generation is never timed."""

    prompts: int = Field(4, ge=1, description="The first so many prompts, each with the first seed")
    warmup: int = Field(1, ge=0, description="Rounds of every prompt that are recorded and not counted")
    repeats: int = Field(3, ge=1, description="Rounds that count; each runs every arm once")


class Calibration(Model):
    """Trials of whole tasks, each arm at each batch: `snakemake calibrate` runs them, `fleetcraft freeze` decides."""

    batches: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        [1, 2, 4], min_length=1, description="Batches to try; arms with a cache are tried at 1 alone"
    )


class Experiment(Model):
    """An experiment: everything that decides the pixels and the scores of a campaign."""

    name: Name = Field(description="Names the campaign's directories under scratch and work")
    paths: Roots
    stack: Stack = Stack()
    models: dict[Name, VideoModel] = Field({}, description="The models that the arms name")
    arms: dict[Name, AnyArm] = Field(min_length=1)
    baseline: str = Field(description="The arm that the others are compared with, pair by pair")
    prompts: Prompts
    seeds: SeedList = Field(description="One video a prompt and seed")
    further_seeds: dict[str, SeedList] = Field(
        {}, description="Dimension of the suite → seeds that its prompts have besides, for videos scored in it alone"
    )
    video: Video
    decode: Decode = Decode()
    encoder: Encoder = Encoder()
    encoder_comparison: EncoderComparison | None = Field(
        None, description="Another encoder to measure the campaign's against, by a target of its own"
    )
    scoring: Scoring
    timing: Timing | None = Field(None, description="Latencies, from passes of their own; null times nothing")
    calibration: Calibration = Calibration()
    batch_table: str | None = Field(None, description="The frozen batches that arms with a batch above 1 need")
    shard_size: int = Field(16, ge=1, le=10_000, description="Samples that one job takes at most")

    @property
    def generated(self) -> dict[str, Arm]:
        """The arms whose videos a model makes, one a prompt and seed."""
        return {name: arm for name, arm in self.arms.items() if isinstance(arm, Arm)}

    @property
    def searches(self) -> dict[str, Search]:
        """The arms whose videos are found by searching."""
        return {name: arm.search for name, arm in self.arms.items() if isinstance(arm, SearchedArm)}

    @property
    def foreign(self) -> dict[str, ForeignArm]:
        """The arms whose videos exist already."""
        return {name: arm for name, arm in self.arms.items() if isinstance(arm, ForeignArm)}

    @model_validator(mode="after")
    def _further_seeds_are_scored(self) -> Experiment:
        if self.further_seeds and self.prompts.suite is None:
            raise ValueError(
                "@further_seeds: prompts from a file are for no dimension in particular; give their seeds in `seeds`"
            )
        scored = {DIMENSIONS[name].suited for name in self.scoring.dimensions if name in DIMENSIONS}
        for name, seeds in self.further_seeds.items():
            if name not in VBENCH:
                raise ValueError(f"@further_seeds.{name}: the suite has no such dimension. {nearest(name, VBENCH)}")
            if repeated := {*seeds} & {*self.seeds}:
                raise ValueError(
                    f"@further_seeds.{name}: {min(repeated)} is one of `seeds` already; these are the seeds besides"
                )
            if name not in scored:
                raise ValueError(
                    f"@further_seeds.{name}: videos of these seeds are scored in this dimension alone, and"
                    " `scoring.dimensions` doesn't have it; add it there, or leave these seeds out"
                )
        if STATIC_FILTER in self.scoring.dimensions and "temporal_flickering" not in self.scoring.dimensions:
            raise ValueError(
                f"@scoring.dimensions: {STATIC_FILTER} says which videos count in temporal_flickering, which isn't"
                " scored; add it, or leave the filter out"
            )
        return self

    @model_validator(mode="after")
    def _names_resolve(self) -> Experiment:
        # Each message opens with the key it is about: a validator of the whole model has no location of its own.
        for name, arm in self.generated.items():
            if arm.model not in self.models:
                raise ValueError(
                    f"@arms.{name}.model: no model is named {arm.model!r}. {nearest(arm.model, self.models)}"
                )
        if self.baseline not in self.arms:
            raise ValueError(f"@baseline: no arm is named {self.baseline!r}. {nearest(self.baseline, self.arms)}")
        if self.encoder_comparison is not None:
            arm_name = self.encoder_comparison.arm or self.baseline
            if arm_name not in self.arms:
                raise ValueError(
                    f"@encoder_comparison.arm: no arm is named {arm_name!r}. {nearest(arm_name, self.generated)}"
                )
            if arm_name not in self.generated:
                why = (
                    "are found by a search; compare on the frames of the arm that it recommits in"
                    if arm_name in self.searches
                    else "exist already, without the frames that they were encoded from"
                )
                raise ValueError(
                    f"@encoder_comparison.arm: the videos of {arm_name!r} {why}. {nearest('', self.generated)}"
                )
        for name, search in self.searches.items():
            self._refuse_impossible_search(name, search)
        return self

    @model_validator(mode="after")
    def _names_are_apart(self) -> Experiment:
        lowered = Counter(name.lower() for name in self.arms)
        for name in self.arms:
            if lowered[name.lower()] > 1:
                raise ValueError(f"@arms.{name}: two arms differ only in case, which some filesystems can't keep apart")
        return self

    @model_validator(mode="after")
    def _sections_agree(self) -> Experiment:
        if self.stack.hardware is not None and self.stack.device == "cpu":
            raise ValueError("@stack.hardware: a CPU is no accelerator; leave it out, or declare `device: cuda`")
        if self.timing is not None and not self.generated:
            raise ValueError("@timing: no arm is generated, so there is nothing to time; leave `timing` out")
        return self

    @model_validator(mode="after")
    def _arms_suit_their_families(self) -> Experiment:
        for name, arm in self.generated.items():
            family = self.models[arm.model].family
            if arm.negative_prompt and FAMILIES[family].guidance == "embedded":
                raise ValueError(
                    f"@arms.{name}.negative_prompt: guidance is an input of the family {family}'s transformer,"
                    " which leaves no place for a negative prompt; leave it empty"
                )
            _refuse_misfits(name, arm, family)
            if arm.steps < (fewest := FAMILIES[family].fewest_steps):
                raise ValueError(f"@arms.{name}.steps: the pipeline of {family} needs {fewest} at least")
            if (problem := attention_problem(arm, family, self.stack.device)) is not None:
                raise ValueError(f"@arms.{name}.attention: {problem}; choose another, or leave it to torch")
            if arm.batch > self.shard_size:
                raise ValueError(
                    f"@arms.{name}.batch: batches are cut from shards, and a shard has at most {self.shard_size}"
                    " samples; raise `shard_size`, best to many times the batch"
                )
        return self

    @model_validator(mode="after")
    def _shapes_suit_their_families(self) -> Experiment:
        for name in sorted({arm.model for arm in self.generated.values()}):
            known = FAMILIES[self.models[name].family]
            shape = (self.video.width, self.video.height, self.video.frames)
            for section, misfit in (
                ("video", known.geometry.problem(*shape)),
                ("decode", self.decode.problem(known, *shape)),
            ):
                if misfit is not None:
                    key, text = misfit
                    raise ValueError(f"@{section}.{key}: {text} (model {name!r}, family {self.models[name].family})")
        return self

    def _refuse_impossible_search(self, name: str, search: Search) -> None:
        """What a search names that can't take the part that it is to play."""
        if name == self.baseline:
            raise ValueError(
                f"@baseline: {name!r} is found by a search; compare it with an arm that isn't, best with"
                f" {search.recommit!r}"
            )
        places = {f"rounds.{number}.arm": one.arm for number, one in enumerate(search.rounds)}
        for key, arm_name in {"recommit": search.recommit, **places}.items():
            arm = self.generated.get(arm_name)
            if arm is None:
                raise ValueError(
                    f"@arms.{name}.search.{key}: no generated arm is named {arm_name!r}."
                    f" {nearest(arm_name, self.generated)}"
                )
            if arm.batch > 1:
                raise ValueError(
                    f"@arms.{name}.search.{key}: {arm_name!r} has a batch of {arm.batch}, and candidates are made one"
                    " by one, for others survive in every round; name an arm with a batch of 1"
                )
            if arm.model != self.generated[search.recommit].model:
                raise ValueError(
                    f"@arms.{name}.search.{key}: {arm_name!r} is of the model {arm.model!r}, and {search.recommit!r}"
                    f" of {self.generated[search.recommit].model!r}: a seed of one says nothing of the other's video;"
                    " name arms of one model"
                )
        if search.verifier not in self.scoring.dimensions:
            raise ValueError(
                f"@arms.{name}.search.verifier: {search.verifier!r} is none of `scoring.dimensions`, in which the"
                f" winner is scored again. {nearest(search.verifier, self.scoring.dimensions)}"
            )
        known = DIMENSIONS.get(search.verifier)
        if known is not None and known.pairwise:
            raise ValueError(
                f"@arms.{name}.search.verifier: {search.verifier} compares with the baseline's video of the same seed,"
                " which candidates of other seeds don't have; choose by another dimension"
            )


def _refuse_misfits(name: str, arm: Arm, family: str) -> None:
    """What an arm chooses that its family doesn't have, or that could never save anything."""
    if (misfit := schedulers.problem(family, arm.scheduler, arm.flow_shift)) is not None:
        raise ValueError(f"@arms.{name}.{misfit[0]}: {misfit[1]}")
    if (cache := arm.cache) is not None:
        changed = {key for key, field in type(cache).model_fields.items() if getattr(cache, key) != field.default}
        misfit = cache_support.problem(cache.model_dump(), changed, family, arm.steps, arm.guidance)
        if misfit is not None:
            raise ValueError(f"@arms.{name}.cache.{misfit[0]}: {misfit[1]}")
