# Needs: the experiment's key `encoder_comparison`, and the arm's model. Makes: the same frames in two encodings, the
# scores of both, and tables of how they differ. A target of its own: nothing here belongs to a campaign.

from functools import cache

from fleetcraft.experiment.encoder_comparison import SIDES, Comparison, comparison_paths

SIDE_PATHS = {side: comparison_paths(PATHS, side) for side in SIDES}
# The latents and frames are the same for both encoders.
FRAMES_PATHS = SIDE_PATHS["declared"]
# A pattern for the files of either.
EITHER = comparison_paths(PATHS, "{side}")


@cache
def comparison():
    """What the experiment wants compared; asked for only by jobs of this target."""
    try:
        return Comparison(PLAN)
    except FleetcraftError as error:
        raise WorkflowError(str(error)) from None


def compared_generate_digest(wildcards):
    return comparison().declared.generate_digest(wildcards.arm, wildcards.shard)


def compared_frames_digest(wildcards):
    return comparison().frames_digest(wildcards.arm, wildcards.shard)


def compared_videos_digest(wildcards):
    return (
        comparison().plans[wildcards.side].videos_digest(wildcards.arm, wildcards.shard)
    )


def compared_score_digest(wildcards):
    return (
        comparison()
        .plans[wildcards.side]
        .score_digest(wildcards.arm, wildcards.dimension, wildcards.shard)
    )


def compared_scored_videos(wildcards):
    """The manifests that a score job of one side reads."""
    plan = comparison().plans[wildcards.side]
    arms = [wildcards.arm]
    if DIMENSIONS[wildcards.dimension].pairwise:
        arms.append(plan.baseline)
    return [plan.paths.videos(arm, wildcards.shard) for arm in arms]


def compared_manifests(kind, side):
    """Stands for all manifests of one kind of one side."""

    def manifests(wildcards):
        plan = comparison().plans[side]
        if kind == "scores":
            return [
                plan.paths.scores(arm, dimension, shard)
                for arm in plan.arms
                for dimension in plan.dimensions
                for shard in plan.scored_shards(arm, dimension)
            ]
        return [
            getattr(plan.paths, kind)(arm, shard)
            for arm in plan.arms
            for shard in plan.shards
        ]

    return manifests


def comparison_digest(wildcards):
    return comparison().digest


wildcard_constraints:
    side="|".join(SIDES),


rule compared_generate:
    """Denoise those samples of the comparison that the store lacks."""
    input:
        model=ancient(model_of_arm),
    output:
        manifest=FRAMES_PATHS.latents("{arm}", "{shard}"),
    log:
        FRAMES_PATHS.log("generate", "{arm}", "{shard}"),
    benchmark:
        FRAMES_PATHS.benchmark("generate", "{arm}", "{shard}")
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        gpus=GPUS,
        node_access="shared",
        mem_mb=4000,
        runtime=240,
    params:
        digest=compared_generate_digest,
    message:
        "Generate {wildcards.arm} {wildcards.shard} for the comparison of encoders"
    script:
        "../scripts/compared.py"


rule compared_decode:
    """Decode once what both encoders are given; the frames last until both have been measured against them."""
    input:
        model=ancient(model_of_arm),
        latents=FRAMES_PATHS.latents("{arm}", "{shard}"),
    output:
        frames=temp(directory(FRAMES_PATHS.frames("{arm}", "{shard}"))),
    log:
        FRAMES_PATHS.log("decode", "{arm}", "{shard}"),
    benchmark:
        FRAMES_PATHS.benchmark("decode", "{arm}", "{shard}")
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        gpus=GPUS,
        node_access="shared",
        mem_mb=4000,
        runtime=120,
    params:
        digest=compared_frames_digest,
    message:
        "Decode {wildcards.arm} {wildcards.shard} for the comparison of encoders"
    script:
        "../scripts/compared.py"


rule compared_encode:
    """Encode the frames with one of the two encoders, and check every video."""
    input:
        frames=FRAMES_PATHS.frames("{arm}", "{shard}"),
    output:
        manifest=EITHER.videos("{arm}", "{shard}"),
    log:
        EITHER.log("encode", "{arm}", "{shard}"),
    benchmark:
        EITHER.benchmark("encode", "{arm}", "{shard}")
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        node_access="shared",
        mem_mb=1000,
        runtime=60,
    params:
        digest=compared_videos_digest,
    message:
        "Encode {wildcards.arm} {wildcards.shard} with the {wildcards.side} encoder"
    script:
        "../scripts/compared.py"


rule fidelity:
    """Measure both encodings against the frames, and against each other."""
    input:
        frames=FRAMES_PATHS.frames("{arm}", "{shard}"),
        videos=[SIDE_PATHS[side].videos("{arm}", "{shard}") for side in SIDES],
    output:
        manifest=FRAMES_PATHS.fidelity("{arm}", "{shard}"),
    log:
        FRAMES_PATHS.log("fidelity", "{arm}", "{shard}"),
    benchmark:
        FRAMES_PATHS.benchmark("fidelity", "{arm}", "{shard}")
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        node_access="shared",
        mem_mb=1500,
        runtime=60,
    params:
        digest=compared_frames_digest,
    message:
        "Measure both encodings of {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/compared.py"


rule compared_score:
    """Score one encoder's videos in one dimension, in the tool chain of that dimension."""
    input:
        compared_scored_videos,
    output:
        manifest=EITHER.scores("{arm}", "{dimension}", "{shard}"),
    log:
        EITHER.log("score", "{arm}", "{dimension}", "{shard}"),
    benchmark:
        EITHER.benchmark("score", "{arm}", "{dimension}", "{shard}")
    conda:
        score_conda
    threads: 1
    resources:
        node_access="shared",
        mem_mb=3000,
        runtime=120,
    params:
        digest=compared_score_digest,
    message:
        "Score {wildcards.dimension} of {wildcards.arm} {wildcards.shard} with the {wildcards.side} encoder"
    script:
        "../scripts/compared.py"


rule encoder_comparison:
    """Compare the experiment's encoder with another one on the same frames: `snakemake encoder_comparison`."""
    input:
        fidelity=compared_manifests("fidelity", SIDES[0]),
        declared_videos=compared_manifests("videos", "declared"),
        declared_scores=compared_manifests("scores", "declared"),
        compared_videos=compared_manifests("videos", "compared"),
        compared_scores=compared_manifests("scores", "compared"),
    output:
        shifts=report(
            PATHS.encoder_comparison("shifts.csv"),
            caption="../resources/report/encoder_shifts.rst",
            category="Comparison of encoders",
            labels={"table": "shifts of scores"},
        ),
        fidelity=report(
            PATHS.encoder_comparison("fidelity.csv"),
            caption="../resources/report/encoder_fidelity.rst",
            category="Comparison of encoders",
            labels={"table": "closeness to the frames"},
        ),
        figure=report(
            PATHS.encoder_comparison("comparison.png"),
            caption="../resources/report/encoder_figure.rst",
            category="Comparison of encoders",
            labels={"table": "both, as a figure"},
        ),
        plan=PATHS.encoder_comparison("plan.json"),
        records=PATHS.encoder_comparison("records.jsonl"),
    log:
        PATHS.log("encoder_comparison"),
    benchmark:
        PATHS.benchmark("encoder_comparison")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        digest=comparison_digest,
    message:
        "Compare the encoders"
    script:
        "../scripts/encoder_comparison.py"
