"""What is left of an allocation of compute hours, by the command that the site has for it."""

from __future__ import annotations

import math
import re
import subprocess

from fleetcraft.fleet.errors import NoAnswer
from fleetcraft.fleet.settings import Budget
from fleetcraft.fleet.slurm import CommandRunner, Runner
from fleetcraft.ground.errors import BadInput

_TIMEOUT_S = 30.0
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?|[-+]?\.\d+")


def read_balance(budget: Budget, runner: Runner | None = None) -> float:
    """What the command prints.

    Raises
    ------
    NoAnswer : it failed, or said nothing in time.
    BadInput : it printed something else than one number.
    """
    try:
        answer = (runner or CommandRunner())(["/bin/sh", "-c", budget.command], _TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(
            f"the command for the balance said nothing for {_TIMEOUT_S:.0f} s", remedy="It is asked again"
        ) from error
    if answer.code != 0:
        reason = (answer.errors or answer.output).strip()[-200:]
        raise NoAnswer(
            f"the command for the balance failed with exit code {answer.code} ({reason})", remedy="It is asked again"
        )
    text = answer.output.strip()
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text.replace(",", ""))):
        raise BadInput(
            "the command for the balance must print one number and nothing else",
            key="budget.command",
            value=text,
            remedy="Cut the number out of its output, with awk for example",
        )
    return value
