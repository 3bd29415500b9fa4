"""The command of a job: Snakemake itself, for this one job, from the campaign's own sources."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.utils import format_cli_arg

from snakemake_executor_plugin_spool.sources import Sources

_MOST_INPUTS = 20
"""More inputs than this are listed in a file."""


class Commands:
    """Makes the commands of a campaign's jobs; what they have in common is worked out once."""

    def __init__(self, workflow: Any, common_settings: Any, sources: Sources, lists: Path):
        self._sources, self._lists = sources, lists
        factory = workflow.spawned_job_args_factory
        self._precommand: str = factory.precommand(executor_common_settings=common_settings)
        general = shlex.split(factory.general_args(executor_common_settings=common_settings))
        if sources.configfiles:
            # The last one holds: these stand in for the files that they are copies of.
            general += ["--configfiles", *map(str, sources.configfiles)]
        # Without a limit of its own, Snakemake would wait a second for its next chance to submit before it exits.
        self._general = [*general, "--max-jobs-per-timespan", "100000/0s", "--mode", "remote"]

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to run before Snakemake, so that a worker can start it warm."""
        return not self._precommand

    def command(self, job: Any, job_args: str, task_id: str) -> tuple[str, ...]:
        """The argument vector of a job; `job_args` are those that Snakemake has for it."""
        arguments = [
            sys.executable,
            # No working directory on the module path, as it isn't on that of the controller.
            *("-P", "-m", "snakemake", "--snakefile", str(self._sources.snakefile)),
            *shlex.split(job_args),
            *self._wait_for_files(job, task_id),
            *self._general,
        ]
        if self.is_plain:
            return tuple(arguments)
        return ("/bin/sh", "-c", f"{self._precommand} && exec {shlex.join(arguments)}")

    def _wait_for_files(self, job: Any, task_id: str) -> list[str]:
        """A node may see a file later than another one wrote it."""
        files = list(map(str, job.get_wait_for_files()))
        if len(files) <= _MOST_INPUTS:
            return shlex.split(format_cli_arg("--wait-for-files", files))
        listed = self._lists / task_id[-2:] / f"{task_id}.txt"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
        return ["--wait-for-files-file", str(listed)]
