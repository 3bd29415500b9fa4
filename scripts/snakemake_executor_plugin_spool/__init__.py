"""Snakemake's executor plugin `spool`: jobs reach workers through a directory on a shared file system."""

# No postponed annotations and no `X | None`: Snakemake makes command line options of the fields' types.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from snakemake_executor_plugin_spool.executor import Executor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """The settings; each is a command line option `--spool-<name>`."""

    dir: Optional[Path] = field(
        default=None,
        metadata={
            "help": "Directory of the spool, on a file system that all workers share. A campaign that starts again on "
            "the same spool goes on with what still waits and runs there. "
            "Default: .snakemake/spool/<the configuration's `name`>.",
            "env_var": False,
            "required": False,
        },
    )
    fleet: str = field(
        default="local",
        metadata={
            "help": "How workers come to be. local: started on this machine when there is work, and stopped at the "
            "end. slurm: in allocations that are submitted as --spool-fleet-file says. inside: on all nodes of the "
            "allocation that this is started in. none: you start them, with `fleetcraft worker`.",
            "env_var": False,
            "required": False,
        },
    )
    fleet_file: Optional[Path] = field(
        default=None,
        metadata={
            "help": "The lanes of a fleet on Slurm, what the site allows, and the budget; see profiles/README.md.",
            "env_var": False,
            "required": False,
        },
    )
    lane: Optional[str] = field(
        default=None,
        metadata={
            "help": "Which lane of the fleet file describes the nodes of a fleet `inside`. Default: the first one of "
            "the allocation's partition.",
            "env_var": False,
            "required": False,
        },
    )
    workers: int = field(
        default=1,
        metadata={"help": "Workers of the local fleet.", "env_var": False, "required": False},
    )
    worker_cores: Optional[int] = field(
        default=None,
        metadata={
            "help": "Cores of each local worker. Default: those of --cores, or else this machine's, shared equally.",
            "env_var": False,
            "required": False,
        },
    )
    worker_gpus: Optional[int] = field(
        default=None,
        metadata={
            "help": "GPUs of each local worker. Default: this machine's, shared equally.",
            "env_var": False,
            "required": False,
        },
    )
    worker_mem_mb: Optional[int] = field(
        default=None,
        metadata={
            "help": "Memory of each local worker [MB]. Default: what this process may use, shared equally.",
            "env_var": False,
            "required": False,
        },
    )
    idle_timeout: int = field(
        default=60,
        metadata={
            "help": "Seconds without work after which a local worker leaves; it is started again when there is some.",
            "env_var": False,
            "required": False,
        },
    )
    runtime: int = field(
        default=1440,
        metadata={
            "help": "Longest run [minutes] of jobs whose rule has no resource `runtime`.",
            "env_var": False,
            "required": False,
        },
    )
    poll: float = field(
        default=1.0,
        metadata={
            "help": "Longest pause [s] between looks for results. After each result they come faster for a while.",
            "env_var": False,
            "required": False,
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    # The worker sets the variables of a job itself, so that they appear on no command line.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)
