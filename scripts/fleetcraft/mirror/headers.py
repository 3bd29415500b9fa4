"""Headers of safetensors files: which tensors a file has, and whether it is as long as they need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import CorruptWeights
from fleetcraft.mirror.reading import readable

_LONGEST_HEADER = 100_000_000
"""What the format allows, in bytes. Of a file that is something else the first eight bytes can be any number."""

_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16}
_BITS |= {"I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64}
_REMEDY = "Copy the file again"


@dataclass(frozen=True)
class Tensor:
    """What a header says of one tensor; `end` is the number of bytes from the first tensor's to this one's end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """The header of one file: its tensors, and the offset of the first one's bytes."""

    file: Path
    tensors: dict[str, Tensor]
    offset: int

    def check(self, size: int) -> None:
        """Refuse a file of `size` bytes in which tensors are cut, overlap, have gaps between them, or bytes after."""
        place = 0
        for name, tensor in sorted(self.tensors.items(), key=lambda item: (item[1].start, item[1].end)):
            bits = _BITS.get(tensor.dtype)
            if tensor.start != place or (bits and tensor.elements * bits != (tensor.end - tensor.start) * 8):
                raise CorruptWeights(
                    f"the header of this file is damaged: the bytes of the tensor {name!r} aren't where they must be",
                    file=self.file,
                    remedy=_REMEDY,
                )
            place = tensor.end
        wanted = self.offset + place
        if size < wanted:
            cut = [name for name, tensor in self.tensors.items() if self.offset + tensor.end > size]
            first = min(cut, key=lambda name: self.tensors[name].start)
            raise CorruptWeights(
                f"this file is truncated: its header describes {wanted:,} bytes, it has {size:,}; the first of"
                f" {len(cut):,} tensors that are cut is {first!r}",
                file=self.file,
                remedy=_REMEDY,
            )
        if size > wanted:
            raise CorruptWeights(
                f"this file has {size - wanted:,} bytes after its last tensor: its header describes {wanted:,} bytes,"
                f" it has {size:,}",
                file=self.file,
                remedy=_REMEDY,
            )


def read_header(file: Path) -> Header:
    """The header alone, a few kilobytes.

    Raises
    ------
    CorruptWeights : it is cut, or not one of safetensors.
    """
    with readable(file), file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if length <= _LONGEST_HEADER else b""
    try:
        document: dict[str, Any] = json.loads(text if len(text) == length else b"")
        tensors = {name: _tensor(entry) for name, entry in document.items() if name != "__metadata__"}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise CorruptWeights("the header of this file is cut or unreadable", file=file, remedy=_REMEDY) from None
    return Header(file, tensors, 8 + length)


def _tensor(entry: dict[str, Any]) -> Tensor:
    start, end = entry["data_offsets"]
    return Tensor(str(entry["dtype"]), tuple(int(size) for size in entry["shape"]), int(start), int(end))
