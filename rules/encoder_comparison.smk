# Needs: the experiment's key `encoder_comparison`, and the arm's model. Makes: the same frames in two encodings, the
# scores of both, and tables of how they differ. A target of its own: nothing here belongs to a campaign.


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
        mem_mb=needs("generate", "mem_mb", 4000),
        gpu_mem_mb=needs("generate", "gpu_mem_mb", 0),
        runtime=needs("generate", "runtime", 240),
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
        mem_mb=needs("decode", "mem_mb", 4000),
        gpu_mem_mb=needs("decode", "gpu_mem_mb", 0),
        runtime=needs("decode", "runtime", 120),
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
        mem_mb=needs("encode", "mem_mb", 1000),
        runtime=needs("encode", "runtime", 60),
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
        gpus=score_gpus,
        node_access="shared",
        mem_mb=score_mem_mb,
        gpu_mem_mb=score_gpu_mem_mb,
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
        arms=PLAN.arms,
    message:
        "Compare the encoders"
    script:
        "../scripts/encoder_comparison.py"
