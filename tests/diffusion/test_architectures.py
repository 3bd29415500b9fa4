"""What plans know of models without torch, held to the classes of diffusers, to tiny models and to decoding them."""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fleetcraft.mirror.inspection import inspect as inspect_checkpoint
from fleetcraft.pipelines import configs
from fleetcraft.pipelines.families import FAMILIES
from fleetcraft.pipelines.interface import DecodeSettings, SpatialTiles

VAES = {
    "wan": diffusers.AutoencoderKLWan,
    "cogvideox": diffusers.AutoencoderKLCogVideoX,
    "ltx": diffusers.AutoencoderKLLTXVideo,
    "hunyuan_video": diffusers.AutoencoderKLHunyuanVideo,
}


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_defaults_are_those_of_diffusers(family: str) -> None:
    for part, known in (("transformer", FAMILIES[family].load().TRANSFORMER), ("vae", VAES[family])):
        ours = configs.with_defaults(family, part, {})  # type: ignore[arg-type]
        theirs = {name: given.default for name, given in inspect.signature(known.__init__).parameters.items()}
        assert ours == {key: list(theirs[key]) if isinstance(theirs[key], tuple) else theirs[key] for key in ours}


def test_a_tiny_model_has_the_configs_and_sizes_that_plans_have_of_it(family: str, tiny: Path) -> None:
    known, parts = configs.tiny(family), inspect_checkpoint(tiny).parts
    stored = {name: sum(tensor.elements for tensor in part.tensors.values()) for name, part in parts.items()}
    for part, ours in (("transformer", known.transformer), ("vae", known.vae)):
        saved = json.loads((tiny / part / "config.json").read_text())
        assert {key: saved[key] for key in ours} == dict(ours)
    assert stored["transformer"] == FAMILIES[family].transformer_of(known.transformer).parameters
    assert stored["text_encoder"] + stored.get("text_encoder_2", 0) == known.parameters["text_encoder"]
    with torch.device("meta"):
        assert parameters(VAES[family].from_config(dict(known.vae))) == known.parameters["vae"]
    # Buffers are stored too: two numbers a channel at most.
    assert 0 <= stored["vae"] - known.parameters["vae"] <= 2 * FAMILIES[family].geometry.channels


def t5(kind: str, vocabulary: int) -> torch.nn.Module:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary,
        d_model=4096,
        d_kv=64,
        d_ff=10_240,
        num_layers=24,
        num_heads=64,
        feed_forward_proj="gated-gelu",
    )
    encoder: torch.nn.Module = getattr(transformers, f"{kind}EncoderModel")(config)
    return encoder


def llama_and_clip() -> torch.nn.Module:
    llama = transformers.LlamaConfig(
        vocab_size=128_320,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    clip = transformers.CLIPTextConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, projection_dim=768
    )
    return torch.nn.ModuleList([transformers.LlamaModel(llama), transformers.CLIPTextModel(clip)])


ENCODERS: dict[str, Callable[[], torch.nn.Module]] = {
    "wan": lambda: t5("UMT5", 256_384),
    "cogvideox": lambda: t5("T5", 32_128),
    "ltx": lambda: t5("T5", 32_128),
    "hunyuan_video": llama_and_clip,
}
"""Text encoders of the published models, by the configs in their repositories."""


def test_published_sizes_are_those_of_the_published_configs(family: str) -> None:
    with torch.device("meta"):
        encoder = parameters(ENCODERS[family]())
        for model in (model for model in configs.published().values() if model.family == family):
            vae = parameters(VAES[family].from_config(dict(model.vae)))
            assert model.parameters == {"text_encoder": encoder, "vae": vae}


# ---------------------------------------------------------------------- memory of decoding


class Alive(TorchDispatchMode):
    """Follows the bytes of all tensors that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(answer):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self._known:
                self._known.add(key)
                self._now += (size := tensor.untyped_storage().nbytes())
                self.peak = max(self.peak, self._now)
                weakref.finalize(tensor.untyped_storage(), self._freed, key, size)
        return answer

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


@pytest.mark.parametrize("tiles", [None, SpatialTiles(64, 32, 32, 32)], ids=["whole frames", "tiles"])
def test_decoding_a_tiny_model_holds_what_was_estimated(family: str, tiny: Path, tiles: SpatialTiles | None) -> None:
    decoder = FAMILIES[family].load().load_decoder(tiny, "cpu", DecodeSettings(tiling=tiles))
    for shape in ((64, 64, 9), (64, 64, 25)):
        latents = torch.zeros(FAMILIES[family].geometry.latent_shape(*shape))
        with Alive() as alive:
            assert sum(len(chunk) for chunk in decoder.decode(latents)) == shape[2]
        estimate = 4 * FAMILIES[family].vae_of(configs.tiny(family).vae).held(*shape, tiles)
        assert estimate == pytest.approx(alive.peak, rel=0.5)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("Wan2.1-T2V-1.3B-Diffusers", (832, 480, 17)),
        ("CogVideoX-5b", (720, 480, 9)),
        ("CogVideoX-5b", (720, 480, 17)),
        ("LTX-Video", (768, 512, 121)),
        ("HunyuanVideo", (640, 352, 9)),
        ("HunyuanVideo", (1280, 720, 33)),
    ],
)
def test_decoding_at_real_size_would_hold_what_was_estimated(
    name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, where tensors have sizes and no numbers: everything but what looks at numbers is real."""
    model = configs.published()[name]
    module = FAMILIES[model.family].load()
    monkeypatch.setattr(module, "to_uint8", lambda pixels: np.zeros(pixels.shape[1], np.uint8))
    monkeypatch.setattr(module, "OwnRandomness", lambda *_: SimpleNamespace(drawing=nullcontext), raising=False)
    with torch.device("meta"):
        vae = VAES[model.family].from_config(dict(model.vae)).eval()
        latents = torch.zeros(FAMILIES[model.family].geometry.latent_shape(*shape))
    monkeypatch.setattr(module, "load_vae", lambda *_: vae)
    with Alive() as alive:
        assert sum(len(chunk) for chunk in module.load_decoder(Path(), "meta").decode(latents)) == shape[2]
    estimate = 4 * FAMILIES[model.family].vae_of(model.vae).held(*shape)
    assert estimate == pytest.approx(alive.peak, rel=0.05)
