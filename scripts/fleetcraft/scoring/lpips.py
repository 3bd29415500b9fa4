"""How far a video is from the baseline's video by LPIPS: the distance of what AlexNet makes of both, mean over frames.

Version 0.1 of the measure by Zhang et al. (https://arxiv.org/abs/1801.03924), through the code of pyiqa. Frames are
what a viewer sees, each video decoded by its own tags; one pair of them is held at a time.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from fleetcraft.ground.errors import BadResult, CorruptWeights
from fleetcraft.ground.ledger import Ledger
from fleetcraft.media.ffmpeg import check_ffmpeg
from fleetcraft.media.playing import play
from fleetcraft.scoring.interface import Pair, Score, one_by_one
from fleetcraft.scoring.listed import Weights
from fleetcraft.scoring.upstream import LPIPS_BACKBONE, upstream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LINEAR = "lpips/LPIPS_v0.1_alex-df73285e.pth"
_LAYERS = 5


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """The distance of each pair, from 0, which the same pixels have.

    settings : `weights`, their directory and the SHA-256 of the files; `device`.

    Raises
    ------
    MissingWeights, CorruptWeights : they aren't as listed, or not those of LPIPS.
    """
    check_ffmpeg(settings["ffmpeg_sha256"])
    with ledger.phase("load"):
        model = _load(Weights(**settings["weights"])).to(settings["device"])
    return one_by_one(pairs, lambda pair: _distance(model, pair, settings["device"]), ledger)


def _load(weights: Weights) -> torch.nn.Module:
    directory = Path(weights.directory).absolute()
    with TemporaryDirectory(prefix="fleetcraft-lpips-") as scratch, upstream(Path(scratch), weights):
        from pyiqa.archs.lpips_arch import LPIPS

        # It would pass over layers that the file lacks, and leave them random.
        layers = _read(directory / _LINEAR)
        lacking = [f"lin{layer}" for layer in range(_LAYERS) if f"lin{layer}.model.1.weight" not in layers]
        if lacking:
            raise _unsuited(directory / _LINEAR, f"it has no {', '.join(lacking)}")
        try:
            model: torch.nn.Module = LPIPS(net="alex", version="0.1", pretrained_model_path=str(directory / _LINEAR))
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            raise _unsuited(directory / LPIPS_BACKBONE, f"{error} (or {_LINEAR} isn't)") from error
    return model.requires_grad_(False)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = torch.load(file, map_location="cpu")
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise _unsuited(file, str(error)) from error
    return found if isinstance(found, dict) else {}


def _unsuited(file: Path, why: str) -> CorruptWeights:
    return CorruptWeights(
        f"these aren't weights of LPIPS: {why}",
        file=file,
        remedy="`fleetcraft scoring doctor --dimension lpips` shows where they come from; mirror them again",
    )


def _distance(model: torch.nn.Module, pair: Pair, device: str) -> float:
    distances = []
    with torch.inference_mode(), closing(play(pair.video)) as ours, closing(play(pair.paired)) as theirs:
        for one, other in zip_longest(ours, theirs):
            if one is None or other is None or one.shape != other.shape:
                raise BadResult(
                    f"this video and {pair.paired} have frames of other numbers or sizes",
                    file=pair.video,
                    remedy="Delete the one that is damaged and run `fleetcraft audit --repair`",
                )
            distances.append(float(model(_input(one, device), _input(other, device))))
    if not distances:
        raise BadResult("this video has no frames", file=pair.video, remedy="Run `fleetcraft audit --repair`")
    return math.fsum(distances) / len(distances)


def _input(frame: NDArray[np.uint8], device: str) -> torch.Tensor:
    """[1, 3, height, width], 0 to 1."""
    return torch.tensor(frame, device=device).permute(2, 0, 1)[None].float() / 255
