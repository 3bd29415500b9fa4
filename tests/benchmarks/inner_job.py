"""What a job costs to start, cold and warm, with the demo and with an experiment of 31,000 samples.

    PYTHONPATH=scripts python tests/benchmarks/inner_job.py [--jobs 20]

A one-line rule beside this repository's own rules, whose params ask for the digest of one shard, is run by a worker as
the executor would have it run. Prints one JSON object: CPU and wall seconds of a job, the medians. The cost must not
grow with the campaign.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from fleetcraft.cli.spool import SNAKEMAKE_CALLS
from fleetcraft.experiment.config import plan_of_file
from fleetcraft.spool import Producer, ResultScanner, Spool, State, TaskSpec, Writer
from fleetcraft.worker.agent import Agent
from fleetcraft.worker.inventory import Inventory
from fleetcraft.worker.settings import Settings
from fleetcraft.worker.warm import LAUNCHER, WarmStarter

ROOT = Path(__file__).resolve().parents[2]
SNAKEFILE = f"""
include: "{ROOT}/Snakefile"
rule one_line:
    output: "one/{{number}}/{{arm}}.{{shard}}.txt"
    log: "logs/{{number}}/{{arm}}.{{shard}}.log"
    params: digest=generate_digest
    shell: "echo {{params.digest}} > {{output}}"
"""
GENERAL = (
    *("--allowed-rules", "one_line", "--cores", "1", "--attempt", "1", "--force-use-threads", "--force"),
    *("--target-files-omit-workdir-adjustment", "--max-inventory-time", "0", "--nocolor", "--no-hooks", "--nolock"),
    *("--ignore-incomplete", "--scheduler", "greedy", "--max-jobs-per-timespan", "100000/0s", "--mode", "remote"),
)


def large(directory: Path) -> Path:
    """The demo with all prompts of the suite and 17 seeds: 32,096 samples."""
    text = (ROOT / "config/config.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("prompts:", "seeds:"))]
    path = directory / "large.yaml"
    path.write_text("\n".join([*lines, "prompts: {suite: vbench}", f"seeds: {list(range(17))}", ""]))
    return path


def measure(directory: Path, experiment: Path, launcher: str, jobs: int) -> dict[str, float]:
    """Medians over jobs; of the warm ones over those that came after the template had learned."""
    plan = plan_of_file(experiment)
    shard = next(iter(plan.shards))
    spool = Spool.create(directory / f"spool-{experiment.stem}-{launcher}", "benchmark")
    specs = []
    for number in range(jobs):
        target = f"one_line:number={launcher}{number},arm={plan.baseline},shard={shard}"
        command = (sys.executable, "-P", "-m", "snakemake", "--snakefile", str(directory / "Snakefile"), *GENERAL)
        specs.append(
            TaskSpec(
                f"job-{number:04d}",
                (*command, "--target-jobs", target, "--configfiles", str(experiment)),
                str(directory),
                launcher=launcher,
                environment={"PYTHONPATH": str(ROOT / "scripts")},
            )
        )
    with Writer(spool, "benchmark") as writer:
        Producer(writer).enqueue(specs)
    child = os.fork()
    if child == 0:
        starters = {LAUNCHER: WarmStarter(calls=SNAKEMAKE_CALLS)}
        Agent(spool, Inventory(1, 4000), Settings(idle_timeout_s=0.2), starters=starters).run()
        os._exit(0)
    os.waitpid(child, 0)
    results = ResultScanner(spool).poll()
    if [result.state for result in results] != [State.DONE] * jobs:
        raise SystemExit(f"jobs failed: {[result.problem for result in results][:3]}, see {spool.root}/logs")
    measured = [result.ending.measured for result in sorted(results, key=lambda r: r.ending.ended_s)]  # type: ignore[union-attr,arg-type,return-value]
    later = measured[jobs // 2 :]
    return {
        "cpu_s": round(statistics.median(entry["cpu_s"] for entry in later), 4),
        "wall_s": round(statistics.median(entry["wall_s"] for entry in later), 4),
        "first_cpu_s": measured[0]["cpu_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="benchmark-inner-job-") as name:
        directory = Path(name)
        (directory / "Snakefile").write_text(SNAKEFILE)
        os.chdir(directory)
        experiments = {"demo": ROOT / "config/config.yaml", "large": large(directory)}
        report: dict[str, object] = {}
        for label, experiment in experiments.items():
            plan = plan_of_file(experiment)
            report[label] = {
                "samples": plan.sample_count,
                "shards": len(plan.shards),
                "warm": measure(directory, experiment, LAUNCHER, jobs),
                "cold": measure(directory, experiment, "command", max(4, jobs // 4)),
            }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
