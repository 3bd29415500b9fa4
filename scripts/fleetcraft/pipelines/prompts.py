"""How much of a prompt a text encoder gets to read: pipelines cut what is too long, most of them without a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetcraft.ground.errors import MissingWeights


@dataclass(frozen=True)
class Reading:
    """What one text encoder reads of one prompt.

    tokens, taken : tokens that the prompt has, and those that reach the encoder, special ones included.
    cut : the text of the prompt that doesn't.
    """

    tokens: int
    taken: int
    cut: str


@dataclass(frozen=True)
class Reader:
    """The way of a prompt to one text encoder.

    tokenizer : of transformers.
    limit : tokens that the pipeline hands on.
    prepared : what the pipeline makes of a prompt before it is tokenized.
    lead : tokens of a template in front, which count neither as the prompt's nor towards the limit.
    tail : text of the template behind the prompt; that it is cut with a long prompt is nothing.
    whole : the encoder is meant to read all of the prompt, not only to summarize how it begins.
    """

    tokenizer: Any
    limit: int
    prepared: Callable[[str], str] = str
    lead: int = 0
    tail: str = ""
    whole: bool = True

    def read(self, prompt: str) -> Reading:
        """Tokenize as the pipeline does.

        Raises MissingWeights where the tokenizer has no vocabulary: it makes unknown tokens of everything.
        """
        self._refuse_unknown(prompt)
        text = self.prepared(prompt)
        tokens = self.tokenizer(text).input_ids
        taken = self.tokenizer(text, truncation=True, max_length=self.lead + self.limit).input_ids
        same = next((place for place, (a, b) in enumerate(zip(tokens, taken, strict=False)) if a != b), len(taken))
        cut = self.tokenizer.decode(tokens[same:], skip_special_tokens=True) if len(tokens) > len(taken) else ""
        cut = "" if self.tail.endswith(cut) else cut.removesuffix(self.tail)
        return Reading(len(tokens) - self.lead, len(taken) - self.lead, cut)

    def _refuse_unknown(self, prompt: str) -> None:
        if set(self.tokenizer(prompt, add_special_tokens=False).input_ids) == {self.tokenizer.unk_token_id}:
            raise MissingWeights(
                "the tokenizer makes nothing but unknown tokens of this prompt",
                file=self.tokenizer.name_or_path,
                value=prompt,
                remedy="Mirror the tokenizer's files again",
            )


class Readings:
    """What all text encoders of a model read of one prompt. `readers` are by the encoders' names."""

    def __init__(self, readers: Mapping[str, Reader], prompt: str):
        self._readers = readers
        self._readings = {encoder: reader.read(prompt) for encoder, reader in readers.items()}

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Encoder → its `tokens` and those of them that are `taken`."""
        return {name: {"tokens": one.tokens, "taken": one.taken} for name, one in self._readings.items()}

    @property
    def cuts(self) -> list[str]:
        """What is cut, a sentence an encoder that gets less than the whole."""
        return [
            f"its {name} takes {one.taken} of {one.tokens} tokens and not {one.cut!r}"
            for name, one in self._readings.items()
            if one.cut
        ]

    @property
    def mutilated(self) -> bool:
        """Whether an encoder that is meant to read all of a prompt gets less."""
        return any(one.cut and self._readers[name].whole for name, one in self._readings.items())
