"""From the plan to the description of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fleetcraft.calibration.hardware import hardware
from fleetcraft.experiment.encoder_comparison import Comparison
from fleetcraft.experiment.plan import STACK_PACKAGES, Plan, Sample
from fleetcraft.experiment.search import Choice
from fleetcraft.ground.digests import key_of
from fleetcraft.ground.errors import BadInput
from fleetcraft.scoring.dimensions import has_decord
from fleetcraft.stages.job import Job

ENCODER_PACKAGES = ("imageio-ffmpeg", "numpy")
CONTACT_SHEET_ROWS = 8
CONTACT_SHEET_CANDIDATES = 7


def describe(plan: Plan, stage: str, wildcards: Mapping[str, str]) -> Job:
    """The job of `stage` that the wildcards of its rule name."""
    return _DESCRIPTIONS[stage](plan, **wildcards)


def _models(plan: Plan, model: str) -> Job:
    source = plan.models[model]
    return Job(
        "models",
        "diffusion",
        STACK_PACKAGES,
        plan.paths.store,
        plan.paths.model(model),
        settings={
            "model": model,
            "family": source.family,
            "digest": source.digest,
            "directory": model_directory(plan, model),
            "tiny": source.path is None,
            "seed": source.seed,
            "files": source.files,
        },
    )


def _generate(plan: Plan, arm: str, shard: str) -> Job:
    settings = plan.settings(arm)
    return Job(
        "generate",
        "diffusion",
        STACK_PACKAGES,
        plan.paths.store,
        plan.paths.latents(arm, shard),
        samples=tuple(_labels(sample) for sample in plan.samples(arm, shard)),
        settings={
            **_model_settings(plan, settings.model),
            "arm": plan.searches.made_in(arm),
            "shape": plan.latent_shape[settings.model],
            "batch": settings.batch,
            "long_prompts": plan.experiment.prompts.long,
            "denoise": _denoise_settings(plan, arm),
        },
    )


def _decode(plan: Plan, arm: str, shard: str) -> Job:
    video = plan.experiment.video
    return Job(
        "decode",
        "diffusion",
        STACK_PACKAGES,
        plan.paths.store,
        plan.paths.frames(arm, shard),
        samples=tuple(
            _labels(sample) | {"makes": [("videos", plan.video_key(sample))]} for sample in plan.samples(arm, shard)
        ),
        settings={
            **_model_settings(plan, plan.settings(arm).model),
            "shape": [video.frames, video.height, video.width],
            "decode": _decode_settings(plan),
        },
    )


def _encode(plan: Plan, arm: str, shard: str) -> Job:
    video = plan.experiment.video
    return Job(
        "encode",
        "diffusion",
        ENCODER_PACKAGES,
        plan.paths.store,
        plan.paths.videos(arm, shard),
        samples=tuple(_labels(sample) | {"video": plan.video_key(sample)} for sample in plan.samples(arm, shard)),
        settings={
            "frames_directory": plan.paths.frames(arm, shard),
            "shape": [video.frames, video.height, video.width],
            "fps": video.fps,
            "encoder": plan.encoder.as_json(),
        },
    )


def _ingest(plan: Plan, arm: str, shard: str) -> Job:
    foreign = plan.foreign[arm]
    return Job(
        "ingest",
        "diffusion",
        ENCODER_PACKAGES,
        plan.paths.store,
        plan.paths.videos(arm, shard),
        samples=tuple(
            _labels(sample)
            | {
                "video": plan.video_key(sample),
                "file": foreign.files[sample.prompt.text, sample.seed],
                "sha256": foreign.digests[sample.prompt.text, sample.seed],
            }
            for sample in plan.samples(arm, shard)
        ),
        settings={
            "directory": str(foreign.directory),
            "video": plan.experiment.video.model_dump(mode="json"),
            "stream": plan.vouched_stream(arm),
            "ffmpeg_sha256": plan.encoder.ffmpeg_sha256,
        },
    )


def _timing(plan: Plan) -> Job:
    timing, video = plan.experiment.timing, plan.experiment.video
    if timing is None:
        raise BadInput(
            "this experiment times nothing",
            key="timing",
            remedy="Add `timing: {prompts: 4, warmup: 1, repeats: 3}` to it",
        )
    return Job(
        "timing",
        "diffusion",
        STACK_PACKAGES,
        plan.paths.store,
        plan.paths.timings,
        samples=tuple({"prompt": prompt, "seed": seed} for prompt, seed in plan.timed_samples),
        settings={
            **_place(plan),
            "stack": key_of(plan.stack),
            "shape": [video.frames, video.height, video.width],
            "fps": video.fps,
            "decode": _decode_settings(plan),
            "encoder": plan.encoder.as_json(),
            "warmup": timing.warmup,
            "repeats": timing.repeats,
            "arms": {
                name: {**_model_settings(plan, arm.model), "denoise": _denoise_settings(plan, name)}
                for name, arm in plan.experiment.generated.items()
            },
        },
    )


def _score(plan: Plan, arm: str, dimension: str, shard: str) -> Job:
    known, machine = plan.known[dimension], plan.experiment.stack.machine
    return Job(
        "score",
        known.toolchain,
        (*known.packages_on(machine), *known.provided),
        plan.paths.store,
        plan.paths.scores(arm, dimension, shard),
        samples=tuple(
            _labels(sample)
            | {
                "video": plan.video_key(sample),
                "baseline_video": plan.video_key(plan.twin(sample)) if known.pairwise else None,
                "score": plan.score_key(sample, dimension),
            }
            for sample in plan.scored_samples(arm, dimension, shard)
        ),
        settings={
            "dimension": dimension,
            "scorer": known.scorer,
            "ffmpeg_sha256": plan.encoder.ffmpeg_sha256,
            # VBench imports it wherever it is used, also where it reads nothing by it.
            **({} if known.toolchain != "vbench" or has_decord(machine) else {"reader": "av"}),
            **(_place(plan) | {"weights": _weights(plan, dimension)} if known.has_model else {}),
            **(_verifier(plan, dimension) if dimension in plan.verifiers else {}),
        },
    )


def _shown(plan: Plan, arm: str) -> dict[Sample, str]:
    """The samples of the first prompts, with the first seed, and their shards; the same prompts in every arm."""
    wanted = {prompt.text for prompt in plan.prompts[:CONTACT_SHEET_ROWS]}
    seed = plan.experiment.seeds[0]
    samples = {
        sample: shard
        for shard, members in plan.shards.items()
        if seed in members.seeds and any(prompt.text in wanted for prompt in members.prompts)
        for sample in plan.samples(arm, shard)
        if sample.seed == seed and sample.prompt.text in wanted
    }
    order = {prompt.text: number for number, prompt in enumerate(plan.prompts)}
    return dict(sorted(samples.items(), key=lambda item: order[item[0].prompt.text]))


def _candidate_sheet(plan: Plan, arm: str) -> Job:
    search, samples = plan.experiment.searches[arm], []
    for sample, shard in _shown(plan, arm).items():
        shown = {"video": plan.video_key(sample), "candidates": _shown_candidates(plan, sample, shard)}
        samples.append(_labels(sample) | {"for_seed": sample.seed} | shown)
    made_in = ", then in ".join(one.arm for one in search.rounds)
    return Job(
        "candidate_sheet",
        "diffusion",
        ENCODER_PACKAGES,
        plan.paths.store,
        plan.paths.candidate_sheet(arm),
        samples=tuple(samples),
        settings={
            "title": f"Search {arm}: candidates in {made_in}, by {search.verifier}; the winner in {search.recommit}",
            "recommit": search.recommit,
        },
    )


def _shown_candidates(plan: Plan, sample: Sample, shard: str) -> list[dict[str, Any]]:
    """The best of the first round, best first, and the winner wherever it was.

    What later rounds gave those that went on is in `then`; None is no value.
    """
    about, rounds = (sample.prompt.text, sample.seed), plan.experiment.searches[sample.arm].rounds
    choices = [Choice(sample.arm, number) for number in range(1, len(rounds) + 1)]
    ranked, *given = (plan.searches.ranked(choice, shard)[about] for choice in choices)
    values = [{one["seed"]: one["value"] for one in candidates} for candidates in given]
    went_on = [plan.searches.kept(choice, shard)[about] for choice in choices[:-1]]
    later = list(zip(went_on, values, strict=True))
    ranked = [
        one | {"then": [found.get(one["seed"]) for seeds, found in later if one["seed"] in seeds]} for one in ranked
    ]
    shown, others = ranked[:CONTACT_SHEET_CANDIDATES], ranked[CONTACT_SHEET_CANDIDATES:]
    winner = [one for one in others if one["seed"] == sample.drawn_seed]
    return [*shown[: len(shown) - len(winner)], *winner]


def _contact_sheet(plan: Plan, arm: str) -> Job:
    return Job(
        "contact_sheet",
        "diffusion",
        ENCODER_PACKAGES,
        plan.paths.store,
        plan.paths.contact_sheet(arm),
        samples=tuple(_labels(sample) | {"video": plan.video_key(sample)} for sample in _shown(plan, arm)),
        settings={"arm": arm},
    )


def _compared_decode(plan: Plan, arm: str, shard: str) -> Job:
    comparison = Comparison(plan)
    job = _decode(comparison.declared, arm, shard)
    samples = []
    for sample in comparison.declared.samples(arm, shard):
        videos = [("videos", plan.video_key(sample)) for plan in comparison.plans.values()]
        samples.append(_labels(sample) | {"makes": [*videos, ("fidelity", comparison.fidelity_key(sample))]})
    return replace(job, samples=tuple(samples))


def _compared_encode(plan: Plan, side: str, arm: str, shard: str) -> Job:
    comparison = Comparison(plan)
    job = _encode(comparison.plans[side], arm, shard)
    # The same frames for both.
    return replace(job, settings=job.settings | {"frames_directory": comparison.declared.paths.frames(arm, shard)})


def _fidelity(plan: Plan, arm: str, shard: str) -> Job:
    comparison = Comparison(plan)
    declared, compared = comparison.declared, comparison.compared
    video = plan.experiment.video
    return Job(
        "fidelity",
        "diffusion",
        ENCODER_PACKAGES,
        plan.paths.store,
        declared.paths.fidelity(arm, shard),
        samples=tuple(
            _labels(sample)
            | {
                "declared": declared.video_key(sample),
                "compared": compared.video_key(sample),
                "fidelity": comparison.fidelity_key(sample),
            }
            for sample in declared.samples(arm, shard)
        ),
        settings={
            "frames_directory": declared.paths.frames(arm, shard),
            "width": video.width,
            "height": video.height,
            "ffmpeg_sha256": declared.encoder.ffmpeg_sha256,
        },
    )


_DESCRIPTIONS: dict[str, Callable[..., Job]] = {
    "models": _models,
    "generate": _generate,
    "decode": _decode,
    "encode": _encode,
    "ingest": _ingest,
    "timing": _timing,
    "score": _score,
    "contact_sheet": _contact_sheet,
    "candidate_sheet": _candidate_sheet,
    "compared_generate": lambda plan, arm, shard: _generate(Comparison(plan).declared, arm, shard),
    "compared_decode": _compared_decode,
    "compared_encode": _compared_encode,
    "fidelity": _fidelity,
    "compared_score": lambda plan, side, arm, dimension, shard: _score(
        Comparison(plan).plans[side], arm, dimension, shard
    ),
}


def model_directory(plan: Plan, model: str) -> str:
    """Where a model's files are: the user's directory, or the store for a tiny one."""
    source = plan.models[model]
    return source.path or f"{plan.paths.store}/models/{source.digest}"


def _weights(plan: Plan, dimension: str) -> dict[str, Any]:
    """The files that a dimension needs, and where they are."""
    verifier = plan.experiment.scoring.verifiers.get(dimension)
    directory = plan.experiment.scoring.weights if verifier is None else verifier.path
    return {"directory": directory, "files": plan.weights[dimension]}


def _verifier(plan: Plan, dimension: str) -> dict[str, Any]:
    """How a verifier reads videos and prompts."""
    verifier = plan.verifiers[dimension]
    return {
        "dtype": verifier.settings.dtype,
        "frames": verifier.dimension.frames,
        "of_frames": plan.experiment.video.frames,
        "fps": plan.experiment.video.fps,
        "long_prompts": plan.experiment.prompts.long,
    }


def _decode_settings(plan: Plan) -> dict[str, Any]:
    return plan.experiment.decode.model_dump(mode="json", exclude={"slicing"})


def _model_settings(plan: Plan, model: str) -> dict[str, Any]:
    return {
        "family": plan.models[model].family,
        "model_directory": model_directory(plan, model),
        **_place(plan),
    }


def _place(plan: Plan) -> dict[str, Any]:
    """The device that a stage needs, and the kind that it has to be."""
    stack = plan.experiment.stack
    known = None if stack.hardware is None else hardware(stack.hardware, "stack.hardware")
    declared = None if known is None else {"name": known.name, "memory_gib": known.memory_gib}
    return {"device": stack.device, "hardware": declared}


def _denoise_settings(plan: Plan, arm: str) -> dict[str, Any]:
    """What `DenoiseSettings` takes."""
    video, settings = plan.experiment.video, plan.settings(arm).model_dump(mode="json")
    del settings["model"], settings["batch"]
    return {**settings, "width": video.width, "height": video.height, "frames": video.frames, "fps": video.fps}


def _labels(sample: Sample) -> dict[str, Any]:
    """Of a sample in a job: its seed is the one that its noise is drawn from."""
    labels = {"arm": sample.arm, "sample": sample.sample_id, "prompt": sample.prompt.text, "seed": sample.drawn_seed}
    return labels if sample.drawn_seed == sample.seed else labels | {"for_seed": sample.seed}
