"""Running a program on all nodes of a gang, from the task that has them: one job step of its allocation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.failures import FAILURE_FILE


def gang_command(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Argument vector and environment of the step: the command once on each node, and nowhere else.

    `SLURM_PROCID` tells the nodes apart; `MASTER_ADDR` and `MASTER_PORT` are where they meet.

    Raises
    ------
    BadInput : this process is no task of a gang.
    """
    hosts = [host for host in environment.get("FLEETCRAFT_GANG", "").split(",") if host]
    if not hosts or not environment.get("SLURM_JOB_ID"):
        raise BadInput(
            "this isn't the task of a gang in an allocation",
            remedy="Give the rule the resource nodes, or the task --nodes, and run it on a fleet on Slurm",
        )
    if not command:
        raise BadInput("there is nothing to run", remedy="Write the command after --")
    nodes = str(len(hosts))
    step = ["srun", "--overlap", "--exact", "--kill-on-bad-exit=1", "--input=none", "--export=ALL", f"--nodes={nodes}"]
    step += [f"--ntasks={nodes}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--"]
    # Each node has all of its own devices, under names that the leader's node doesn't know.
    kept = {name: value for name, value in environment.items() if name not in _OF_ONE_NODE}
    return [*step, *command], kept


_OF_ONE_NODE = frozenset({"CUDA_VISIBLE_DEVICES", "FLEETCRAFT_SLOT", "FLEETCRAFT_NODE_FILE", FAILURE_FILE})


def run_gang(command: Sequence[str]) -> None:
    """Become the step."""
    arguments, environment = gang_command(command, os.environ)
    os.execvpe(arguments[0], arguments, environment)
