"""VBench's static filter: which videos are still enough to be judged by how much they flicker.

The decision is made by upstream's own code, on optical flow by RAFT; here is only what it doesn't do by itself: find
its weights without a GPU, run on another device, and pass over no video that it can't read.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring.interface import Pair, Score, one_by_one
from fleetcraft.scoring.listed import Weights
from fleetcraft.scoring.upstream import unscored, upstream

_RAFT = "raft_model/models/raft-things.pth"


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """1 for each video that upstream's filter keeps, 0 for one that moves.

    settings : `device`; `weights`, the directory and the files that the filter needs; and `reader`, if there is one,
        for that of ours in decord's place: upstream imports it, and reads through OpenCV here.
    """
    weights = Weights(**settings["weights"])
    # Inside, the working directory is another.
    pairs = [Pair(pair.prompt, pair.video.absolute(), pair.baseline) for pair in pairs]
    raft = Path(weights.directory, _RAFT).absolute()
    with (
        tempfile.TemporaryDirectory(prefix="fleetcraft-vbench-") as scratch,
        upstream(Path(scratch), weights, own_reader="reader" in settings),
    ):
        with ledger.phase("load"):
            judge = _filter(raft, settings["device"])

        def still(pair: Pair) -> float:
            try:
                return float(judge.infer(str(pair.video)))
            except AssertionError:
                # Upstream's own, of a video without a frame.
                raise unscored(dimension, pair.video, "it could not read it") from None

        yield from one_by_one(pairs, still, ledger)


def _filter(raft: Path, device: str) -> Any:
    """Upstream's filter with these weights, on a device of its class."""
    import torch
    from vbench.cli import static_filter
    from vbench.third_party.RAFT.core.raft import RAFT

    # Where it puts frames, whatever it is told.
    static_filter.DEVICE = device

    class Filter(static_filter.StaticFilter):  # type: ignore[misc]
        """Upstream's, whose own loader wants the device that the weights were saved on."""

        def load_model(self) -> None:
            state = torch.load(self.args.model, map_location="cpu")
            self.model = RAFT(self.args)
            self.model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
            self.model.to(self.device).eval()

    settings = Namespace(model=str(raft), small=False, mixed_precision=False, alternate_corr=False)
    return Filter(settings, torch.device(device))
