"""What a dry run of a large campaign costs: in shards, and beside it with one job a sample and stage.

    .venv/bin/python tests/benchmarks/dry_run.py

Prints a row a variant: jobs, wall seconds and peak memory of `snakemake -n`, a fresh process each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

EXPERIMENT = """
name: large
paths: {{scratch: {directory}/scratch, work: {directory}/work}}
stack: {{device: cpu}}
models:
  tiny-wan: {{family: wan, source: {{tiny: true}}}}
arms:
  full: {{model: tiny-wan, steps: 8}}
  cached: {{model: tiny-wan, steps: 8, cache: {{type: first_block, threshold: 0.2}}}}
baseline: full
prompts: {{suite: vbench}}
seeds: {seeds}
video: {{width: 64, height: 64, frames: 9, fps: 8}}
scoring: {{dimensions: [ssim]}}
shard_size: {shard_size}
"""


def dry_run(directory: Path, seeds: int, shard_size: int) -> tuple[int, float, float]:
    """Jobs, wall seconds and peak memory in MB of a dry run of 2 arms × 944 prompts × `seeds`."""
    experiment = directory / "large.yaml"
    experiment.write_text(EXPERIMENT.format(directory=directory, seeds=list(range(seeds)), shard_size=shard_size))
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--directory", str(directory)]
    command += ["--snakefile", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles/default")]
    start = time.monotonic()
    process = subprocess.Popen(
        [*command, "--configfile", str(experiment)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        raise SystemExit(f"the dry run failed with status {os.waitstatus_to_exitcode(status)}")
    from fleetcraft.experiment.config import plan_of_file

    plan = plan_of_file(experiment)
    return sum(plan.jobs.values()), seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=17, help="seeds; 17 make 32,096 samples (default: %(default)s)")
    parser.add_argument("--shard-sizes", type=int, nargs="+", default=[64, 16, 1], help="variants to measure")
    chosen = parser.parse_args()
    print(f"2 arms × 944 prompts × {chosen.seeds} seeds = {2 * 944 * chosen.seeds:,} samples")
    print(f"{'shard_size':>10} {'jobs':>9} {'seconds':>9} {'peak MB':>9}")
    for shard_size in chosen.shard_sizes:
        with tempfile.TemporaryDirectory() as directory:
            jobs, seconds, memory = dry_run(Path(directory), chosen.seeds, shard_size)
        print(f"{shard_size:>10} {jobs:>9,} {seconds:>9.1f} {memory:>9.0f}", flush=True)


if __name__ == "__main__":
    main()
