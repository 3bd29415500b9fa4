"""What the tiny models of several families are made of. None of it draws random numbers but the text encoder."""

from __future__ import annotations

import string
from collections.abc import Sequence

import torch
from transformers import T5Config, T5EncoderModel, T5Tokenizer


def letters_tokenizer(words: Sequence[str] = ()) -> T5Tokenizer:
    """A tokenizer that knows every printable character, and `words` as one token each."""
    letters = [(character, -3.0) for character in string.printable if not character.isspace()]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    return T5Tokenizer(vocab=[*special, *letters, *((word, -1.0) for word in words)], extra_ids=0)


def t5_encoder(vocabulary: int) -> T5EncoderModel:
    """A T5 encoder of width 32."""
    return T5EncoderModel(
        T5Config(
            vocab_size=vocabulary,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=32,
            is_encoder_decoder=False,
        )
    )


def silence_biases(vae: torch.nn.Module) -> None:
    """Random biases drown what comes from the latents: two videos would look as different as without prompts."""
    with torch.no_grad():
        for name, weights in vae.named_parameters():
            if name.endswith("bias"):
                weights.zero_()
