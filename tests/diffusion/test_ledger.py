"""The ledger: real peaks of real phases, with those who hold the memory."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_caches import SETTINGS, SUPPORTED
from test_families import CACHED, FULL, PROMPTS

from fleetcraft.ground.ledger import Ledger, held
from fleetcraft.pipelines.families import FAMILIES

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
ENCODERS = {"hunyuan_video": ["text_encoder", "text_encoder_2"]}


def bytes_in(directory: Path) -> int:
    """Bytes of the tensors in a saved part."""
    tensors = (tensor for file in directory.glob("*.safetensors") for tensor in load_file(file).values())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_weights_are_counted_to_the_byte(family: str, tiny: Path) -> None:
    denoiser = FAMILIES[family].load().load_denoiser(tiny, FULL, "cpu")
    found = {**denoiser.weights(), **FAMILIES[family].load().load_decoder(tiny, "cpu").weights()}
    assert list(found) == [*ENCODERS.get(family, ["text_encoder"]), "transformer", "vae"]
    for part in found:
        saved = bytes_in(tiny / part)
        extra = found[part]["host_mb"] * 2**20 - saved  # buffers that are computed, not saved, such as positions
        assert -600 < extra < 0.7 * saved, f"{part}: MiB are told to three digits"


def test_half_the_bits_are_half_the_weights(family: str, tiny: Path) -> None:
    load = FAMILIES[family].load().load_denoiser
    full = load(tiny, FULL, "cpu").weights()["transformer"]["host_mb"]
    half = load(tiny, dataclasses.replace(FULL, dtype="bfloat16"), "cpu").weights()["transformer"]["host_mb"]
    assert 0.45 < half / full < 0.75, "some buffers and norms stay in float32"


def test_a_sample_has_its_phases_in_the_ledger_and_only_a_caching_arm_a_cache(family: str, tiny: Path) -> None:
    for settings in (FULL, CACHED):
        denoiser = FAMILIES[family].load().load_denoiser(tiny, settings, "cpu")
        for _ in range(2):
            ledger = Ledger()
            with ledger.phase("text_encoder"):
                denoiser.denoise([PROMPTS[0]], [0], ledger)
            assert list(ledger.seconds) == list(ledger.memory) == ["text_encoder", "denoise"]
            assert all(seconds > 0 for seconds in ledger.seconds.values())
            assert ledger.memory["denoise"]["peak"]["host_mb"] > 100
            assert set(ledger.memory["denoise"]) == {"peak"} | ({"feature_cache"} if settings.cache else set())
            assert "feature_cache" not in ledger.memory["text_encoder"], "it is empty again"
            if settings.cache:
                # A head and a tail residual, at least, of as many tokens as the video has, in float32.
                tokens = FAMILIES[family].geometry.tokens(settings.width, settings.height, settings.frames)
                width = 24 if family in {"wan", "hunyuan_video"} else 32
                least = 2 * 4 * tokens * width / 2**20
                assert least * 0.99 < ledger.memory["denoise"]["feature_cache"]["host_mb"] < 1


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_cache_of_any_type_keeps_is_found(name: str, tmp_path: Path) -> None:
    """The tiny transformers have about 0.2 MiB of weights: what is counted is neither nothing nor all there is."""
    family = next(family for family, supported in SUPPORTED if supported == name)
    FAMILIES[family].load().build_tiny(tmp_path, 0)
    settings = dataclasses.replace(FULL, width=32, steps=8, cache=SETTINGS[name])
    denoiser, ledger = FAMILIES[family].load().load_denoiser(tmp_path, settings, "cpu"), Ledger()
    with ledger.phase("text_encoder"):
        denoiser.denoise(PROMPTS[:1], [0], ledger)
    assert 0.001 < ledger.memory["denoise"]["feature_cache"]["host_mb"] < 3


# A process of its own: peaks of the tests before must not count, nor the rights of the superuser.
PEAKS = """
import sys
sys.path.append(sys.argv[1])
from fleetcraft.ground.ledger import Ledger
ledger = Ledger()
for name, size in (("load", 300), ("denoise", 20), ("decode", 120)):
    with ledger.phase(name):
        data = bytearray(size << 20)
        del data
with ledger.phase("denoise"):
    data = bytearray(60 << 20)
print(*(ledger.memory[name]["peak"]["host_mb"] for name in ("load", "denoise", "decode")))
"""


@pytest.mark.parametrize("user", [None, 65534], ids=["this user", "nobody"])
def test_each_phase_has_its_own_peak_and_the_process_keeps_the_highest(user: int | None) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("only the superuser can become nobody")
    command = ["python3.11", "-c", PEAKS, str(SCRIPTS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", user=user)
    assert process.stdout is not None
    load, denoise, decode = (float(word) for word in process.stdout.read().split())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert 300 < load < 400
    assert 60 < denoise < 120, "the most of both times"
    assert 120 < decode < 200
    assert usage.ru_maxrss / 1024 >= load - 1, "what the parent is told"


def test_where_the_kernel_can_t_forget_a_peak_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that covers all phases so far would be taken for the phase's own."""
    monkeypatch.setattr("fleetcraft.ground.ledger._RESET_PEAK", "9")  # which the kernel refuses
    monkeypatch.setattr("fleetcraft.ground.ledger._can_reset", True)
    ledger = Ledger()
    with ledger.phase("decode"):
        ledger.holds("staging", held(1 << 20))
    assert ledger.memory["decode"]["peak"]["host_mb"] is None
    assert ledger.memory["decode"]["staging"]["host_mb"] == 1.0


def test_owners_hold_from_the_phase_in_which_they_are_told_and_the_most_counts() -> None:
    loading = Ledger()
    with loading.phase("load"):
        loading.holds("transformer", held(3 << 20))
    ledger = Ledger(loading)
    with ledger.phase("denoise"):
        ledger.holds("feature_cache", held(1 << 20, 5 << 20))
        ledger.holds("feature_cache", held(2 << 20))
    assert loading.memory["load"]["transformer"] == {"host_mb": 3.0, "device_mb": None}
    assert ledger.memory["denoise"]["transformer"] == {"host_mb": 3.0, "device_mb": None}
    assert ledger.memory["denoise"]["feature_cache"] == {"host_mb": 2.0, "device_mb": 5.0}
    assert "feature_cache" not in loading.memory["load"]
    if not torch.cuda.is_available():
        assert ledger.memory["denoise"]["peak"]["device_mb"] is None
    assert sys.platform != "linux" or ledger.memory["denoise"]["peak"]["host_mb"] > 100
