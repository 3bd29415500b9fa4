"""The registry of dimensions: what a score is called, what computes it, and where."""

from __future__ import annotations

from dataclasses import dataclass


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
            label="VBench temporal flickering (0–1, higher is steadier)",
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
