"""Weights for dimensions that are generated: random numbers in the layout and the shapes of upstream's.

They show that everything runs, and no score that means anything. Run it in the tool chain `vbench`:

    .envs/vbench/bin/python tests/support/vbench_weights.py DIR DIMENSION…
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints import list_digests

QUALITY = (
    "subject_consistency",
    "background_consistency",
    "motion_smoothness",
    "dynamic_degree",
    "aesthetic_quality",
    "imaging_quality",
)
"""The dimensions of quality that need weights."""

LPIPS_WIDTHS = (64, 192, 384, 256, 256)

HUBCONF = '''"""In place of DINO's repository: a small vision transformer, entered and fetched as DINO's is."""

import torch
import vision_transformer


def dino_vitb16(pretrained=True, **kwargs):
    model = vision_transformer.small(**kwargs)
    if pretrained:
        url = "https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth"
        model.load_state_dict(torch.hub.load_state_dict_from_url(url=url, map_location="cpu"), strict=True)
    return model
'''

VISION_TRANSFORMER = """from timm.models.vision_transformer import VisionTransformer


def small(**_):
    return VisionTransformer(patch_size=16, embed_dim=64, depth=2, num_heads=2, num_classes=0, dynamic_img_size=True)
"""


def build(directory: Path, dimensions: list[str]) -> None:
    """Make the files that the dimensions need, their list of digests, and the mark that says what they are."""
    os.environ["VBENCH_CACHE_DIR"] = tempfile.mkdtemp()
    import torch

    torch.manual_seed(0)
    for dimension in dimensions:
        _BUILDERS[dimension](directory)
    (directory / "PROXY").write_text("random numbers, generated for tests\n")
    list_digests(directory)


def _save(content: Any, file: Path) -> None:
    import torch

    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, file)


def _dino(directory: Path) -> None:
    repository = directory / "dino_model/facebookresearch_dino_main"
    repository.mkdir(parents=True)
    (repository / "hubconf.py").write_text(HUBCONF)
    (repository / "vision_transformer.py").write_text(VISION_TRANSFORMER)
    (repository / "utils.py").write_text('"""DINO\'s repository has one."""\n')
    names: dict[str, Any] = {}
    exec(VISION_TRANSFORMER, names)
    _save(names["small"]().state_dict(), directory / "dino_model/dino_vitbase16_pretrain.pth")


def _clip(file: Path, embedding: int, patch: int) -> None:
    """As OpenAI publishes CLIP: an archive of TorchScript."""
    import torch
    from clip.model import CLIP

    model = CLIP(
        embed_dim=embedding,
        image_resolution=224,
        vision_layers=2,
        vision_width=64,
        vision_patch_size=patch,
        context_length=77,
        vocab_size=49408,
        transformer_width=64,
        transformer_heads=1,
        transformer_layers=2,
    ).eval()
    # Or they are all but constant.
    torch.nn.init.normal_(model.visual.proj, std=1.0)
    torch.nn.init.normal_(model.visual.conv1.weight, std=0.1)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.jit.trace(model, (torch.zeros(1, 3, 224, 224), torch.zeros(1, 77, dtype=torch.long))).save(file)


def _clip_base(directory: Path) -> None:
    _clip(directory / "clip_model/ViT-B-32.pt", 512, 32)


def _aesthetic(directory: Path) -> None:
    import torch

    _clip(directory / "clip_model/ViT-L-14.pt", 768, 14)
    linear = torch.nn.Linear(768, 1)
    _save(linear.state_dict(), directory / "aesthetic_model/emb_reader/sa_0_4_vit_l_14_linear.pth")


def _amt(directory: Path) -> None:
    import vbench
    from omegaconf import OmegaConf
    from vbench.third_party.amt.utils.build_utils import build_from_cfg

    config = OmegaConf.load(Path(vbench.__file__).with_name("third_party") / "amt/cfgs/AMT-S.yaml")
    # As upstream's file does, it holds what no loader of tensors alone accepts.
    _save(
        {"state_dict": build_from_cfg(config.network).state_dict(), "config": Path("AMT-S.yaml")},
        directory / "amt_model/amt-s.pth",
    )


