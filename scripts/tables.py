"""Compute every table from the records alone, and what VBench would write of them."""

from pathlib import Path

from fleetcraft.analysis.encodings import mixed_arms, not_compared
from fleetcraft.analysis.tables import make_tables, read_results
from fleetcraft.analysis.vbench import official_results, vbench_table
from fleetcraft.ground.files import write_text
from fleetcraft.stages.launch import analysis

with analysis(snakemake) as plan:
    manifests = [*snakemake.input.latents, *snakemake.input.videos, *snakemake.input.scores]
    results = read_results(plan.document(), manifests)
    for arm, reason in not_compared(results).items():
        print(f"tables: warning: {arm} is not compared with {plan.baseline}: {reason}")
    for arm, remark in mixed_arms(results).items():
        print(f"tables: warning: {arm}: {remark}")
    for name, text in {**make_tables(results), "vbench": vbench_table(results)}.items():
        write_text(Path(snakemake.output[name]), text)
    for arm, text in official_results(results).items():
        write_text(Path(plan.paths.vbench_results(arm)), text)
