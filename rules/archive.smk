# Needs: everything that was concluded, and every manifest. Makes: the evidence directory in work.


rule archive:
    """Gather the evidence that every number resolves to; never the videos, only their digests."""
    input:
        plan=PATHS.plan,
        models=all_manifests("models"),
        latents=all_manifests("latents"),
        videos=all_manifests("videos"),
        scores=all_manifests("scores"),
        tables=rules.tables.output,
        latency=latency_results,
        search=search_results,
        choices=all_manifests("choices"),
        figures=expand(PATHS.score_figure("{dimension}"), dimension=PLAN.dimensions),
        sheets=expand(PATHS.contact_sheet("{arm}"), arm=PLAN.arms),
    output:
        # Not the directory itself: Snakemake would delete the old evidence before the new one is there.
        PATHS.evidence_digest,
    log:
        PATHS.log("archive"),
    benchmark:
        PATHS.benchmark("archive")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
    message:
        "Archive the evidence"
    script:
        "../scripts/archive.py"
