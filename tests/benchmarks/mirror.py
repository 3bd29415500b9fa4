"""How fast a checkpoint is verified, beside `sha256sum` on the same files, and what it costs the next time.

    python tests/benchmarks/mirror.py [--files 8] [--gigabytes 0.5] [--directory /scratch]

Files are read once before, so that all figures are of digests and not of the disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetcraft.mirror.digests import verify_digests
from fleetcraft.mirror.memory import Memory
from fleetcraft.mirror.sums import read_sums


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--gigabytes", type=float, default=0.5, help="of each file")
    parser.add_argument("--directory", type=Path, help="where the files are made and removed")
    chosen = parser.parse_args()
    with TemporaryDirectory(dir=chosen.directory) as name:
        directory, total = Path(name) / "files", chosen.files * chosen.gigabytes
        directory.mkdir()
        block = os.urandom(2**20)
        for number in range(chosen.files):
            with (directory / f"{number}.bin").open("wb") as file:
                for _ in range(int(chosen.gigabytes * 1e9 / len(block))):
                    file.write(block)
        listed = ["bash", "-c", "sha256sum *.bin > SHA256SUMS"]
        subprocess.run(listed, cwd=directory, check=True)
        took = seconds(lambda: subprocess.run(listed, cwd=directory, check=True))
        print(f"{'sha256sum':<24}{took:8.2f} s {total / took:6.2f} GB/s")
        files = read_sums(directory)
        for readers in (1, 2, 4):
            memory = Memory(Path(name) / f"cache-{readers}")
            took = seconds(lambda memory=memory, readers=readers: verify_digests(directory, files, memory, readers))
            again = seconds(lambda memory=memory, readers=readers: verify_digests(directory, files, memory, readers))
            name_of_run = f"verified, {readers} readers"
            print(f"{name_of_run:<24}{took:8.2f} s {total / took:6.2f} GB/s; again {again * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
