"""Reading small files of a checkpoint; what can't be read is named with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetcraft.ground.errors import BadInput, CorruptWeights, MissingWeights


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into errors that say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise MissingWeights("this file of the checkpoint is missing", file=path, remedy="Mirror it again") from None
    except OSError as error:
        raise BadInput(
            f"this can't be read ({error.strerror})",
            file=path,
            remedy="Make it readable for you, or look at the file system that it is on",
        ) from error


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.

    Raises
    ------
    MissingWeights, CorruptWeights, BadInput : there is no such file, it is no JSON object, it can't be read.
    """
    with readable(file):
        text = file.read_bytes()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise CorruptWeights("this file is no JSON object: it is cut or damaged", file=file, remedy="Copy it again")
    return document
