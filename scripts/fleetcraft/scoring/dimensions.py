"""The registry of dimensions that can be scored: what a score is called, what computes it, and where.

Verifiers that an experiment names are dimensions beside these (`verifiers`).

A name that `vbench_dimensions` has is VBench's score and enters its totals. What stands in for one that needs weights,
with other weights than upstream's, is another dimension: `proxy-` and the name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fleetcraft.ground.errors import BadEnvironment
from fleetcraft.ground.machine import Architecture
from fleetcraft.ground.toolchain import Toolchain
from fleetcraft.scoring.vbench_dimensions import VBENCH

Better: TypeAlias = Literal["highest", "lowest"]
"""Which scores are better: where videos are chosen by them, those are taken."""

PROXY = "proxy-"
"""How the names of dimensions begin that run upstream's code with other weights than upstream's."""


STATIC_FILTER = "static_filter"
"""The dimension that says which videos are still enough to count in temporal_flickering."""

READER = 1
"""The version of `decord_reader`, which stands in for decord where there is none; raised when its pixels change."""

_INSTEAD: dict[Architecture, dict[str, str]] = {"x86_64": {}, "aarch64": {"decord": "av"}}
"""What stands in for packages that an architecture doesn't have."""


def has_decord(machine: Architecture) -> bool:
    """Whether VBench's code finds the reader of videos there that it imports."""
    return "decord" not in _INSTEAD[machine]


@dataclass(frozen=True)
class Dimension:
    """A score of one video.

    label : as figures and tables name it, with its unit or range.
    better : which of its values are.
    scorer : module under `fleetcraft.scoring` with a `score` function.
    toolchain : the environment that it runs in.
    packages : those of the tool chain whose versions can change the score; `packages_on` has them for an architecture.
    provided : packages of the same kind that no index has: a site builds them and adds their pins.
    pairwise : it compares the video with the baseline arm's video of the same prompt and seed.
    any_prompt : it suits every prompt, also those that a suite has for other dimensions.
    version : of our own code that computes it from what ffmpeg plays, raised when its values change. It is part of the
        score's key then, with the digest of that ffmpeg.
    weights : the name under which resources/weights.yaml has the files that it needs; None where it needs none.
    verifier_mb : of a verifier, what its weights take in memory, in MiB.
    prompts_of : the dimension that a suite has its prompts for, where that has another name.
    suite_only : it asks for what the suite says of its prompts, so other prompts can't be scored in it.
    frames : how many frames a video must have, of those that are looked at.
    side : how many pixels the sides of a video must have.
    paced : it looks at about 8 frames a second, whatever the video's rate.
    scaled : it has its frames scaled as they are read.
    """

    name: str
    label: str
    scorer: str
    toolchain: str
    packages: tuple[str, ...]
    better: Better = "highest"
    provided: tuple[str, ...] = ()
    pairwise: bool = False
    any_prompt: bool = False
    version: int | None = None
    weights: str | None = None
    verifier_mb: int | None = None
    prompts_of: str | None = None
    suite_only: bool = False
    frames: int = 1
    side: int = 2
    paced: bool = False
    scaled: bool = False

    @property
    def has_model(self) -> bool:
        """Whether a model with weights computes it, on the experiment's device."""
        return self.weights is not None or self.verifier_mb is not None

    def packages_on(self, machine: Architecture) -> tuple[str, ...]:
        """`packages` on nodes of an architecture."""
        return tuple(_INSTEAD[machine].get(name, name) for name in self.packages)

    def reader_on(self, machine: Architecture) -> int | None:
        """The version of the reader of ours that its frames come from there, if they do."""
        return READER if set(_INSTEAD[machine]) & set(self.packages) else None

    @property
    def proxy(self) -> bool:
        return self.name.startswith(PROXY)

    @property
    def suited(self) -> str:
        """The name under which a suite has its prompts."""
        return self.prompts_of or self.name.removeprefix(PROXY)

    def suits(self, dimensions: Collection[str]) -> bool:
        """Whether it suits a prompt that a suite has for `dimensions`; none are those of a prompt of the user's own."""
        return not dimensions or self.any_prompt or self.suited in dimensions

    def fewest_frames(self, fps: int) -> int:
        """How many frames a video of this rate must have."""
        # As upstream strides: one frame of so many, the first among them.
        return (self.frames - 1) * (max(1, round(fps / 8)) if self.paced else 1) + 1

    def unprovided(self) -> BadEnvironment | None:
        """What to do where the site doesn't provide what no index has; None where it does."""
        toolchain = Toolchain(self.toolchain)
        lacking = [name for name in self.provided if name not in toolchain.pins]
        if not lacking:
            return None
        return BadEnvironment(
            f"{self.name} needs {', '.join(lacking)}, which no package index has and this definition doesn't pin",
            file=toolchain.definition,
            remedy="Build its wheel against the pinned torch, pin it there, and run `make envs` with PIP_FIND_LINKS"
            " naming the wheel's directory; or leave this dimension out",
        )


