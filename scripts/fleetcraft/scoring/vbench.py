"""VBench's own code on a set of videos, for each of its dimensions.

Runs in VBench's tool chain and process (`upstream` says what is mended there). VBench is told of each video and its
prompt, where it would otherwise read a directory and go by names and by the order of entries; its results are matched
by path, because it leaves out videos that it can't read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadInput, FleetcraftError
from fleetcraft.ground.failures import BUG, failure_of
from fleetcraft.ground.ledger import Ledger
from fleetcraft.scoring import decord_reader
from fleetcraft.scoring.actions import named_for
from fleetcraft.scoring.dimensions import PROXY
from fleetcraft.scoring.interface import Pair, Score
from fleetcraft.scoring.listed import Weights
from fleetcraft.scoring.upstream import replaced, unscored, upstream
from fleetcraft.scoring.vbench_dimensions import VBENCH

_LEFT_OUT, _UNREADABLE = "it left it out as unreadable", "it could not read it"


def score(dimension: str, pairs: Sequence[Pair], settings: dict[str, Any], ledger: Ledger) -> Iterator[list[Score]]:
    """VBench's result for each video in one dimension, as it gives it: some in percent, yes and no as 1 and 0.

    All at once: upstream tells of none before it has seen the last.

    settings : `device`, cpu where there is none; `weights`, the directory and the files that the dimension needs; and
        `reader`, if there is one, for that of ours in decord's place.
    """
    name = dimension.removeprefix(PROXY)
    weights = Weights(**settings["weights"]) if settings.get("weights") else None
    # Inside, the working directory is another.
    pairs = [Pair(pair.prompt, pair.video.absolute(), pair.baseline) for pair in pairs]
    with (
        tempfile.TemporaryDirectory(prefix="fleetcraft-vbench-") as scratch,
        upstream(Path(scratch), weights, own_reader="reader" in settings),
    ):
        entries = _entries(name, pairs, Path(scratch))
        evaluation = _Evaluation(name, Path(scratch), settings.get("device", "cpu"), ledger)
        values = evaluation.of(entries)
    found: list[Score] = []
    for entry, pair in zip(entries, pairs, strict=True):
        value: float | str | FleetcraftError | None = values.get(entry["video_list"][0], _LEFT_OUT)
        if value == _LEFT_OUT and VBENCH[name].skips:
            value = None
        if isinstance(value, FleetcraftError):
            value = value.located(pair.video)
        found.append(unscored(dimension, pair.video, value) if isinstance(value, str) else value)
    yield found


def _entries(dimension: str, pairs: Sequence[Pair], scratch: Path) -> list[dict[str, Any]]:
    """What VBench's `full_info.json` says of each video: its prompt, and what the suite knows of that."""
    (scratch / "videos").mkdir()
    known, entries = _auxiliary(dimension), []
    for number, pair in enumerate(pairs):
        # The one that takes what it should see from the name.
        said = named_for(pair.prompt) if dimension == "human_action" else "video"
        video = scratch / "videos" / f"{said}-{number:06}.mp4"
        video.symlink_to(pair.video)
        entry: dict[str, Any] = {"prompt_en": pair.prompt, "dimension": [dimension], "video_list": [str(video)]}
        if known:
            if pair.prompt not in known:
                raise BadInput(
                    f"VBench's suite has no such prompt for {dimension}, so what the video should show isn't known",
                    value=pair.prompt,
                    remedy="Score prompts of the suite in it, or leave this dimension out",
                )
            entry["auxiliary_info"] = {dimension: known[pair.prompt]}
        entries.append(entry)
    return entries


def _auxiliary(dimension: str) -> dict[str, Any]:
    """Prompt → what the video should show, for dimensions in which the suite says it."""
    import vbench

    suite = json.loads(Path(vbench.__file__).with_name("VBench_full_info.json").read_text(encoding="utf-8"))
    return {
        entry["prompt_en"]: entry["auxiliary_info"][dimension]
        for entry in suite
        if dimension in entry["dimension"] and dimension in entry.get("auxiliary_info", {})
    }


