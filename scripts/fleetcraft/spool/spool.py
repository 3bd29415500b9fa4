"""A spool on disk: made, opened, checked."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from fleetcraft.ground.clock import Clock, SystemClock
from fleetcraft.ground.digests import canonical_json
from fleetcraft.ground.files import explained_os_errors
from fleetcraft.spool.errors import BadSpool
from fleetcraft.spool.filesystem import Filesystem
from fleetcraft.spool.layout import Layout
from fleetcraft.spool.policy import Policy

FORMAT = "fleetcraft-spool"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Spool:
    """An open spool: paths, policy, and the system and clock through which everything works on it."""

    layout: Layout
    campaign: str
    policy: Policy
    filesystem: Filesystem
    clock: Clock

    @property
    def root(self) -> Path:
        """The spool's directory."""
        return self.layout.root

    @staticmethod
    def create(
        root: Path,
        campaign: str,
        policy: Policy | None = None,
        *,
        filesystem: Filesystem | None = None,
        clock: Clock | None = None,
    ) -> Spool:
        """Make a spool, or open the one that is there if it is of this campaign.

        Safe against being cut off anywhere and against others who do the same: `spool.json` appears last and in one
        step, and a directory without it isn't a spool yet.

        Raises
        ------
        BadSpool : the directory holds another campaign's spool.
        """
        filesystem = filesystem or Filesystem()
        root = root.absolute()
        layout = Layout(root)
        with explained_os_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            for directory in layout.directories():
                filesystem.make_directory(directory)
            if not filesystem.exists(layout.description):
                _describe(layout, campaign, policy or Policy(), filesystem, (clock or SystemClock()).wall())
        spool = Spool.open(root, filesystem=filesystem, clock=clock)
        if spool.campaign != campaign:
            raise BadSpool(
                f"this is the spool of campaign {spool.campaign!r}, not of {campaign!r}",
                file=root,
                remedy="Give each campaign a spool directory of its own",
            )
        return spool

    @staticmethod
    def open(root: Path, *, filesystem: Filesystem | None = None, clock: Clock | None = None) -> Spool:
        """Open an existing spool.

        Raises
        ------
        BadSpool : nothing is there, or it was made by another version.
        """
        filesystem = filesystem or Filesystem()
        layout = Layout(root.absolute())
        try:
            description = json.loads(filesystem.read(layout.description))
            if description["format"] != FORMAT:
                raise ValueError(f"format {description['format']!r}")
            version = description["version"]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BadSpool(
                "there is no spool here: spool.json is missing",
                file=root,
                remedy="Check the path, or start its campaign; `fleetcraft enqueue --create` makes one by hand",
            ) from error
        except PermissionError as error:
            raise BadSpool(
                "this spool can't be read", file=root, remedy="Ask its owner for access, or use a spool of your own"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise BadSpool(
                f"spool.json can't be understood ({error})", file=layout.description, remedy="Use another directory"
            ) from error
        if version != VERSION:
            raise BadSpool(
                "this spool was made by another version",
                file=layout.description,
                key="version",
                value=version,
                remedy=f"Use the fleetcraft that made it (this one works with version {VERSION}), or a new spool",
            )
        try:
            policy = Policy(**description["policy"])
            return Spool(layout, str(description["campaign"]), policy, filesystem, clock or SystemClock())
        except (KeyError, TypeError) as error:
            raise BadSpool(
                f"spool.json can't be understood ({error})", file=layout.description, remedy="Use another directory"
            ) from error


def _describe(layout: Layout, campaign: str, policy: Policy, filesystem: Filesystem, wall_s: float) -> None:
    """Put `spool.json` in place unless another process did so first."""
    description = {
        "format": FORMAT,
        "version": VERSION,
        "campaign": campaign,
        "created_s": round(wall_s, 3),
        "policy": asdict(policy),
    }
    draft = layout.staging / f"spool-{uuid.uuid4().hex[:12]}.json"
    filesystem.create(draft, canonical_json(description).encode() + b"\n")
    with contextlib.suppress(FileExistsError):
        filesystem.link(draft, layout.description)
    filesystem.remove(draft)
    filesystem.sync_directory(layout.root)
