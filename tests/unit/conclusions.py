"""A finished campaign whose records are made up, and its evidence."""

from __future__ import annotations

import itertools
from pathlib import Path

from fleetcraft.analysis.tables import make_tables, read_results
from fleetcraft.analysis.vbench import official_results, vbench_table
from fleetcraft.evidence.archive import archive, manifests_of
from fleetcraft.experiment.plan import Plan
from fleetcraft.ground.files import write_text
from fleetcraft.ground.records import Record, write_records


def conclude(plan: Plan) -> Plan:
    """Leave records as a campaign would have, and what is concluded from them. Videos of even seeds are still."""
    for arm, shard in itertools.product(plan.arms, plan.shards):
        records: dict[str, list[Record]] = {"latents": [], "videos": [], **{name: [] for name in plan.dimensions}}
        for sample in plan.samples(arm, shard):
            about = {"arm": arm, "prompt": sample.prompt.text, "seed": sample.seed, "sample": sample.sample_id}
            done = {"full": 8, "cached": 5}[arm]
            work = {"forwards": 4, "blocks_computed": done, "blocks_possible": 8}
            encoder = {"codec": "libx264", "pixel_format": "yuv420p", "crf": 18}
            video = {"key": plan.video_key(sample), "sha256": "0" * 64, "bytes": 9, "shape": [5, 32, 32, 3]}
            value = {"full": 0.9, "cached": 0.91}[arm] + sample.seed / 100 + len(sample.prompt.text) / 1000
            values = {"temporal_flickering": value, "static_filter": float(sample.seed % 2 == 0)}
            records["latents"].append({"kind": "latents", "work": work, **about})
            records["videos"].append({"kind": "videos", "encoder": encoder, **video, **about})
            for name in plan.dimensions:
                score = {"dimension": name, "video": plan.video_key(sample), "value": values.get(name, value)}
                score["key"] = plan.score_key(sample, name)
                records[name].append({"kind": "scores", **score, **about})
        write_records(Path(plan.paths.latents(arm, shard)), records["latents"])
        write_records(Path(plan.paths.videos(arm, shard)), records["videos"])
        for name in plan.dimensions:
            write_records(Path(plan.paths.scores(arm, name, shard)), records[name])
    for model in plan.used_models:
        write_records(Path(plan.paths.model(model)), [])
    found = manifests_of(plan)
    results = read_results(plan.document(), [*found["latents"], *found["videos"], *found["scores"]])
    tables = {**make_tables(results), "vbench": vbench_table(results)}
    for name, text in tables.items():
        write_text(Path(plan.paths.table(name)), text)
    official = official_results(results)
    for arm, text in official.items():
        write_text(Path(plan.paths.vbench_results(arm)), text)
    archive(
        plan,
        tables=[Path(plan.paths.table(name)) for name in tables],
        figures=[],
        vbench=[Path(plan.paths.vbench_results(arm)) for arm in official],
    )
    return plan
