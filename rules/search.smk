# Needs: the scores of a round's candidates, which the rules of generate, decode, encode and score have made as those of
# any arm. Makes: the choice among them, which decides what the arms of the next round, or of the winners, are; and from
# all choices the sheets of candidates, and the tables and the figure of quality against compute.


rule choose:
    """Choose among the candidates of one round of a search, for the prompts and seeds of one shard."""
    input:
        scores_of_candidates,
    output:
        PATHS.choices("{arm}", "{search_round}", "{shard}"),
    log:
        PATHS.log("choose", "{arm}", "{search_round}", "{shard}"),
    benchmark:
        PATHS.benchmark("choose", "{arm}", "{search_round}", "{shard}")
    wildcard_constraints:
        arm=one_of(PLAN.experiment.searches),
        search_round="[0-9]+",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        digest=choice_digest,
    message:
        "Choose in round {wildcards.search_round} of {wildcards.arm} {wildcards.shard}"
    script:
        "../scripts/choose.py"


rule candidate_sheet:
    """Show what a search chose among, best first, and the winners in full."""
    input:
        choices_of_arm,
        video_manifests_of_arm,
    output:
        report(
            PATHS.candidate_sheet("{arm}"),
            caption="../resources/report/candidate_sheet.rst",
            category="Contact sheets",
            labels={"candidates of": "{arm}"},
        ),
    log:
        PATHS.log("candidate_sheet", "{arm}"),
    benchmark:
        PATHS.benchmark("candidate_sheet", "{arm}")
    wildcard_constraints:
        arm=one_of(PLAN.experiment.searches),
    conda:
        "../envs/diffusion.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Show the candidates of {wildcards.arm}"
    script:
        "../scripts/candidate_sheet.py"


rule search:
    """Compute what the searches cost and gave, from the records alone."""
    input:
        plan=PATHS.plan,
        latents=all_manifests("latents"),
        videos=all_manifests("videos"),
        scores=all_manifests("scores"),
        # Named although winners were made of them: Snakemake makes a lost file again only if it is asked for.
        choices=all_manifests("choices"),
    output:
        search=report(
            PATHS.table("search"),
            caption="../resources/report/search.rst",
            category="Tables",
            labels={"table": "searches: rounds, choices, compute"},
        ),
        search_quality=report(
            PATHS.table("search_quality"),
            caption="../resources/report/search_quality.rst",
            category="Tables",
            labels={"table": "quality against compute"},
        ),
        figure=report(
            PATHS.figure("search"),
            caption="../resources/report/search_figure.rst",
            category="Figures",
            labels={"figure": "quality against compute"},
        ),
    log:
        PATHS.log("search"),
    benchmark:
        PATHS.benchmark("search")
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    message:
        "Compute what the searches cost and gave"
    script:
        "../scripts/search.py"
