"""The worker's side of the spool: claim, end, keep the lease, leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetcraft.spool import control
from fleetcraft.spool.errors import Reaped, UnreadableTask
from fleetcraft.spool.leases import Lease, write_lease
from fleetcraft.spool.names import BucketName, Request, TaskName
from fleetcraft.spool.settle import Ending, Settled, quarantine, settle, settle_one
from fleetcraft.spool.spool import Spool
from fleetcraft.spool.task import Attempt, Outcome, TaskRecord, parse_record
from fleetcraft.spool.writer import Writer

_FRONT_BUCKETS = 4
"""Among how many of the oldest buckets of a class a worker picks: few keep the order, several keep workers apart."""

_MISSES = 8
"""Names of a listing that may turn out to be gone in a row before the listing counts as outdated."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that a worker owns: its file in the worker's directory, and what it holds."""

    name: TaskName
    path: Path
    record: TaskRecord
    request: Request


@dataclass(slots=True)
class _Bucket:
    """A listing of a bucket, in random order, with the names that were not tried yet."""

    name: BucketName
    request: Request
    path: Path
    names: list[str] = field(default_factory=list)
    misses: int = 0


class Station:
    """A worker's place in the spool.

    Opening it makes the directory for its claims and the first lease; from then on it is a worker for all others.

    Parameters
    ----------
    lease : what the worker says of itself at first; `worker` and `counter` are set here.
    listing_age_s : how long a listing of waiting tasks is used.
    """

    def __init__(
        self,
        writer: Writer,
        lease: Lease | None = None,
        *,
        listing_age_s: float = 0.5,
        chance: random.Random | None = None,
    ):
        self.writer = writer
        self.spool: Spool = writer.spool
        self.name = writer.name
        self._directory = self.spool.layout.claims_of(self.name)
        self._claims: dict[str, Claim] = {}
        self._orders: set[str] = set()
        self._buckets: list[_Bucket] = []
        self._listed_s: float | None = None
        self._listing_age_s = listing_age_s
        self._random = chance or random.Random()
        self._lease = lease or Lease(self.name, 0, writer.host, writer.boot)
        self.spool.filesystem.make_directory(self._directory)
        self.beat(self._lease)
        writer.note("worker started", capacity=self._lease.capacity, identity=self._lease.identity)
        writer.sync()

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What this worker owns at present."""
        return tuple(self._claims.values())

    def beat(self, lease: Lease | None = None) -> None:
        """A heartbeat: raise the counter, and say what is new.

        Raises
        ------
        Reaped : this worker was declared gone.
        """
        self._check_not_reaped()
        self._lease = replace(
            lease or self._lease,
            worker=self.name,
            counter=self._lease.counter + 1,
            host=self.writer.host,
            boot=self.writer.boot,
            wall_s=round(self.spool.clock.wall(), 3),
        )
        write_lease(self.spool, self._lease)

    def claim(
        self,
        fits: Callable[[Request], bool],
        taken: Callable[[Claim], None],
        limit: int,
        avoid: frozenset[str] = frozenset(),
    ) -> list[Claim]:
        """Claim up to `limit` waiting tasks, durably; highest priority first, then what is hardest to place.

        Parameters
        ----------
        fits : asked before each claim whether a request can be served now.
        taken : told of each claim, so that the next `fits` takes it into account.
        avoid : ids that are left to others for now.

        Raises
        ------
        Reaped : this worker was declared gone.
        """
        claims: list[Claim] = []
        now_s = self.spool.clock.monotonic()
        outdated = self._listed_s is None or not 0 <= now_s - self._listed_s < self._listing_age_s
        for lists in (outdated, True):
            if lists:
                self._list_buckets(fits)
                self._listed_s = now_s
            for bucket in list(self._buckets):
                while len(claims) < limit and fits(bucket.request):
                    claim = self._claim_from(bucket, avoid)
                    if claim is None:
                        break
                    claims.append(claim)
                    taken(claim)
            if claims or lists:
                break
        if claims:
            self.writer.sync()
        return claims

    def adopt_strays(self) -> list[Claim]:
        """Own what lies in this worker's directory without its knowing.

        A claim can be carried out although it was answered "no such file"; a lagging listing shows it later.
        """
        strays = []
        for text in self.spool.filesystem.list(self._directory):
            if text not in self._claims and (claim := self._own(self._directory / text)) is not None:
                strays.append(claim)
        return strays

    def end(self, endings: Iterable[tuple[Claim, Attempt]], *, sync: bool = True) -> list[Settled]:
        """End attempts, durably; without `sync` as soon as the caller has synced the writer.

        Where a task had been taken away, the end is journalled as refused and left out of the answer. When it is cut
        off by an error (a full disk), it can be called again with the same endings.
        """
        ended = [(claim, attempt) for claim, attempt in endings if claim.path.name in self._claims]
        try:
            results = settle(self.writer, (Ending(c.path, c.name, attempt, c.record) for c, attempt in ended))
        except OSError:
            for claim, _ in ended:
                if not self.spool.filesystem.exists(claim.path):
                    del self._claims[claim.path.name]
            raise
        settled = [result for result in results if result is not None]
        for claim, _ in ended:
            del self._claims[claim.path.name]
            if claim.name.id in self._orders:
                control.drop_order(self.spool, self.name, claim.name.id)
        if sync:
            self.writer.sync()
        return settled

    def give_back(self, claims: Iterable[Claim], cause: str) -> None:
        """Return claims that were never started; nothing counts against them."""
        self.end((claim, self.attempt(claim, Outcome.RETURNED, cause)) for claim in claims)

    def attempt(self, claim: Claim, outcome: Outcome, cause: str) -> Attempt:
        """The end of an attempt of this worker, to be filled in further with `dataclasses.replace`."""
        return Attempt(claim.name.attempt, outcome, cause, self.name, self.writer.host)

    def has_company(self) -> bool:
        """Whether there are other workers."""
        return any(name != f"{self.name}.json" for name in self.spool.filesystem.list(self.spool.layout.leases))

    def orders_to_cancel(self) -> set[str]:
        """Ids of tasks of this worker that are to be ended."""
        self._orders = control.orders_to_cancel(self.spool, self.name)
        return self._orders & {claim.name.id for claim in self._claims.values()}

    def drain_reason(self) -> str | None:
        """Why this worker is to finish what runs and leave; None while it is to serve."""
        reason = control.aborted(self.spool)
        if reason is not None:
            return f"aborted: {reason}"
        return control.drain_reason(self.spool, (self.name, self.writer.host))

    def leave(self) -> None:
        """Give back every claim, durably, and stop being a worker."""
        self.adopt_strays()
        self.give_back(self.claims, "worker left")
        self.writer.note("worker left")
        layout, filesystem = self.spool.layout, self.spool.filesystem
        for task_id in filesystem.list(layout.cancels_of(self.name)):
            control.drop_order(self.spool, self.name, task_id)
        filesystem.remove_directory(layout.cancels_of(self.name))
        if filesystem.remove_directory(self._directory):
            filesystem.remove(layout.lease(self.name))
        filesystem.remove(layout.drains / self.name)
        self.writer.sync()

    def _list_buckets(self, fits: Callable[[Request], bool]) -> None:
        """Look at which tasks wait: the names of classes and of a few buckets, but of no single task."""
        filesystem, layout = self.spool.filesystem, self.spool.layout
        self._buckets = []
        for class_name in filesystem.list(layout.pending):
            request = Request.of_class(class_name)
            if request is None or not fits(request):
                continue
            directory = layout.pending / class_name
            parsed = [bucket for bucket in map(BucketName.parse, filesystem.list(directory)) if bucket]
            for priority in {bucket.priority for bucket in parsed}:
                front = sorted(
                    (b for b in parsed if b.priority == priority), key=lambda b: (b.number, self._random.random())
                )[:_FRONT_BUCKETS]
                self._buckets += [_Bucket(bucket, request, directory / str(bucket)) for bucket in front]
        self._random.shuffle(self._buckets)
        self._buckets.sort(
            key=lambda bucket: (bucket.name.priority, bucket.request.weight, bucket.name.number == 0), reverse=True
        )

    def _claim_from(self, bucket: _Bucket, avoid: frozenset[str]) -> Claim | None:
        """Claim one task of a bucket at random; None where it has none for this worker."""
        if not bucket.names:
            bucket.names = self.spool.filesystem.list(bucket.path)
            self._random.shuffle(bucket.names)
            bucket.misses = 0
            if not bucket.names:
                self.spool.filesystem.remove_directory(bucket.path)
                self._buckets.remove(bucket)
                return None
        while bucket.names and bucket.misses < _MISSES:
            text = bucket.names.pop()
            name = TaskName.parse(text)
            if name is None:
                quarantine(self.writer, bucket.path / text, text, "this isn't a task's name")
                continue
            # A lagging listing still shows what this worker has claimed; that the destination exists proves nothing.
            if name.id in avoid or text in self._claims:
                continue
            destination = self._directory / text
            if not self.writer.move(bucket.path / text, destination):
                self._check_not_reaped()
                bucket.misses += 1
                continue
            bucket.misses = 0
            claim = self._own(destination)
            if claim is not None:
                return claim
        self._buckets.remove(bucket)
        return None

    def _own(self, path: Path) -> Claim | None:
        """Read a task that is in this worker's directory; an unreadable one goes into quarantine."""
        name = TaskName.parse(path.name)
        if name is None:
            quarantine(self.writer, path, path.name, "this isn't a task's name")
            return None
        try:
            record = parse_record(self.spool.filesystem.read(path), name, path)
        except UnreadableTask as error:
            quarantine(self.writer, path, name.id, str(error))
            return None
        except FileNotFoundError:
            self._check_not_reaped()
            return None
        recorded = record.ending(name.attempt)
        if recorded is not None:
            # It was cancelled while it waited, by somebody who was cut off before the rename.
            settle_one(self.writer, Ending(path, name, recorded, record))
            return None
        claim = Claim(name, path, record, record.request(name.attempt))
        self._claims[path.name] = claim
        self.writer.note("claimed", task=name.id, attempt=name.attempt, group=record.spec.group)
        return claim

    def _check_not_reaped(self) -> None:
        if not self.spool.filesystem.exists(self._directory):
            raise Reaped(
                f"worker {self.name} was declared gone and its claims were taken back",
                file=self._directory,
                remedy="Nothing is lost: its tasks run elsewhere; this worker ends what it runs and leaves",
            )
