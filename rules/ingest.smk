# Needs: nothing but the files of an arm whose videos exist already. Makes: their copies in the store, and the manifest
# of a shard's videos, as encode does for the others.


rule ingest:
    """Check existing videos, and take those that the store lacks into it as they are."""
    output:
        manifest=PATHS.videos("{arm}", "{shard}"),
    log:
        PATHS.log("ingest", "{arm}", "{shard}"),
    benchmark:
        PATHS.benchmark("ingest", "{arm}", "{shard}")
    wildcard_constraints:
        arm=one_of(PLAN.experiment.foreign),
    # First of all: a video that can't be used is to be known before anything is generated to be compared with it.
    priority: 1
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        node_access="shared",
        mem_mb=1000,
        runtime=60,
    params:
        digest=videos_digest,
    message:
        "Check and take in the videos of {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/ingest.py"
