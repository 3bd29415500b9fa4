"""The registry of dimensions that can be scored: what a score is called, what computes it, and where.

A name that `vbench_dimensions` has is VBench's score and enters its totals. What stands in for one, with other weights
than upstream's for example, is another dimension: `proxy-` and the name.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetcraft.scoring.vbench_dimensions import VBENCH


@dataclass(frozen=True)
class Dimension:
    """A score of one video.

    label : as figures and tables name it, with its unit or range.
    scorer : module under `fleetcraft.scoring` with a `score` function.
    toolchain : the environment that it runs in.
    packages : those of the tool chain whose versions can change the score.
    pairwise : it compares the video with the baseline arm's video of the same prompt and seed.
    any_prompt : it suits every prompt, also those that a suite has for other dimensions.
    version : of our own code that computes it from what ffmpeg plays, raised when its values change. It is part of the
        score's key then, with the digest of that ffmpeg.
    """

    name: str
    label: str
    scorer: str
    toolchain: str
    packages: tuple[str, ...]
    pairwise: bool = False
    any_prompt: bool = False
    version: int | None = None


DIMENSIONS = {
    dimension.name: dimension
    for dimension in (
        Dimension(
            "temporal_flickering",
            label=VBENCH["temporal_flickering"].label,
            scorer="vbench",
            toolchain="vbench",
            packages=("vbench", "numpy", "opencv-python"),
        ),
        Dimension(
            "ssim",
            label="SSIM to the baseline's video (0–1, 1 is identical)",
            scorer="ssim",
            toolchain="diffusion",
            packages=("imageio-ffmpeg",),
            pairwise=True,
            any_prompt=True,
        ),
        Dimension(
            "psnr",
            label="PSNR to the baseline's video (dB, 100 is identical)",
            scorer="fidelity",
            toolchain="diffusion",
            packages=("imageio-ffmpeg",),
            pairwise=True,
            any_prompt=True,
            version=1,
        ),
        Dimension(
            "vmaf",
            label="VMAF to the baseline's video (0–100, higher is closer)",
            scorer="fidelity",
            toolchain="diffusion",
            packages=("imageio-ffmpeg",),
            pairwise=True,
            any_prompt=True,
            version=1,
        ),
        Dimension(
            "mean_frame_difference",
            label="Mean difference of consecutive frames (0–255, lower is steadier)",
            scorer="frame_difference",
            toolchain="diffusion",
            packages=("imageio-ffmpeg", "numpy"),
            any_prompt=True,
            version=1,
        ),
    )
}
