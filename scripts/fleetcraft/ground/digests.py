"""Digests: how inputs, settings and bytes are named.

Everything that is compared, keyed or archived here is named by SHA-256. Settings are hashed as canonical JSON, so that
the order of keys, comments and formatting never count.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

KEY_LENGTH = 32
"""Hexadecimal digits of a key: 128 bits, short enough for file names, long enough for any campaign."""


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces, and no values that JSON can't express (NaN raises ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(value: object) -> str:
    """The key of a JSON-like value: the first `KEY_LENGTH` hexadecimal digits of the SHA-256 of its canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:KEY_LENGTH]


def sha256_text(text: str) -> str:
    """SHA-256 of `text` in UTF-8, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, hexadecimal, read in blocks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
