"""Code in VBench's tool chain, and videos by the ffmpeg that encodes."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

from campaigns import ROOT

from fleetcraft.ground.toolchain import clean_environment

PYTHON = ROOT / ".envs/vbench/bin/python"

_WHERE = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())"


def command(code: str, *arguments: object) -> list[str]:
    """What runs `code` there; its first argument is the directory of the library."""
    return [str(PYTHON), "-P", "-W", "ignore", "-c", code, str(ROOT / "scripts"), *map(str, arguments)]


def answer(code: str, *arguments: object) -> Any:
    """The JSON that `code` prints last."""
    done = subprocess.run(
        command(code, *arguments), capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def ffmpeg(*arguments: object) -> None:
    subprocess.run([_ffmpeg(), "-v", "error", "-y", *map(str, arguments)], check=True)


@cache
def _ffmpeg() -> str:
    python = ROOT / ".envs/diffusion/bin/python"
    return subprocess.run([python, "-c", _WHERE], check=True, capture_output=True, text=True).stdout.strip()
