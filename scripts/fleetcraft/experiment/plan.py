"""The plan: the samples of an experiment, their keys, their shards, and what each stage's jobs depend on.

A key is the digest of everything that decides an artifact's bytes, each stage adding its own settings to the key of
what it reads:

    sample_id = {condition: {model, arm, sampling, batch, stack}, prompt, seed, place in its batch}
    video     = {sample_id, decode settings, encoder settings with the binary's digest}
    score     = {video, the baseline's video where the dimension compares with it, dimension, versions of the scorer,
                 digests of its weights and the device that runs them}

A video that exists already has its file's digest in the place of what would have made it: its condition is
{file's SHA-256, geometry}, and no setting of ours is added to it.

A winner of a search is a sample of the arm that it is made in, from the seed that the search has found.

So nothing stale can be reused, and going back to an old setting finds what it made. The stack holds only what can
touch pixels: a new linter invalidates nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from fleetcraft.calibration.hardware import hardware
from fleetcraft.calibration.table import BatchTable
from fleetcraft.experiment.alike import not_compared
from fleetcraft.experiment.arms import Arm
from fleetcraft.experiment.conditions import Condition, Foreign, Generated, Searched
from fleetcraft.experiment.foreign import ForeignVideos, find_videos
from fleetcraft.experiment.keys import score_key, video_key
from fleetcraft.experiment.models import Experiment
from fleetcraft.experiment.prompts import Prompt, load_prompts
from fleetcraft.experiment.refusals import (
    refuse_blind_searches,
    refuse_idle_dimensions,
    refuse_idle_seeds,
    refuse_impossible_shapes,
    refuse_unknown_actions,
    refuse_unsuited_dimensions,
)
from fleetcraft.experiment.scored import Scored
from fleetcraft.experiment.search import Searches
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.shards import Shard, SuiteShards
from fleetcraft.experiment.sources import ModelSource, refuse_own_scheduler, resolve, resolve_without_weights
from fleetcraft.experiment.verifiers import resolve_verifier
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput, FleetcraftError, MissingWeights
from fleetcraft.ground.paths import Paths
from fleetcraft.ground.toolchain import Toolchain
from fleetcraft.media.presets import EncoderSettings, encoder_settings
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.geometry import Geometry
from fleetcraft.scoring.dimensions import DIMENSIONS, Dimension
from fleetcraft.scoring.weights import find as find_weights

STACK_PACKAGES = ("torch", "diffusers", "transformers", "tokenizers", "numpy", "safetensors", "accelerate")
"""The packages whose versions can change a sample's pixels."""

DETERMINISM = {"deterministic_algorithms": True, "cpu_threads": 1, "tf32": False, "attention": "default"}
"""How the stages that run a model pin what torch would otherwise choose by machine; part of every sample's key."""


@dataclass(frozen=True)
class Sample:
    """One (arm, prompt, seed). `position` is where its shard has it, the same in every arm.

    drawn_seed : what its noise is drawn from: `seed`, unless a search has drawn another for it.
    """

    arm: str
    prompt: Prompt
    seed: int
    position: int
    sample_id: str
    drawn_seed: int


