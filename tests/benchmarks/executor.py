"""How fast the executor `spool` is beside Snakemake's own local executor, in the same run on this machine.

    PYTHONPATH=scripts python tests/benchmarks/executor.py [--jobs 200] [--slots 4] [--cluster-generic]

One-line jobs, all ready at once. Prints one JSON object: seconds and jobs a second from start to end of Snakemake, jobs
a second between the first and the last end of a job (workers are up by then), and the ratios. `local` is the local
executor as it comes, which starts 100 jobs a second at most; `local-unlimited` is without that limit. With
`--cluster-generic` also through that plugin, polling every second, where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNAKEFILE = """
rule all:
    input: expand("out/{i}.txt", i=range(int(config["jobs"])))
rule one_line:
    output: "out/{i}.txt"
    log: "logs/{i}.log"
    shell: "echo {wildcards.i} > {output}"
"""


def measure(name: str, jobs: int, options: list[str]) -> dict[str, float]:
    """Run the workflow in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix=f"benchmark-{name}-") as directory:
        Path(directory, "Snakefile").write_text(SNAKEFILE)
        Path(directory, "submit.sh").write_text('bash "$1" > /dev/null 2>&1 &\necho $!\n')
        command = [
            *(sys.executable, "-P", "-m", "snakemake", "--scheduler", "greedy", "--config", f"jobs={jobs}"),
            *("--default-resources", "mem_mb=100"),
            *options,
        ]
        start = time.monotonic()
        answer = subprocess.run(
            command,
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        total_s = time.monotonic() - start
        made = list(Path(directory, "out").glob("*.txt"))
        if answer.returncode != 0 or len(made) != jobs:
            raise SystemExit(
                f"{name}: {len(made)} of {jobs} jobs, exit code {answer.returncode}\n{answer.stdout[-4000:]}"
            )
        ends = sorted(path.stat().st_mtime for path in made)
    return {
        "total_s": round(total_s, 2),
        "jobs_per_s_in_all": round(jobs / total_s, 1),
        "first_to_last_s": round(ends[-1] - ends[0], 2),
        "jobs_per_s": round((jobs - 1) / (ends[-1] - ends[0]), 1),
        # The second half: every template has learned by then.
        "settled_jobs_per_s": round(jobs / 2 / (ends[-1] - ends[jobs // 2 - 1]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--cluster-generic", action="store_true")
    arguments = parser.parse_args()
    slots = str(arguments.slots)
    unlimited = ["--max-jobs-per-timespan", "10000/1s"]
    spool = [
        *unlimited,
        "--executor",
        "spool",
        "--jobs",
        str(arguments.jobs),
        "--spool-worker-cores",
        slots,
        "--spool-poll",
        "0.2",
    ]
    results = {
        "local": measure("local", arguments.jobs, ["--cores", slots]),
        "local-unlimited": measure("local-unlimited", arguments.jobs, [*unlimited, "--cores", slots]),
        "spool": measure("spool", arguments.jobs, spool),
    }
    if arguments.cluster_generic:
        if importlib.util.find_spec("snakemake_executor_plugin_cluster_generic") is None:
            raise SystemExit("snakemake-executor-plugin-cluster-generic is not installed")
        options = ["--executor", "cluster-generic", "--jobs", slots, "--seconds-between-status-checks", "1"]
        results["cluster-generic"] = measure(
            "cluster-generic", arguments.jobs, [*options, "--cluster-generic-submit-cmd", "sh submit.sh"]
        )
    report: dict[str, object] = {"jobs": arguments.jobs, "slots": arguments.slots, **results}
    for name in results.keys() - {"spool"}:
        report[f"spool_to_{name}"] = round(results["spool"]["jobs_per_s"] / results[name]["jobs_per_s"], 2)
        report[f"spool_to_{name}_in_all"] = round(results[name]["total_s"] / results["spool"]["total_s"], 2)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
