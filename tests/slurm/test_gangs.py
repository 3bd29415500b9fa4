"""Gangs on a real Slurm: one job step on all of their nodes, while the others go on."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet_runs import Campaign, campaign, codes, fleet_document, lane
from journal_checker import check_gangs, intervals, kept_nodes
from slurm_cluster import NODES, SlurmCluster

from fleetcraft.spool import Request, State

THREE = Request(runtime_s=60, nodes=3, access="exclusive")
STEP = f"{sys.executable} -P -m fleetcraft.cli.main gang -- "
MEET = 'echo "$SLURM_PROCID $SLURMD_NODENAME $MASTER_ADDR:$MASTER_PORT" >> met'


def whole(directory: Path) -> dict[str, object]:
    """One lane whose allocations have all four nodes."""
    return fleet_document(directory, {"main": lane(nodes={"min": 4, "max": 4}, idle_timeout_s=6)})


def test_a_gang_meets_on_three_nodes_while_the_fourth_keeps_scoring(cluster: SlurmCluster, directory: Path) -> None:
    with campaign(directory, cluster, whole(directory)) as run:
        run.enqueue({f"score{index}": "sleep 0.5" for index in range(150)}, priority=400)
        run.enqueue({"train": f"{STEP} sh -c '{MEET}; sleep 4'"}, request=THREE)
        results = run.finish(151)
        assert {result.state for result in results.values()} == {State.DONE}, [r.problem for r in results.values()]
        run.check()
        assert check_gangs(run.spool.root) == []
    met = [line.split() for line in (directory / "met").read_text().splitlines()]
    assert sorted(rank for rank, *_ in met) == ["0", "1", "2"]
    nodes = {node for _, node, _ in met}
    assert len(nodes) == 3
    [place] = {place for *_, place in met}
    assert place.split(":")[0] in nodes, "they meet on the leader's node"
    [train] = [run for run in intervals(run.spool.root) if run.task == "train"]
    assert {kept.host for kept in kept_nodes(run.spool.root)} == nodes - {train.host}
    [fourth] = set(NODES) - nodes
    beside = [r for r in intervals(run.spool.root) if r.host == fourth and train.start_s < r.start_s < train.end_s]
    assert len(beside) > 5, "the fourth node went on"


def test_a_gang_that_loses_a_node_runs_again_and_no_retry_is_used(cluster: SlurmCluster, directory: Path) -> None:
    script = f"{STEP} sh -c 'echo >> begun; while [ ! -e go ]; do sleep 0.1; done'"
    with campaign(directory, cluster, whole(directory)) as run:
        run.enqueue({"train": script}, request=THREE)
        run.run_until(lambda: begun(run) == 3)
        member = kept_nodes(run.spool.root)[0].host
        job = run.controller.living[0].job
        steps = cluster.steps(str(job))
        # The worker's own step, and then the gang's, as when the node is lost.
        cluster.run("scancel", f"{job}.{next(step for step, node in steps.items() if node == member)}")
        [step] = [step for step, node in steps.items() if node not in NODES]
        cluster.run("scancel", f"{job}.{step}", check=False)
        (directory / "go").touch()
        results = run.finish(1)
        ends = [end for end in codes(list(results.values())) if not end.startswith("returned: ")]
        assert len(ends) == 2, ends
        assert ends[0].startswith("interrupted: ")
        assert ends[0].endswith(" left its gang")
        assert ends[1] == "succeeded: succeeded"


def begun(run: Campaign) -> int:
    path = run.directory / "begun"
    return len(path.read_text().splitlines()) if path.exists() else 0