def _raft(directory: Path, flow: float | None = None) -> None:
    from easydict import EasyDict
    from vbench.third_party.RAFT.core.raft import RAFT

    model = RAFT(EasyDict(small=False, mixed_precision=False, alternate_corr=False))
    if flow is not None:
        last = model.update_block.flow_head.conv2
        last.weight.data *= flow
        last.bias.data.zero_()
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    _save(state, directory / "raft_model/models/raft-things.pth")


def _still_raft(directory: Path) -> None:
    """Sees motion everywhere, as random numbers do, but so little that a still picture stays below the threshold."""
    _raft(directory, flow=0.0945)


def _musiq(directory: Path) -> None:
    import torch
    from pyiqa.archs.musiq_arch import MUSIQ

    model = MUSIQ(pretrained=False)
    # As upstream's, it tells of quality in percent.
    torch.nn.init.constant_(model.head.bias, 50.0)
    _save(model.state_dict(), directory / "pyiqa_model/musiq_spaq_ckpt-358bb6af.pth")


def _umt(directory: Path) -> None:
    """Upstream takes what the file has and draws the rest: it has nothing."""
    _save({}, directory / "umt_model/l16_ptk710_ftk710_ftk400_f16_res224.pth")


def _tag2text(directory: Path) -> None:
    """As with UMT; and a vocabulary of BERT's size, of made-up words."""
    import vbench
    from transformers import BertConfig, BertModel

    _save({"model": {}}, directory / "caption_model/tag2text_swin_14m.pth")
    bert = directory / "bert-base-uncased"
    configuration = Path(vbench.__file__).with_name("third_party") / "tag2Text/q2l_config.json"
    config = BertConfig.from_json_file(configuration)
    config.add_cross_attention = False
    BertModel(config, add_pooling_layer=False).save_pretrained(bert, safe_serialization=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "picture", "of"]
    words = special + [f"word{number}" for number in range(config.vocab_size - len(special))]
    (bert / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (bert / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')


def _viclip(directory: Path) -> None:
    """As large as upstream's: 1.7 GB."""
    import clip
    import vbench.utils

    vocabulary = Path(clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")
    expected = Path(vbench.utils.CACHE_DIR, "ViCLIP", vocabulary.name)
    expected.parent.mkdir()
    expected.symlink_to(vocabulary)
    import torch
    from vbench.third_party.ViCLIP.viclip import ViCLIP

    model = ViCLIP(pretrain=None)
    # Upstream leaves some of them as the memory was.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    _save({"model": model.state_dict()}, directory / "ViCLIP/ViClip-InternVid-10M-FLT.pth")


def _lpips(directory: Path) -> None:
    import torch
    from torchvision.models import alexnet

    # What comes after the features isn't used, and would be most of the file: a number stands for it.
    state = {
        name: value if name.startswith("features") else torch.zeros(1).expand(value.shape)
        for name, value in alexnet().state_dict().items()
    }
    _save(state, directory / "lpips/alexnet-owt-7be5be79.pth")
    layers = {f"lin{layer}.model.1.weight": torch.rand(1, width, 1, 1) for layer, width in enumerate(LPIPS_WIDTHS)}
    _save(layers, directory / "lpips/LPIPS_v0.1_alex-df73285e.pth")


_BUILDERS: dict[str, Callable[[Path], None]] = {
    "subject_consistency": _dino,
    "background_consistency": _clip_base,
    "motion_smoothness": _amt,
    "dynamic_degree": _raft,
    "static_filter": _still_raft,
    "aesthetic_quality": _aesthetic,
    "imaging_quality": _musiq,
    "appearance_style": _clip_base,
    "human_action": _umt,
    "scene": _tag2text,
    "temporal_style": _viclip,
    "lpips": _lpips,
}

if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2:])
