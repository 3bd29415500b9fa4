# Needs: the manifests of the experiment's own arms; what shows the candidates of searches is in search.smk. Makes: tables
# and figures, which enter Snakemake's report.


rule tables:
    """Compute every table from the records alone, and what VBench would write of its dimensions."""
    input:
        plan=PATHS.plan,
        latents=all_manifests("latents", candidates=False),
        videos=all_manifests("videos", candidates=False),
        scores=all_manifests("scores", candidates=False),
    output:
        scores=report(
            PATHS.table("scores"),
            caption="../resources/report/scores.rst",
            category="Tables",
            labels={"table": "scores by arm"},
        ),
        paired=report(
            PATHS.table("paired"),
            caption="../resources/report/paired.rst",
            category="Tables",
            labels={"table": "differences to the baseline"},
        ),
        vbench=report(
            PATHS.table("vbench"),
            caption="../resources/report/vbench.rst",
            category="Tables",
            labels={"table": "VBench: normalised scores, quality, semantic, total"},
        ),
        encoders=report(
            PATHS.table("encoders"),
            caption="../resources/report/encoders.rst",
            category="Tables",
            labels={"table": "encoders of the videos"},
        ),
        compute=report(
            PATHS.table("compute"),
            caption="../resources/report/compute.rst",
            category="Tables",
            labels={"table": "compute: forwards, FLOPs, shares"},
        ),
        memory=report(
            PATHS.table("memory"),
            caption="../resources/report/memory.rst",
            category="Tables",
            labels={"table": "memory by phase and owner"},
        ),
        samples=report(
            PATHS.table("samples"),
            caption="../resources/report/samples.rst",
            category="Tables",
            labels={"table": "every sample"},
        ),
        vbench_results=expand(PATHS.vbench_results("{arm}"), arm=VBENCH_ARMS),
    log:
        PATHS.log("tables"),
    benchmark:
        PATHS.benchmark("tables")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Compute the tables"
    script:
        "../scripts/tables.py"


rule score_figure:
    """Draw every video's score in one dimension, arms side by side."""
    input:
        scores=score_manifests_of_dimension,
    output:
        report(
            PATHS.score_figure("{dimension}"),
            caption="../resources/report/score_figure.rst",
            category="Figures",
            labels={"dimension": "{dimension}"},
        ),
    log:
        PATHS.log("score_figure", "{dimension}"),
    benchmark:
        PATHS.benchmark("score_figure", "{dimension}")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        arms=PLAN.arms,
        not_compared=PLAN.not_compared,
    message:
        "Draw {wildcards.dimension}"
    script:
        "../scripts/score_figure.py"


rule contact_sheet:
    """Lay out frames of an arm's videos, the same prompts in every arm."""
    input:
        video_manifests_of_arm,
    output:
        report(
            PATHS.contact_sheet("{arm}"),
            caption="../resources/report/contact_sheet.rst",
            category="Contact sheets",
            labels={"arm": "{arm}"},
        ),
    log:
        PATHS.log("contact_sheet", "{arm}"),
    benchmark:
        PATHS.benchmark("contact_sheet", "{arm}")
    conda:
        "../envs/diffusion.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Lay out the contact sheet of {wildcards.arm}"
    script:
        "../scripts/contact_sheet.py"
