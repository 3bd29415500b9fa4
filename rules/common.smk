# The plan of the campaign, and the functions that connect its stages; from the configuration alone.

import re
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# Last on the path: an installed module is never hidden by a rule's script of the same name.
sys.path.append(str(Path(workflow.basedir) / "scripts"))

from fleetcraft.cli.summary import summary_text
from fleetcraft.evidence.archive import manifests_of
from fleetcraft.experiment import batches
from fleetcraft.experiment.config import (
    PLAN_VARIABLE,
    hold_to_campaign,
    located_in,
    plan_of,
)
from fleetcraft.experiment.encoder_comparison import SIDES, Comparison, comparison_paths
from fleetcraft.experiment.search import Choice
from fleetcraft.ground.errors import FleetcraftError
from fleetcraft.scoring.vbench_dimensions import VBENCH


@contextmanager
def plain_refusals():
    """Say what is wrong with an experiment and end there: of an exception, Snakemake would show a traceback."""
    try:
        yield
    except FleetcraftError as error:
        sys.exit(f"fleetcraft: {error}")


with plain_refusals():
    PLAN, RUNTIME = plan_of(config, workflow.configfiles)
    hold_to_campaign(PLAN)

PATHS = PLAN.paths
GPUS = 1 if PLAN.experiment.stack.device == "cuda" else 0
# Those whose results VBench has a format for.
VBENCH_ARMS = list(PLAN.arms) if VBENCH.keys() & set(PLAN.dimensions) else []


envvars:
    PLAN_VARIABLE,


wildcard_constraints:
    # With what a search adds to the name of an arm.
    arm=r"[A-Za-z0-9][A-Za-z0-9_.-]*(@[0-9]+(\.[0-9]+)?)?",
    model=r"[A-Za-z0-9][A-Za-z0-9_.-]*",
    dimension="|".join(map(re.escape, PLAN.known)),
    side="|".join(SIDES),
    shard=r"([a-z_]+-)?(all|s[0-9]+(-[0-9]+)?(-p[01]+)?)",


def model_of_arm(wildcards):
    """The record of the arm's model."""
    return PATHS.model(PLAN.settings(wildcards.arm).model)


def choice_before(wildcards):
    """The choice that decides what an arm of a search is made of; nothing for other arms."""
    choice = PLAN.searches.before(wildcards.arm)
    if choice is None:
        return []
    return str(PLAN.searches.manifest(choice, wildcards.shard))


def latents_before(wildcards):
    """The samples that the chosen may be among: whoever comes second finds them in the store."""
    if PLAN.searches.before(wildcards.arm) is None:
        return []
    return PATHS.latents(PLAN.searches.made_in(wildcards.arm), wildcards.shard)


def scores_of_candidates(wildcards):
    """The manifests of the scores that a round of a search chooses by."""
    choice = Choice(wildcards.arm, int(wildcards.search_round))
    verifier = PLAN.experiment.searches[wildcards.arm].verifier
    return [
        PATHS.scores(arm, verifier, wildcards.shard)
        for arm in PLAN.searches.entrants(choice)
    ]


def choice_digest(wildcards):
    choice = Choice(wildcards.arm, int(wildcards.search_round))
    return PLAN.searches.digest(choice, wildcards.shard)


# Whatever grows with the campaign is a function: a job that is run by itself then doesn't pay for the others.


def video_manifests_of_arm(wildcards):
    """The manifests of one arm's videos."""
    return [PATHS.videos(wildcards.arm, shard) for shard in PLAN.shards]


def scored_videos(wildcards):
    """The manifests that a score job reads: its shard's, and the baseline's where the dimension compares with it."""
    return scored_videos_of(PLAN, wildcards)


def scored_videos_of(plan, wildcards):
    arms = [wildcards.arm]
    if plan.known[wildcards.dimension].pairwise:
        arms.append(plan.baseline)
    return [plan.paths.videos(arm, wildcards.shard) for arm in arms]


def score_manifests_of_dimension(wildcards):
    """The manifests of all arms' scores in one dimension."""
    return [
        PATHS.scores(arm, wildcards.dimension, shard)
        for arm in PLAN.arms
        for shard in PLAN.scored_shards(arm, wildcards.dimension)
    ]


def models_of_arms(wildcards):
    """The records of all arms' models."""
    return [PATHS.model(model) for model in PLAN.used_models]


def latency_results(wildcards):
    """Tables and figures of latencies, where the experiment asks for them."""
    return rules.latency.output if PLAN.experiment.timing else []


def search_results(wildcards):
    """Tables and figures of searches, where the experiment has some."""
    searches = PLAN.experiment.searches
    sheets = [PATHS.candidate_sheet(arm) for arm in searches]
    return [*rules.search.output, *sheets] if searches else []


def choices_of_arm(wildcards):
    """What all rounds of a search have chosen."""
    rounds = range(1, len(PLAN.experiment.searches[wildcards.arm].rounds) + 1)
    return [
        PATHS.choices(wildcards.arm, str(number), shard)
        for number in rounds
        for shard in PLAN.shards
    ]


