# Needs: the models of all arms. Makes: the records of timed passes, and the latencies that follow from them.


rule timing:
    """Time all arms on one node that nobody else uses, one sample at a time, taking turns."""
    input:
        ancient(models_of_arms),
    output:
        PATHS.timings,
    log:
        PATHS.log("timing"),
    benchmark:
        PATHS.benchmark("timing")
    conda:
        "../envs/diffusion.yaml"
    threads: 1
    resources:
        gpus=GPUS,
        node_access="exclusive",
        mem_mb=4000,
        runtime=240,
    params:
        digest=timing_digest,
    message:
        "Time the arms of {PLAN.experiment.name}"
    script:
        "../scripts/timing.py"


rule latency:
    """Compute latencies and their ratios from the records of timed passes alone."""
    input:
        PATHS.timings,
    output:
        latency=report(
            PATHS.table("latency"),
            caption="../resources/report/latency.rst",
            category="Tables",
            labels={"table": "latency by arm and phase"},
        ),
        ratios=report(
            PATHS.table("latency_ratios"),
            caption="../resources/report/latency_ratios.rst",
            category="Tables",
            labels={"table": "latency as a share of the baseline's"},
        ),
        pairs=report(
            PATHS.figure("latency"),
            caption="../resources/report/latency_figure.rst",
            category="Figures",
            labels={"figure": "latency, pass by pass"},
        ),
        phases=report(
            PATHS.figure("phases"),
            caption="../resources/report/phases_figure.rst",
            category="Figures",
            labels={"figure": "where the time goes"},
        ),
    log:
        PATHS.log("latency"),
    benchmark:
        PATHS.benchmark("latency")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        arms=PLAN.arms,
    message:
        "Compute the latencies"
    script:
        "../scripts/latency.py"
