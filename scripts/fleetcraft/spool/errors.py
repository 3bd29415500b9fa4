"""What can be wrong with a spool."""

from __future__ import annotations

from fleetcraft.ground.errors import BadInput, FleetcraftError


class BadSpool(BadInput):
    """A directory isn't a spool, or one that this version can't work with."""

    failure_class = "bad spool"


class UnreadableTask(FleetcraftError):
    """A task's file can't be understood; it is put into quarantine and the rest goes on."""

    failure_class = "unreadable task"


class Reaped(FleetcraftError):
    """This worker was declared gone and its claims were taken back: it must stop what it runs and leave."""

    failure_class = "worker reaped"


class SpoolBusy(FleetcraftError):
    """Another controller is in charge of this spool."""

    failure_class = "spool busy"
