# Needs: a checkpoint's directory, or nothing for a tiny model. Makes: the record of the model's files.


rule models:
    """Build a tiny model from its seed, or verify a checkpoint: its bytes, and that it would load completely."""
    output:
        PATHS.model("{model}"),
    log:
        PATHS.log("models", "{model}"),
    benchmark:
        PATHS.benchmark("models", "{model}")
    conda:
        "../envs/diffusion.yaml"
    resources:
        mem_mb=2000,
        runtime=120,
    params:
        digest=model_digest,
    message:
        "Build or verify the model {wildcards.model}"
    script:
        "../scripts/models.py"
