# Needs: the manifest of a shard's latents. Makes: the frames of those samples whose video the store lacks.


rule decode:
    """Decode latents to frames, streamed; the frames last until they are encoded."""
    input:
        model=ancient(model_of_arm),
        latents=PATHS.latents("{arm}", "{shard}"),
    output:
        frames=temp(directory(PATHS.frames("{arm}", "{shard}"))),
    log:
        PATHS.log("decode", "{arm}", "{shard}"),
    benchmark:
        PATHS.benchmark("decode", "{arm}", "{shard}")
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
        # The encoder's settings too: which frames are wanted depends on which videos are there.
        digest=videos_digest,
    message:
        "Decode {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/decode.py"