class Plan:
    """What a campaign computes. Cheap to make; keys of samples are computed as they are asked for.

    Parameters
    ----------
    experiment : validated.
    without_weights : take models for the published ones that their directories are named after, and look at no
        checkpoint. Shapes and costs are right then; keys are nobody's, and nothing can be run.

    Raises
    ------
    BadInput, MissingWeights, CorruptWeights : the experiment can't be run, found without any computing.
    """

    def __init__(self, experiment: Experiment, *, without_weights: bool = False):
        self.experiment = experiment
        self.paths = Paths(experiment.paths.scratch, experiment.paths.work, experiment.name)
        self.prompts = load_prompts(experiment.prompts)
        self.seeds = Seeds(experiment.seeds, experiment.further_seeds)
        refuse_idle_seeds(self)
        self.encoder: EncoderSettings = encoder_settings(
            experiment.encoder.preset,
            experiment.stack.machine,
            experiment.encoder.crf,
            experiment.encoder.quality,
        )
        compared = experiment.encoder_comparison
        self.compared_encoder = compared and encoder_settings(
            compared.preset, experiment.stack.machine, compared.crf, compared.quality, key="encoder_comparison"
        )
        if self.compared_encoder == self.encoder:
            raise BadInput(
                "this is the encoder of the experiment itself: there is nothing to compare",
                key="encoder_comparison",
                value=experiment.encoder.model_dump(exclude_none=True),
                remedy="Give another `preset`, `crf` or `quality`",
            )
        self.stack: dict[str, Any] = {
            "packages": Toolchain("diffusion").pinned(STACK_PACKAGES),
            "device": experiment.stack.device,
            "determinism": DETERMINISM,
        }
        if experiment.stack.hardware is not None:
            hardware(experiment.stack.hardware, "stack.hardware")
            self.stack["hardware"] = experiment.stack.hardware
        self.batch_table = None if experiment.batch_table is None else _batch_table(Path(experiment.batch_table))
        self.without_weights = without_weights
        source = resolve_without_weights if without_weights else resolve
        self.models: dict[str, ModelSource] = {name: source(name, model) for name, model in experiment.models.items()}
        self.geometry: dict[str, Geometry] = {
            name: FAMILIES[model.family].geometry_of(model.transformer, model.vae)
            for name, model in self.models.items()
        }
        refuse_impossible_shapes(self)
        if not without_weights:
            for name, arm in experiment.generated.items():
                refuse_own_scheduler(name, arm, self.models[arm.model])
        self.foreign: dict[str, ForeignVideos] = {
            name: find_videos(name, arm.source, self.prompts, self.seeds) for name, arm in experiment.foreign.items()
        }
        self.shards = SuiteShards(self.prompts, self.seeds, experiment.shard_size)
        self.verifiers = {
            name: resolve_verifier(name, verifier, without_weights=without_weights)
            for name, verifier in experiment.scoring.verifiers.items()
        }
        self.known: dict[str, Dimension] = {
            **DIMENSIONS,
            **{name: verifier.dimension for name, verifier in self.verifiers.items()},
        }
        """Every dimension that this experiment can have, its verifiers among them."""
        self.searches = Searches(self)
        self.scored = Scored(
            [self.known[name] for name in self.dimensions],
            self.arms,
            self.baseline,
            self.not_compared,
            experiment.searches,
        )
        refuse_idle_dimensions(self)
        refuse_unsuited_dimensions(self)
        refuse_unknown_actions(self)
        refuse_blind_searches(self)
        self.weights: dict[str, dict[str, str]] = {} if without_weights else self._find_weights()
        # The samples of a shard in one arm, in the order in which they are made. The cache is bounded: a large
        # campaign makes a shard's samples again rather than holding all of them.
        self.samples: Callable[[str, str], tuple[Sample, ...]] = lru_cache(maxsize=256)(self._make_samples)
        self._members_key: Callable[[str, str], str] = lru_cache(maxsize=None)(self._make_members_key)

    # ------------------------------------------------------------------ what there is

    @property
    def arms(self) -> list[str]:
        return list(self.experiment.arms)

    @property
    def made_arms(self) -> list[str]:
        """All whose videos a campaign makes, those of candidates among them."""
        return [*self.experiment.generated, *self.searches.candidates]

    @property
    def baseline(self) -> str:
        return self.experiment.baseline

    @property
    def dimensions(self) -> list[str]:
        return self.experiment.scoring.dimensions

    @cached_property
    def not_compared(self) -> dict[str, str]:
        """Arm → why it is not compared with the baseline."""
        return not_compared(self.arms, self.baseline, self.experiment.foreign.keys() - self._vouched_for)

    @property
    def remarks(self) -> list[str]:
        """What is no mistake and yet to be known before a campaign runs: sentences without a full stop."""
        found = [
            f"{arm} is not compared with {self.baseline}: {reason} (`same_encoder` in an arm's source vouches for it)"
            for arm, reason in self.not_compared.items()
        ]
        for name, search in self.experiment.searches.items():
            if search.prefer != (better := self.known[search.verifier].better):
                found.append(
                    f"{name} chooses the {search.prefer} {search.verifier}, as its `prefer` says, and the {better} is"
                    " better"
                )
        for name in self.verifiers:
            if name not in self.dimensions:
                found.append(f"the verifier {name} scores nothing: `scoring.dimensions` doesn't have it")
        for arm in self._vouched_for:
            found.append(f"{arm} was encoded as the others are by the experiment's own word")
        for arm, videos in self.foreign.items():
            found += [f"{arm}: {remark}" for remark in videos.remarks]
        for arm, dimensions in self.of_other_noise.items():
            found.append(
                f"{arm}: {', '.join(dimensions)} compare each winner with {self.baseline}'s video, which is of"
                " another noise unless the first candidate has won: they tell how far apart the two are, and nothing of"
                " their worth"
            )
        return found

    @property
    def of_other_noise(self) -> dict[str, list[str]]:
        """Searched arm → its dimensions that compare with the baseline, though winners have noise of their own."""
        compared = [name for name in self.dimensions if self.known[name].pairwise]
        return {arm: compared for arm in self.experiment.searches if compared}

    def vouched_stream(self, arm: str) -> str | None:
        """Codec and pixel format that an arm's existing videos must have for what the experiment vouches for.

        None where it vouches for nothing, or for no more than that two arms of existing videos are alike, which only
        the videos of both can contradict.
        """
        return self.encoder.stream if self.experiment.generated and arm in self._vouched_for else None

    @property
    def _vouched_for(self) -> list[str]:
        return [name for name, arm in self.experiment.foreign.items() if arm.source.same_encoder]

    def scored_dimensions(self, arm: str) -> list[str]:
        """The dimensions that the videos of an arm are scored in."""
        return self.scored.dimensions(arm)

    def settings(self, arm: str) -> Arm:
        """The settings that the samples of an arm are made with."""
        return self.experiment.generated[self.searches.made_in(arm)]

    @property
    def sample_count(self) -> int:
        """Of the experiment's arms, without the candidates of searches."""
        return len(self.arms) * self.samples_of_arm

    @property
    def samples_of_arm(self) -> int:
        return sum(len(self.seeds.of(prompt.dimensions)) for prompt in self.prompts)

    @property
    def jobs(self) -> dict[str, int]:
        """Rule → how many jobs a campaign from nothing has."""
        made = len(self.made_arms) * len(self.shards)
        scored = sum(
            len(self.scored_shards(arm, name))
            for arm in [*self.arms, *self.searches.hidden]
            for name in self.scored_dimensions(arm)
        )
        counts = {
            "plan": 1,
            "models": len(self.used_models),
            "generate": made,
            "decode": made,
            "encode": made,
            "ingest": len(self.foreign) * len(self.shards),
            "views": len(self.arms),
            "score": scored,
            "choose": len(list(self.searches.choices)) * len(self.shards),
            "tables": 1,
            "score_figure": len(self.dimensions),
            "contact_sheet": len(self.arms),
            **({"timing": 1, "latency": 1} if self.experiment.timing else {}),
            "candidate_sheet": len(self.experiment.searches),
            "search": min(1, len(self.experiment.searches)),
            "archive": 1,
        }
        return {rule: count for rule, count in counts.items() if count}

    @property
    def used_models(self) -> list[str]:
        """The models that arms name."""
        return sorted({arm.model for arm in self.experiment.generated.values()})

    @property
    def latent_shape(self) -> dict[str, tuple[int, int, int, int]]:
        """Model → [channels, frames, height, width] of one sample's latents."""
        video = self.experiment.video
        return {
            name: geometry.latent_shape(video.width, video.height, video.frames)
            for name, geometry in self.geometry.items()
        }

    def scored_samples(self, arm: str, dimension: str, shard: str) -> tuple[Sample, ...]:
        """Those whose prompts were written for `dimension`; all where the prompts are the user's own."""
        members = self.shards[shard]
        if not self._scores_any(dimension, members):
            return ()
        return tuple(
            sample for sample in self.samples(arm, shard) if self.scored.has(dimension, sample.prompt, members.further)
        )

    def scored_shards(self, arm: str, dimension: str) -> list[str]:
        """The shards in which `dimension` has something to score in `arm`."""
        if dimension not in self.scored_dimensions(arm):
            return []
        return [name for name, shard in self.shards.items() if self._scores_any(dimension, shard)]

    @property
    def timed_samples(self) -> list[tuple[str, int]]:
        """The prompts that arms are timed on, each with the first seed; none without `timing`."""
        timing = self.experiment.timing
        return [(prompt.text, self.experiment.seeds[0]) for prompt in self.prompts[: timing.prompts if timing else 0]]

    def is_scored(self, prompt: Prompt, dimension: str) -> bool:
        """Whether a prompt's videos are scored in `dimension`, where there is a baseline to compare with."""
        return self.known[dimension].suits(prompt.dimensions)

    def _scores_any(self, dimension: str, shard: Shard[Prompt]) -> bool:
        return any(self.scored.has(dimension, prompt, shard.further) for prompt in shard.prompts)

    def _find_weights(self) -> dict[str, dict[str, str]]:
        """Dimension → SHA-256 of each file of weights that it needs; only for those that need some."""
        wanted = [name for name in self.dimensions if self.known[name].weights]
        directory = self.experiment.scoring.weights
        found = {name: verifier.files for name, verifier in self.verifiers.items()}
        if not wanted:
            return found
        if directory is None:
            raise MissingWeights(
                f"{', '.join(wanted)} can't be scored without weights, and the experiment names none",
                key="scoring.weights",
                remedy="Name the directory that has them; `fleetcraft scoring doctor` shows which they are",
            )
        try:
            return found | find_weights(Path(directory), wanted)
        except FleetcraftError as finding:
            raise finding.about("scoring.weights") from None

    # ------------------------------------------------------------------ keys

    def condition(self, arm: str) -> dict[str, Any]:
        """Everything but prompt and seed that decides the latents of an arm's samples."""
        return self.conditions[arm].document

    def _condition(self, arm: str) -> Condition:
        video = self.experiment.video
        if arm in self.foreign:
            return Foreign.of(self.foreign[arm].digests, video.model_dump(mode="json"))
        if arm in self.experiment.searches:
            search = self.experiment.searches[arm]
            return Searched(search.model_dump(mode="json"), self._condition(search.recommit))
        settings = self.experiment.generated[arm]
        model = self.models[settings.model]
        family = FAMILIES[model.family]
        sampling = {"width": video.width, "height": video.height, "frames": video.frames}
        return Generated(
            {
                "model": model.digest,
                "arm": settings.condition(),
                "sampling": sampling | ({"fps": video.fps} if family.paced else {}),
                "batch": settings.batch,
                "stack": self.stack,
                # Not needed for latents, but a place that only this family's arms have: nobody else's keys change.
                **({"decode": dict(family.decode)} if family.decode else {}),
            }
        )

    def video_settings(self, arm: str) -> dict[str, Any]:
        """What decode and encode add to the keys of an arm's samples; nothing where the videos exist already."""
        if arm in self.foreign:
            return {}
        encoder = {**self.encoder.as_json(), "fps": self.experiment.video.fps}
        return {"decode": self.experiment.decode.as_key(), "encoder": encoder}

    def timing_settings(self) -> dict[str, int] | None:
        """How arms are timed; None where they aren't."""
        return None if self.experiment.timing is None else self.experiment.timing.model_dump()

    def scorer_settings(self, dimension: str) -> dict[str, Any]:
        """What a scorer adds to a video's key."""
        known = self.known[dimension]
        machine = self.experiment.stack.machine
        packages = Toolchain(known.toolchain, machine).pinned((*known.packages_on(machine), *known.provided))
        ours = {} if known.version is None else {"version": known.version, "ffmpeg_sha256": self.encoder.ffmpeg_sha256}
        weighed = {"weights": self.weights.get(dimension), "place": self._scored_on} if known.has_model else {}
        verifier = self.verifiers[dimension].key if dimension in self.verifiers else {}
        reader = {} if known.reader_on(machine) is None else {"reader": known.reader_on(machine)}
        # Libraries may round otherwise there. What is ours has the digest of that machine's ffmpeg instead.
        elsewhere = {} if machine == "x86_64" or ours else {"machine": machine}
        return {"dimension": dimension, "packages": packages, **reader, **ours, **weighed, **verifier, **elsewhere}

    @property
    def _scored_on(self) -> dict[str, str]:
        """Where models of scorers run: they give other last digits elsewhere."""
        return {name: self.stack[name] for name in ("device", "hardware") if name in self.stack}

    def video_key(self, sample: Sample) -> str:
        settings = self._video_settings_key[self.searches.made_in(sample.arm)]
        return video_key(sample.sample_id, settings)

    def score_key(self, sample: Sample, dimension: str) -> str:
        baseline = self.video_key(self.twin(sample)) if self.known[dimension].pairwise else None
        return score_key(self.video_key(sample), baseline, self._scorer_settings_key[dimension])

    def twin(self, sample: Sample) -> Sample:
        """The baseline's sample of the same prompt and seed."""
        return self._sample(self.baseline, sample.prompt, sample.seed, sample.position, sample.seed)

    # ------------------------------------------------------------------ what a job depends on
    # Snakemake reruns a job when its params change. These digests are those params: each covers exactly what decides
    # the job's result, by membership of the shard and by settings, and nothing else.

    def generate_digest(self, arm: str, shard: str) -> str:
        return self._members_key(arm, shard)

    def videos_digest(self, arm: str, shard: str) -> str:
        return key_of([self._members_key(arm, shard), self._video_settings_key[self.searches.made_in(arm)]])

    def score_digest(self, arm: str, dimension: str, shard: str) -> str:
        pair = self.videos_digest(self.baseline, shard) if self.known[dimension].pairwise else None
        return key_of([self.videos_digest(arm, shard), pair, self._scorer_settings_key[dimension]])

    def timing_digest(self) -> str:
        arms = {arm: [self.condition(arm), self._video_settings_key[arm]] for arm in self.experiment.generated}
        return key_of([arms, self.timing_settings(), self.timed_samples])

    @cached_property
    def digest(self) -> str:
        """The digest of the whole plan: of everything that decides a number of this campaign."""
        return key_of(
            {
                "arms": {arm: self.condition(arm) for arm in self.arms},
                "baseline": self.baseline,
                "prompts": [[prompt.text, sorted(prompt.dimensions)] for prompt in self.prompts],
                "seeds": self.seeds.base,
                **self._further_seeds,
                "videos": {arm: self.video_settings(arm) for arm in self.arms},
                "scorers": [self.scorer_settings(dimension) for dimension in self.dimensions],
                "shard_size": self.experiment.shard_size,
                **({"timing": timing} if (timing := self.timing_settings()) else {}),
                **({"same_encoder": vouched} if (vouched := self._vouched_for) else {}),
            }
        )

    # ------------------------------------------------------------------ as a document

    def document(self) -> dict[str, Any]:
        """The plan as `plan.json` holds it: enough to recompute every sample's id and every table from records."""
        return {
            "format": 1,
            "digest": self.digest,
            "name": self.experiment.name,
            "baseline": self.baseline,
            "conditions": {arm: self.condition(arm) for arm in self.arms},
            "prompts": [{"text": prompt.text, "dimensions": sorted(prompt.dimensions)} for prompt in self.prompts],
            "seeds": self.seeds.base,
            **self._further_seeds,
            "videos": {arm: self.video_settings(arm) for arm in self.arms},
            "scorers": {dimension: self.scorer_settings(dimension) for dimension in self.dimensions},
            "timing": self.timing_settings(),
            "experiment": self.experiment.model_dump(mode="json"),
        }

    @property
    def _further_seeds(self) -> dict[str, Any]:
        """Absent where there are none, so that the plans of other experiments stay what they were."""
        return {"further_seeds": self.seeds.further} if self.seeds.further else {}

    # ------------------------------------------------------------------ cached parts

    @cached_property
    def _video_settings_key(self) -> dict[str, str]:
        return {arm: key_of(self.video_settings(arm)) for arm in self.arms}

    @cached_property
    def _scorer_settings_key(self) -> dict[str, str]:
        return {dimension: key_of(self.scorer_settings(dimension)) for dimension in self.dimensions}

    @cached_property
    def conditions(self) -> dict[str, Condition]:
        """Arm → what makes its samples."""
        return {arm: self._condition(arm) for arm in self.arms}

    def _make_samples(self, arm: str, shard: str) -> tuple[Sample, ...]:
        drawn = self.searches.drawn(arm, shard) if arm in self.searches.candidates else {}
        return tuple(
            self._sample(arm, prompt, seed, position, drawn.get((prompt.text, seed), seed))
            for position, (prompt, seed) in enumerate(self.shards[shard].pairs)
        )

    def _make_members_key(self, arm: str, shard: str) -> str:
        choice = self.searches.before(arm)
        if choice is not None:
            condition = self.conditions[self.searches.made_in(arm)]
            place = self.searches.candidates[arm].place
            return key_of([self.searches.digest(choice, shard), place, key_of(condition.document)])
        return key_of([sample.sample_id for sample in self.samples(arm, shard)])

    def _sample(self, arm: str, prompt: Prompt, seed: int, position: int, drawn_seed: int) -> Sample:
        condition = self.conditions[arm if arm in self.conditions else self.searches.made_in(arm)]
        sample_id = condition.sample_id(prompt.text, drawn_seed, position)
        return Sample(arm, prompt, seed, position, sample_id, drawn_seed)


def _batch_table(file: Path) -> BatchTable:
    try:
        return BatchTable.read(file)
    except FleetcraftError as error:
        raise error.about("batch_table") from None
