# Needs: the frames of a shard. Makes: videos in the store, the manifest of a shard's videos, and an arm's view of them.


rule encode:
    """Encode frames with the experiment's one encoder, and check every video."""
    input:
        frames=PATHS.frames("{arm}", "{shard}"),
    output:
        manifest=PATHS.videos("{arm}", "{shard}"),
    log:
        PATHS.log("encode", "{arm}", "{shard}"),
    benchmark:
        PATHS.benchmark("encode", "{arm}", "{shard}")
    wildcard_constraints:
        arm=one_of(PLAN.made_arms),
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        node_access="shared",
        mem_mb=needs("encode", "mem_mb", 1000),
        runtime=needs("encode", "runtime", 60),
    params:
        digest=videos_digest,
    message:
        "Encode {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/encode.py"


rule views:
    """Link an arm's videos under the names that people and VBench expect."""
    input:
        video_manifests_of_arm,
    output:
        PATHS.view_index("{arm}"),
    log:
        PATHS.log("views", "{arm}"),
    benchmark:
        PATHS.benchmark("views", "{arm}")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    message:
        "Link the videos of {wildcards.arm}"
    script:
        "../scripts/views.py"
