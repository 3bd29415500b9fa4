"""What can go wrong with a fleet."""

from __future__ import annotations

from fleetcraft.ground.errors import FleetcraftError


class FleetStopped(FleetcraftError):
    """Work is left and no allocation will come for it."""

    failure_class = "no workers"


class NoAnswer(FleetcraftError):
    """Slurm did not answer, or not in a way that can be understood. Nothing follows from it but to ask again."""

    failure_class = "no answer"


class Rejected(FleetcraftError):
    """Slurm understood a request and refused it."""

    failure_class = "rejected by slurm"


class NoSlurm(FleetcraftError):
    """Slurm's commands aren't on this machine."""

    failure_class = "no slurm"
