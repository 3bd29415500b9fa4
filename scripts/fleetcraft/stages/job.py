"""Job descriptions: what a stage is asked to do, complete in itself, as a JSON file beside the job's log.

A stage needs no plan and no experiment, so it runs in environments that have neither, costs the same in a campaign of
ten samples and of ten thousand, and can be run again by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleetcraft.ground.files import write_text


@dataclass(frozen=True)
class Job:
    """One job of one stage.

    toolchain, packages : where it runs, and the packages whose versions must be the pinned ones there.
    output : the manifest, record or directory that it writes.
    samples : one mapping a sample: its id, prompt, seed and the keys that the stage reads and writes.
    settings : what else decides the result.
    """

    stage: str
    toolchain: str
    packages: tuple[str, ...]
    store: str
    output: str
    samples: tuple[dict[str, Any], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Job:
        document = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**document, "packages": tuple(document["packages"]), "samples": tuple(document["samples"])})
