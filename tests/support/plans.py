"""What tests ask of plans."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcraft.experiment.plan import Plan, Sample


def all_samples(plan: Plan) -> Iterator[Sample]:
    """Every sample of the experiment's arms, arm by arm and shard by shard."""
    for arm in plan.arms:
        for shard in plan.shards:
            yield from plan.samples(arm, shard)
