"""The ffmpeg that makes, plays and compares all videos: which binary it is, and what it knows of pixel formats."""

from __future__ import annotations

import subprocess
from functools import cache

import imageio_ffmpeg

from fleetcraft.ground.digests import sha256_file
from fleetcraft.ground.errors import BadEnvironment

EXACT_SCALING = "flags=bicubic+bitexact"
"""Converts colours as common readers do, alike on all processors. `accurate_rnd` would take another, worse way to
planar colours."""


@cache
def ffmpeg_binary() -> tuple[str, str]:
    """Path and SHA-256 of the ffmpeg that imageio uses here."""
    path = imageio_ffmpeg.get_ffmpeg_exe()
    return path, sha256_file(path)


def check_ffmpeg(expected_sha256: str) -> None:
    """Refuse a binary other than the one whose digest is in the videos' keys."""
    path, sha256 = ffmpeg_binary()
    if sha256 != expected_sha256:
        raise BadEnvironment(
            "this ffmpeg is not the one that the encoder settings declare: its pixels may differ",
            file=path,
            value=sha256,
            remedy="Unset IMAGEIO_FFMPEG_EXE and run `make envs`, or declare this binary in resources/encoders.yaml",
        )


def ffmpeg_command(*arguments: str, level: str = "info") -> list[str]:
    """A call of ffmpeg that reads nothing from the terminal, uses one thread, and marks each message with its level."""
    binary, _ = ffmpeg_binary()
    common = ["-hide_banner", "-nostdin", "-nostats", "-loglevel", f"repeat+level+{level}", "-threads", "1"]
    return [binary, *common, "-filter_threads", "1", "-filter_complex_threads", "1", *arguments]


@cache
def pixel_formats() -> dict[str, tuple[int, bool]]:
    """Name of a pixel format → (bits of its deepest channel, whether it has an alpha channel)."""
    answer = subprocess.run(ffmpeg_command("-pix_fmts"), capture_output=True, text=True, check=True)
    _, _, table = answer.stdout.partition("-----\n")
    formats = {}
    for line in table.splitlines():
        _, name, channels, _, depths = line.split()
        formats[name] = (max(int(bits) for bits in depths.split("-")), channels in ("2", "4"))
    return formats
