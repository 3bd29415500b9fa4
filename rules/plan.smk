# Needs: nothing but the experiment. Makes: the plan as a document, for the analysis and the evidence.


rule plan:
    """Write down what the campaign computes: conditions, prompts, seeds, settings of every stage."""
    output:
        PATHS.plan,
    log:
        PATHS.log("plan"),
    benchmark:
        PATHS.benchmark("plan")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=500,
        runtime=5,
    params:
        digest=plan_digest,
    message:
        "Plan {PLAN.sample_count} samples for {PLAN.experiment.name}"
    script:
        "../scripts/plan.py"
