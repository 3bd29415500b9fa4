# Needs: the arms' models. Makes: the record of each trial, an arm at a batch; asked for by name, never by a campaign.


rule trial:
    """Run one complete task of an arm at one batch, alone on its node: load, denoise, decode, encode, score, write."""
    input:
        model=ancient(model_of_arm),
    output:
        PATHS.calibration("{arm}", "{batch}"),
    log:
        PATHS.log("trial", "{arm}", "{batch}"),
    benchmark:
        PATHS.benchmark("trial", "{arm}", "{batch}")
    wildcard_constraints:
        arm=one_of(PLAN.experiment.generated),
        batch="[0-9]+",
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        gpus=GPUS,
        node_access="exclusive",
        mem_mb=4000,
        runtime=240,
    params:
        digest=calibration_digest,
    message:
        "Try {wildcards.arm} at batch {wildcards.batch}"
    script:
        "../scripts/trial.py"
