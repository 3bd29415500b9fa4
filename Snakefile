# Fleetcraft: generate, decode, encode, score and archive the videos of one experiment.
#
#   snakemake -n                                   review the campaign of config/config.yaml
#   snakemake                                      run it (profiles/default is found by itself)
#   snakemake encoder_comparison                   measure the experiment's encoder against another one
#   snakemake --configfile config/experiments/X.yaml --report …   another experiment, its report

from snakemake.utils import min_version

min_version("9.27")


# Only where no other experiment is named: Snakemake would merge the two, arms and all.
if not workflow.configfiles:

    configfile: "config/config.yaml"


report: "resources/report/workflow.rst"


include: "rules/common.smk"
include: "rules/plan.smk"
include: "rules/models.smk"
include: "rules/generate.smk"
include: "rules/decode.smk"
include: "rules/encode.smk"
include: "rules/ingest.smk"
include: "rules/score.smk"
include: "rules/search.smk"
include: "rules/calibrate.smk"
include: "rules/timing.smk"
include: "rules/analyze.smk"
include: "rules/archive.smk"
include: "rules/encoder_comparison.smk"


rule all:
    """The whole campaign, to its evidence."""
    default_target: True
    input:
        PATHS.evidence_digest,
        # Named although the evidence needs them too: Snakemake makes a lost file again only if it is asked for.
        all_manifests("videos"),
        all_manifests("scores"),
        all_manifests("choices"),
        expand(PATHS.view_index("{arm}"), arm=PLAN.arms),
    message:
        "The campaign {PLAN.experiment.name} is complete"


rule calibrate:
    """Every arm tried at every batch, for `fleetcraft freeze` to decide; no campaign asks for it."""
    input:
        trials,
    message:
        "All trials are done: `fleetcraft freeze` decides which batch each arm gets"


onstart:
    show_remarks()


onsuccess:
    show_summary()
