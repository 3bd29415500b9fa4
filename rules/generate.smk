# Needs: the arm's model; for what a search has chosen, the choice. Makes: latents in the store, and the manifest of a
# shard's latents.


rule generate:
    """Denoise to latents those samples of a shard that the store lacks."""
    input:
        # Ancient: what a model is stands in the digest; the same model built anew makes nothing stale.
        model=ancient(model_of_arm),
        choice=choice_before,
        sisters=ancient(latents_before),
    output:
        manifest=PATHS.latents("{arm}", "{shard}"),
    log:
        PATHS.log("generate", "{arm}", "{shard}"),
    benchmark:
        PATHS.benchmark("generate", "{arm}", "{shard}")
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
        digest=generate_digest,
    message:
        "Generate {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/generate.py"
