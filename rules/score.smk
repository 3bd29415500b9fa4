# Needs: the manifests of a shard's videos. Makes: scores in the store, and the manifest of a shard's scores.


rule score:
    """Score a shard's videos in one dimension, in the tool chain of that dimension."""
    input:
        scored_videos,
    output:
        manifest=PATHS.scores("{arm}", "{dimension}", "{shard}"),
    log:
        PATHS.log("score", "{arm}", "{dimension}", "{shard}"),
    benchmark:
        PATHS.benchmark("score", "{arm}", "{dimension}", "{shard}")
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
        digest=score_digest,
    message:
        "Score {wildcards.dimension} of {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/score.py"
