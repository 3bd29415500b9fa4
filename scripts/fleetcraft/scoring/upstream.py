"""Where VBench's code finds its weights, and what it may not do: fetch anything.

Upstream looks for weights in a cache of its user and fetches what isn't there. Here it sees a cache of links, made for
the job, to the files that the dimension declares and to nothing else, and whatever would fetch is refused, with what it
wanted. What it expects elsewhere is put there: weights in torch's cache of hubs, BERT in the working directory
(where its name finds it before any cache does), the vocabulary of ViCLIP from the package openai-clip.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadEnvironment, BadResult, MissingWeights
from fleetcraft.scoring.decord_reader import stand_in
from fleetcraft.scoring.listed import Weights, verified_directory

_FETCHERS = ("wget", "curl", "git", "aria2c", "unzip")
"""Programs that upstream, or a library below it, would fetch weights with."""

LPIPS_BACKBONE = "lpips/alexnet-owt-7be5be79.pth"

_HUB = ("dino_model/dino_vitbase16_pretrain.pth", LPIPS_BACKBONE)
"""Weights that are looked for in torch's cache of hubs."""

_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")


@contextmanager
def upstream(scratch: Path, weights: Weights | None, *, own_reader: bool = False) -> Iterator[None]:
    """Inside, VBench can be imported and used: offline, with `weights` and no others.

    own_reader : whether our reader of videos stands in for decord, which VBench imports.

    Raises
    ------
    MissingWeights, CorruptWeights : a file isn't as listed, or VBench wanted to fetch one.
    """
    cache_directory = Path(_cache().name)
    if own_reader:
        stand_in()
    if weights is not None:
        directory = verified_directory(weights)
        for path in weights.files:
            _link((directory / path).absolute(), cache_directory / path)
    hub = scratch / "hub"
    for file in map(cache_directory.joinpath, _HUB):
        if file.exists():
            _link(file, hub / "checkpoints" / file.name)
    with _offline() as refused, contextlib.chdir(cache_directory):
        import torch

        before = torch.hub.get_dir()
        torch.hub.set_dir(str(hub))
        try:
            with _unpickling():
                yield
        finally:
            torch.hub.set_dir(before)
            if refused:
                # Again, because upstream passes over some errors and goes on with less.
                raise refused[0]


@cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    """The process's cache for VBench, which asks for its place once, as it is imported."""
    if "vbench.utils" in sys.modules:
        raise BadEnvironment(
            "vbench was imported before its cache was there", remedy="Import it inside `upstream` alone"
        )
    kept = tempfile.TemporaryDirectory(prefix="fleetcraft-vbench-cache-")
    directory = Path(kept.name)
    os.environ["VBENCH_CACHE_DIR"] = kept.name
    clip = find_spec("clip")
    if clip is not None and clip.origin is not None:
        vocabulary = "bpe_simple_vocab_16e6.txt.gz"
        _link(Path(clip.origin).with_name(vocabulary), directory / "ViCLIP" / vocabulary)
    return kept


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Inside, this attribute of a module or class of others is `value`."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def unscored(dimension: str, video: Path, why: str) -> BadResult:
    """What is said of a video that upstream's code gives no result for."""
    return BadResult(
        f"VBench gave no result in {dimension} for this video: {why}",
        file=video,
        remedy="Delete the video and run `fleetcraft audit --repair`: it is made or taken in anew",
    )


def _link(file: Path, name: Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    name.unlink(missing_ok=True)
    name.symlink_to(file)


# ---------------------------------------------------------------------- offline

_refusing: list[MissingWeights] | None = None


@contextmanager
def _offline() -> Iterator[list[MissingWeights]]:
    """Inside, nothing is fetched by this process or by programs that it starts; has what was refused."""
    global _refusing  # an audit hook is the interpreter's, and stays
    _install()
    _refusing = []
    try:
        yield _refusing
    finally:
        _refusing = None


@cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _refusing is None:
        return
    wanted = None
    if event in _NETWORK:
        wanted = _address(event, arguments)
    elif event in _STARTS:
        wanted = _fetching(_words(arguments))
    if wanted is not None:
        error = MissingWeights(
            f"upstream's code wanted to fetch {wanted}, and scoring is offline",
            remedy="`fleetcraft scoring doctor DIR` shows which weights are missing; mirror them",
        )
        _refusing.append(error)
        raise error


def _address(event: str, arguments: tuple[Any, ...]) -> str | None:
    """What a call to the network is about; None for sockets of this machine's file system."""
    if event == "urllib.Request":
        return str(arguments[0])
    address = arguments[-1] if event in {"socket.connect", "socket.sendto"} else arguments
    return ":".join(str(part) for part in address[:2]) if isinstance(address, tuple) else None


def _words(arguments: Sequence[Any]) -> list[str]:
    """The words of the command that is started."""
    words: list[str] = []
    for argument in arguments[:2]:
        parts = argument if isinstance(argument, list | tuple) else [argument]
        words += [os.fsdecode(part) for part in parts if isinstance(part, str | bytes | os.PathLike)]
    return [word for text in words for word in text.split()]


def _fetching(words: list[str]) -> str | None:
    """What a command would fetch; None where it fetches nothing."""
    if not any(Path(word).name in _FETCHERS for word in words):
        return None
    return next((word for word in words if "://" in word), " ".join(words))


# ---------------------------------------------------------------------- unpickling


@contextmanager
def _unpickling() -> Iterator[None]:
    """Inside, `torch.load` reads old checkpoints that hold more than tensors: their bytes are those that are listed."""
    import torch

    plain = torch.load

    def load(file: Any, *arguments: Any, **options: Any) -> Any:
        if "weights_only" in options:
            return plain(file, *arguments, **options)
        try:
            return plain(file, *arguments, **options, weights_only=True)
        except pickle.UnpicklingError:
            return plain(file, *arguments, **options, weights_only=False)

    with replaced(torch, "load", load):
        yield
