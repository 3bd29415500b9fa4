"""Run the stage of one job description, in the interpreter of its tool chain."""

from __future__ import annotations

import faulthandler
import sys
from importlib import import_module
from pathlib import Path

from fleetcraft.stages.job import Job
from fleetcraft.stages.launch import explained


def main() -> None:
    """The command line is the path of a job description."""
    # A crash outside Python shows in the log where it came from.
    faulthandler.enable()
    with explained():
        job = Job.read(Path(sys.argv[-1]))
        import_module(f"fleetcraft.stages.{job.stage}").run(job)


if __name__ == "__main__":
    main()