class _Evaluation:
    """VBench's evaluation of videos in one dimension, as often as it takes to know which of them it can't read."""

    def __init__(self, dimension: str, scratch: Path, device: str, ledger: Ledger):
        self._dimension = dimension
        self._scratch = scratch
        self._device = device
        self._ledger = ledger

    def of(self, entries: list[dict[str, Any]]) -> dict[str, float | str | FleetcraftError]:
        """Path → VBench's result, or why a video has none.

        One that it can't read ends its work, or is left out; as it doesn't say which, halves are tried until it is
        alone.
        """
        from decord import DECORDError

        try:
            with self._accounted(), self._telling():
                return {**self._evaluate(entries)}
        except (DECORDError, AssertionError, RuntimeError) as error:
            # decord's reader raises it bare; so does torch, where memory is lacking for example.
            if isinstance(error, RuntimeError) and not str(error).startswith("Error reading "):
                raise
            if len(entries) == 1:
                said = error.error if isinstance(error, decord_reader.Unreadable) else _UNREADABLE
                return {entries[0]["video_list"][0]: said}
        half = len(entries) // 2
        return {**self.of(entries[:half]), **self.of(entries[half:])}

    def _evaluate(self, entries: list[dict[str, Any]]) -> dict[str, float]:
        """Path → VBench's result; without those that it left out."""
        import torch
        from vbench import VBench

        results = self._scratch / "results"

        class Told(VBench):  # type: ignore[misc]
            """VBench with the list of videos that it would otherwise make of a directory."""

            def build_full_info_json(self, *_: object, **__: object) -> str:
                file = results / "told_full_info.json"
                file.write_text(json.dumps(entries), encoding="utf-8")
                return str(file)

        # A device and not its name, as upstream's own scripts have it: by the name, motion_smoothness would scale
        # videos by how much memory the GPU has. No gradients: two dimensions would keep them for all frames.
        # Upstream's loaders pass over parameters that a checkpoint lacks: those are at least the same every time.
        torch.manual_seed(0)
        # Where all videos are left out, it divides by how many there are.
        with torch.no_grad(), suppress(ZeroDivisionError):
            Told(torch.device(self._device), "", str(results)).evaluate(
                videos_path="", name="told", dimension_list=[self._dimension], local=True
            )
            _, rows = json.loads((results / "told_eval_results.json").read_text(encoding="utf-8"))[self._dimension]
            return {row["video_path"]: float(row["video_results"]) for row in rows}
        return {}

    @contextmanager
    def _accounted(self) -> Iterator[None]:
        """Loading is told from scoring: upstream asks for its list of videos once it has its model (in human_action,
        which loads it afterwards, both are scoring)."""
        module = import_module(f"vbench.{self._dimension}")
        plain = module.load_dimension_info

        def load_dimension_info(*arguments: Any, **options: Any) -> Any:
            self._ledger.switch("score")
            return plain(*arguments, **options)

        with replaced(module, "load_dimension_info", load_dimension_info), self._ledger.phase("load"):
            yield

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """A detector that fails for the machine's sake is told: object_class takes any exception, want of memory as
        well, for a frame in which nothing is seen."""
        module = import_module(f"vbench.{self._dimension}")
        plain: Any = getattr(module, "DenseCaptioning", None)
        if plain is None:
            yield
            return
        swallowed: list[Exception] = []

        detect = plain.run_caption_tensor

        def run_caption_tensor(detector: Any, image: Any) -> Any:
            try:
                return detect(detector, image)
            except Exception as error:
                if failure_of(error).failure_class != BUG or "CUDA error" in str(error):
                    swallowed.append(error)
                raise

        with replaced(plain, "run_caption_tensor", run_caption_tensor):
            yield
        if swallowed:
            raise swallowed[0]