_TORCH = ("vbench", "numpy", "torch", "torchvision", "pillow", "decord")
_CLIP = (*_TORCH, "openai-clip")
_VICLIP = (*_CLIP, "einops", "timm", "ftfy", "regex")
_GRIT = (*_TORCH, "opencv-python", "transformers", "timm", "einops")


@dataclass(frozen=True)
class _Scored:
    """How upstream's code scores a dimension of its own; the fields are those of `Dimension`."""

    packages: tuple[str, ...]
    provided: tuple[str, ...] = ()
    weights: bool = True
    suite_only: bool = False
    frames: int = 1
    side: int = 2
    paced: bool = False
    scaled: bool = False


_OPTICAL = ("vbench", "numpy", "torch", "opencv-python")

_SCORED = {
    "subject_consistency": _Scored(_TORCH, frames=2),
    "background_consistency": _Scored(_CLIP, frames=2),
    "temporal_flickering": _Scored(("vbench", "numpy", "opencv-python"), weights=False, frames=2),
    # Every second frame is interpolated from its neighbours. Of the pyramids of this one and the next, the coarsest has
    # one pixel of 64, and they divide by how many there are besides.
    "motion_smoothness": _Scored((*_OPTICAL, "omegaconf"), frames=3, side=128),
    # Of fewer than three frames, upstream asks for none that moves, and says of every video that it does.
    "dynamic_degree": _Scored((*_OPTICAL, "scipy"), frames=3, side=128, paced=True),
    "aesthetic_quality": _Scored(_CLIP),
    "imaging_quality": _Scored((*_TORCH, "pyiqa")),
    "object_class": _Scored(_GRIT, provided=("detectron2",), suite_only=True),
    "multiple_objects": _Scored(_GRIT, provided=("detectron2",), suite_only=True),
    "human_action": _Scored((*_TORCH, "opencv-python", "timm", "einops")),
    "color": _Scored(_GRIT, provided=("detectron2",), suite_only=True),
    "spatial_relationship": _Scored(_GRIT, provided=("detectron2",), suite_only=True),
    "scene": _Scored((*_TORCH, "transformers", "timm", "fairscale"), suite_only=True, scaled=True),
    "appearance_style": _Scored(_CLIP, suite_only=True),
    "temporal_style": _Scored(_VICLIP),
    "overall_consistency": _Scored(_VICLIP),
}


def _label(prefix: str, label: str) -> str:
    return f"proxy, other weights than upstream's: {label}" if prefix else label


def _lpips() -> Iterator[Dimension]:
    """LPIPS, and once more for other weights than the published ones."""
    for prefix in ("", PROXY):
        yield Dimension(
            f"{prefix}lpips",
            label=_label(prefix, "LPIPS to the baseline's video (0 is identical, lower is closer)"),
            scorer="lpips",
            toolchain="vbench",
            packages=("pyiqa", "torch", "torchvision", "numpy", "imageio-ffmpeg"),
            better="lowest",
            pairwise=True,
            any_prompt=True,
            version=1,
            weights="lpips",
            # AlexNet pools smaller ones away.
            side=31,
        )


def _vbench() -> Iterator[Dimension]:
    """Upstream's sixteen, and each of those that need weights once more for other weights than upstream's."""
    for name, known in VBENCH.items():
        how = _SCORED[name]
        for prefix in ("", PROXY) if how.weights else ("",):
            yield Dimension(
                prefix + name,
                label=_label(prefix, known.label),
                scorer="vbench",
                toolchain="vbench",
                packages=how.packages,
                provided=how.provided,
                weights=name if how.weights else None,
                suite_only=how.suite_only,
                frames=how.frames,
                side=how.side,
                paced=how.paced,
                scaled=how.scaled,
            )


def _static_filter() -> Iterator[Dimension]:
    """Upstream's filter, which is no score of VBench; and the same with other weights, which filters nothing."""
    for prefix in ("", PROXY):
        yield Dimension(
            prefix + STATIC_FILTER,
            label=_label(prefix, "VBench static filter (0 or 1, 1 is still)"),
            scorer=STATIC_FILTER,
            toolchain="vbench",
            packages=(*_OPTICAL, "scipy"),
            weights=STATIC_FILTER,
            prompts_of="temporal_flickering",
            # Of fewer than five, upstream takes none for still whose ends differ at all. Sides: as for dynamic_degree.
            frames=5,
            side=128,
        )


DIMENSIONS = {
    dimension.name: dimension
    for dimension in (
        *_vbench(),
        *_static_filter(),
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
        *_lpips(),
        Dimension(
            "mean_frame_difference",
            label="Mean difference of consecutive frames (0–255, lower is steadier)",
            scorer="frame_difference",
            toolchain="diffusion",
            packages=("imageio-ffmpeg", "numpy"),
            better="lowest",
            any_prompt=True,
            version=1,
        ),
    )
}


def better_in(name: str) -> Better:
    """Which scores are better in the dimension `name`; any that isn't here is a verifier's, whose highest are."""
    return DIMENSIONS[name].better if name in DIMENSIONS else "highest"
