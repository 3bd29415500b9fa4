"""How a campaign's tables stand to its experiment as it is now: from work alone, as scratch may be purged.

`plan.json` is written when a campaign begins, the tables when everything is made, the evidence when all is concluded.
So tables that are younger than the plan are of that plan; older ones are of an earlier plan, and of the one that the
evidence holds where they are the evidence's own.
"""

from __future__ import annotations

import filecmp
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetcraft.ground.paths import Paths

_NO_RESULT = {"name", "paths", "batch_table", "encoder_comparison"}
"""Keys of an experiment that decide no number in its tables."""


@dataclass(frozen=True)
class Standing:
    """How tables stand to an experiment.

    other : whether they are of another version of it; None where that can't be told.
    finished : whether its campaign has come to its end, and these are the tables in its evidence.
    begun : whether a campaign of the experiment as it is was started; None where that can't be told.
    changed : keys of the experiment that have changed since the tables, where it is known what they were made of.
    """

    other: bool | None
    finished: bool
    begun: bool | None
    changed: tuple[str, ...] = ()


def standing(paths: Paths, experiment: Mapping[str, Any], digest: str | None) -> Standing:
    """How the tables there are stand to an experiment.

    Parameters
    ----------
    experiment : as a document.
    digest : of its plan; None where it can't be planned, because what it is planned from has gone. Then the documents
        of experiments are compared, which don't tell of prompts, weights and videos that have changed.
    """
    begun, archived = _document(Path(paths.plan)), _document(Path(paths.evidence) / "plan.json")
    if not _are_archived(paths, "scores", "samples"):
        archived = None
    made_of = archived if begun is None or is_outdated(paths, "scores") else begun
    changed = () if made_of is None else tuple(_changed(made_of.get("experiment", {}), experiment))
    concluded = archived is not None and made_of is not None and archived["digest"] == made_of["digest"]
    whole = concluded and Path(paths.evidence_digest).is_file() and _are_archived(paths)
    if digest is None:
        other = None if made_of is None else bool(changed)
        return Standing(other, whole and not changed, None, changed)
    # Not by the keys: that prompts, weights or existing videos have changed is in the digest alone.
    started = begun is not None and begun["digest"] == digest
    if made_of is None:
        return Standing(None if begun is None else True, False, started)
    other = made_of["digest"] != digest
    return Standing(other, whole and not other, started, changed if other else ())


def is_outdated(paths: Paths, table: str) -> bool:
    """Whether a table is from before the last change of the plan, as Snakemake sees it; or not there."""
    file, plan = Path(paths.table(table)), Path(paths.plan)
    return not file.is_file() or (plan.is_file() and file.stat().st_mtime_ns < plan.stat().st_mtime_ns)


def _document(file: Path) -> dict[str, Any] | None:
    """A plan's document; None where there is none that can be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "digest" in found else None


def _are_archived(paths: Paths, *tables: str) -> bool:
    """Whether tables are byte for byte those of the evidence; all that it has, where none is named."""
    evidence = Path(paths.evidence) / "tables"
    files = [evidence / f"{table}.csv" for table in tables] or sorted(evidence.glob("*.csv"))
    return bool(files) and all(
        file.is_file() and (ours := Path(paths.table(file.stem))).is_file() and filecmp.cmp(file, ours, shallow=False)
        for file in files
    )


def _changed(before: Any, now: Any, *above: str) -> Iterator[str]:
    """The keys of what has changed between two documents, each as deep as both have it."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        if before != now:
            yield ".".join(above)
        return
    for key in [*now, *(key for key in before if key not in now)]:
        if not above and key in _NO_RESULT:
            continue
        if key not in now or key not in before:
            yield ".".join([*above, key])
        else:
            yield from _changed(before[key], now[key], *above, key)