def trials(wildcards):
    """The records of all trials."""
    return [
        PATHS.calibration(arm, str(batch))
        for arm in PLAN.experiment.generated
        for batch in batches.trial_batches(PLAN, arm)
    ]


def all_manifests(kind, candidates=True):
    """Stands for all manifests that hold records of one kind; without `candidates`, of the experiment's own arms."""

    def manifests(wildcards):
        found = manifests_of(PLAN, candidates=candidates)
        return [str(manifest) for manifest in found.get(kind, [])]

    return manifests


# Digests of what decides a job's result: Snakemake runs a job again when its digest changes, and only then.


def plan_digest(wildcards):
    return PLAN.digest


def generate_digest(wildcards):
    refuse_unsound_campaign()
    return PLAN.generate_digest(wildcards.arm, wildcards.shard)


@cache
def refuse_unsound_campaign():
    """Refuse batches that aren't frozen, and a fleet that would idle: not when planning, for trials are planned alike."""
    with plain_refusals():
        with located_in(workflow.configfiles):
            batches.refuse_unfrozen(PLAN)
        RUNTIME.refuse_idle_fleet(PLAN)


def calibration_digest(wildcards):
    return batches.calibration_digest(PLAN, wildcards.arm)


def videos_digest(wildcards):
    return PLAN.videos_digest(wildcards.arm, wildcards.shard)


def timing_digest(wildcards):
    return PLAN.timing_digest()


def score_digest(wildcards):
    return PLAN.score_digest(wildcards.arm, wildcards.dimension, wildcards.shard)


def model_digest(wildcards):
    return PLAN.models[wildcards.model].digest


def score_conda(wildcards):
    """The definition of the tool chain that computes a dimension."""
    return f"../envs/{PLAN.known[wildcards.dimension].toolchain}.yaml"


def score_gpus(wildcards):
    """A dimension without weights runs no model."""
    return GPUS if PLAN.known[wildcards.dimension].has_model else 0


def score_mem_mb(wildcards):
    """Room for the models that score, of which a checkpoint and the model are held together."""
    known = PLAN.known[wildcards.dimension]
    if known.verifier_mb is not None:
        return 3000 + 2 * known.verifier_mb
    return 12000 if known.has_model else 3000


def score_gpu_mem_mb(wildcards):
    """What a verifier's weights take of a device, which has to have more; the other models fit into any."""
    return (PLAN.known[wildcards.dimension].verifier_mb or 0) if GPUS else 0


def needs(rule, resource, default):
    """What the batch table has measured that a rule's jobs need, arm by arm; `default` where it has nothing."""

    def measured(wildcards):
        return batches.needs(PLAN, rule, wildcards.arm).get(resource, default)

    return measured


def one_of(arms):
    """What the wildcard of an arm may be in a rule that is for some arms alone; for none, it matches nothing."""
    return "|".join(map(re.escape, arms)) or "(?!)"


def show_remarks():
    """Say what is no mistake and yet to be known of the campaign that starts."""
    for remark in PLAN.remarks:
        logger.warning(f"Note: {remark}.")


def show_summary():
    """Print the campaign's tables, and where everything is."""
    print(summary_text(PLAN.experiment, PLAN.digest, workflow.configfiles))


# The comparison of encoders has plans of its own.

SIDE_PATHS = {side: comparison_paths(PATHS, side) for side in SIDES}
# The latents and frames are the same for both encoders.
FRAMES_PATHS = SIDE_PATHS["declared"]
# A pattern for the files of either.
EITHER = comparison_paths(PATHS, "{side}")


@cache
def comparison():
    """What the experiment wants compared; asked for only by jobs of this target."""
    with plain_refusals(), located_in(workflow.configfiles):
        return Comparison(PLAN)


def compared_generate_digest(wildcards):
    refuse_unsound_campaign()
    return comparison().declared.generate_digest(wildcards.arm, wildcards.shard)


def compared_frames_digest(wildcards):
    return comparison().frames_digest(wildcards.arm, wildcards.shard)


def compared_videos_digest(wildcards):
    return (
        comparison().plans[wildcards.side].videos_digest(wildcards.arm, wildcards.shard)
    )


def compared_score_digest(wildcards):
    return (
        comparison()
        .plans[wildcards.side]
        .score_digest(wildcards.arm, wildcards.dimension, wildcards.shard)
    )


def compared_scored_videos(wildcards):
    """The manifests that a score job of one side reads."""
    return scored_videos_of(comparison().plans[wildcards.side], wildcards)


def compared_manifests(kind, side):
    """Stands for all manifests of one kind of one side."""

    def manifests(wildcards):
        plan = comparison().plans[side]
        if kind == "fidelity":
            return [
                plan.paths.fidelity(arm, shard)
                for arm in plan.arms
                for shard in plan.shards
            ]
        return [str(manifest) for manifest in manifests_of(plan)[kind]]

    return manifests


def comparison_digest(wildcards):
    return comparison().digest
