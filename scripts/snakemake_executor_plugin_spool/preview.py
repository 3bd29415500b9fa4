"""What a campaign would ask of its workers: `python -m snakemake_executor_plugin_spool.preview OUT.json [ARGUMENT…]`.

Makes a dry run of Snakemake with these arguments, and writes class of request → number of jobs.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from snakemake.cli import main as snakemake
from snakemake.executors import dryrun

from snakemake_executor_plugin_spool import ExecutorSettings
from snakemake_executor_plugin_spool.request import request_of


def main(arguments: list[str]) -> int:
    """Run it; the exit code of the dry run."""
    out, *rest = arguments
    counts: Counter[str] = Counter()
    run_job = dryrun.Executor.run_job

    def collect(self: Any, job: Any) -> None:
        # In a dry run every job counts as local. What makes nothing, as a target does, is run by nobody.
        if job.output:
            counts[request_of(job, ExecutorSettings.runtime).class_name] += 1
        run_job(self, job)

    dryrun.Executor.run_job = collect
    try:
        snakemake([*rest, "--dry-run", "--quiet", "all"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    if code == 0:
        Path(out).write_text(json.dumps(counts, sort_keys=True), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
