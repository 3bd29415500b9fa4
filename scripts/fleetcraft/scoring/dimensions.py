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
    """

    name: str
    label: str
    scorer: str
    toolchain: str
    packages: tuple[str, ...]
    pairwise: bool = False


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
        ),
    )
}
