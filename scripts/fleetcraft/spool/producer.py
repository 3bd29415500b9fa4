"""Putting tasks into a spool.

A new task is written into its writer's staging directory, entered in the index by a hard link, which makes its id
unique, and renamed among the waiting ones. Whoever finds it between these steps can complete them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetcraft.ground.errors import BadInput
from fleetcraft.ground.files import explained_os_errors
from fleetcraft.spool.errors import UnreadableTask
from fleetcraft.spool.layout import BUCKET_SIZE, WriterName
from fleetcraft.spool.names import BucketName, Request, TaskName
from fleetcraft.spool.parallel import each
from fleetcraft.spool.survey import survey
from fleetcraft.spool.task import FINAL_STATES, TaskSpec, encode_task, parse_record
from fleetcraft.spool.writer import Writer

CLASS_LIMIT = 500
"""Most different requests in a spool: a worker that looks for work looks at each."""

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of tasks that were handed in: new ones, and those that were left as they are."""

    new: tuple[str, ...]
    known: tuple[str, ...]


class Producer:
    """Enqueues tasks. What an earlier writer left half enqueued is completed first."""

    def __init__(self, writer: Writer):
        self._writer = writer
        self._spool = writer.spool
        self._buckets: dict[tuple[str, int], tuple[BucketName, int]] = {}
        self._classes: set[str] = set()
        complete_staging(writer)

    def enqueue(self, specs: Iterable[TaskSpec]) -> Enqueued:
        """Put tasks among the waiting ones, durably; ids that the spool knows, in whatever state, are left alone.

        Parameters
        ----------
        specs : may be a generator; they are worked on in batches.
        """
        new: list[str] = []
        known: list[str] = []
        with explained_os_errors(self._spool.root):
            batch: dict[str, TaskSpec] = {}
            for spec in specs:
                if spec.id in batch:
                    known.append(spec.id)
                    continue
                batch[spec.id] = spec
                if len(batch) == BUCKET_SIZE:
                    self._enqueue_batch(batch, new, known)
                    batch = {}
            if batch:
                self._enqueue_batch(batch, new, known)
        return Enqueued(tuple(new), tuple(known))

    def resubmit(self, specs: Sequence[TaskSpec]) -> Enqueued:
        """Put finished tasks among the waiting ones again, as they are described now, with all their retries.

        Tasks that wait, run or are unknown are left alone, and returned as `known`.
        """
        wanted = {spec.id: spec for spec in specs}
        new: list[str] = []
        with explained_os_errors(self._spool.root):
            for task_id, place in survey(self._spool, wanted).items():
                if place.state not in FINAL_STATES:
                    continue
                spec = wanted[task_id]
                name = TaskName(spec.priority, task_id, place.name.attempt + 1)
                self._check_class(spec.request)
                try:
                    self._spool.filesystem.append(place.path, encode_task(spec))
                except FileNotFoundError:
                    continue
                if self._writer.to_pending(place.path, name, spec.request):
                    self._writer.note("resubmitted", task=task_id, attempt=name.attempt, group=spec.group)
                    new.append(task_id)
            self._writer.sync()
        return Enqueued(tuple(new), tuple(sorted(set(wanted) - set(new))))

    def _enqueue_batch(self, batch: dict[str, TaskSpec], new: list[str], known: list[str]) -> None:
        staging = self._spool.layout.staging_of(self._writer.name)
        self._spool.filesystem.make_directory(staging)
        for spec in batch.values():
            self._check_class(spec.request)
        new_here = each(lambda spec: self._stage(spec, staging / spec.id), batch.values())
        staged = [spec for spec, is_new in zip(batch.values(), new_here, strict=True) if is_new]
        known += [spec.id for spec, is_new in zip(batch.values(), new_here, strict=True) if not is_new]
        self._writer.sync()
        for spec in staged:
            name = TaskName(spec.priority, spec.id, 1)
            if self._writer.to_pending(staging / spec.id, name, spec.request, bucket=self._bucket(spec)):
                self._writer.note("enqueued", task=spec.id, attempt=1, group=spec.group)
            new.append(spec.id)
        self._writer.sync()

    def _stage(self, spec: TaskSpec, draft: Path) -> bool:
        """Write a task's file and enter it in the index; whether its id was new."""
        filesystem = self._spool.filesystem
        entry = self._spool.layout.index(spec.id)
        for _ in range(_ROUNDS):
            try:
                filesystem.create(draft, encode_task(spec))
                filesystem.link(draft, entry)
            except FileNotFoundError:
                # The shard of the index is new, or somebody tidied the staging directory meanwhile.
                filesystem.make_directory(draft.parent)
                filesystem.make_directory(entry.parent)
                filesystem.remove(draft)
                continue
            except FileExistsError:
                # A link that was made can be answered so after a retransmission: then both are one file.
                if not filesystem.same_file(draft, entry):
                    filesystem.remove(draft)
                    return False
            self._writer.needs_sync(entry.parent)
            self._writer.needs_sync(draft.parent)
            return True
        raise OSError(f"{draft} or {entry} vanished {_ROUNDS} times")

    def _bucket(self, spec: TaskSpec) -> BucketName:
        """The bucket of this writer that fills at present."""
        key = (spec.request.class_name, spec.priority)
        bucket, count = self._buckets.get(key, (None, 0))
        if bucket is None or count >= BUCKET_SIZE:
            present = self._spool.filesystem.list(self._spool.layout.pending / spec.request.class_name)
            numbers = [parsed.number for parsed in map(BucketName.parse, present) if parsed]
            if bucket is not None:
                numbers.append(bucket.number)
            bucket = BucketName(spec.priority, max(numbers, default=0) + 1, self._writer.identity.token)
            count = 0
        self._buckets[key] = (bucket, count + 1)
        return bucket

    def _check_class(self, request: Request) -> None:
        if request.class_name in self._classes:
            return
        present = set(self._spool.filesystem.list(self._spool.layout.pending))
        if request.class_name not in present and len(present | self._classes) >= CLASS_LIMIT:
            raise BadInput(
                f"this spool has tasks of {CLASS_LIMIT} different requests, the most that it takes",
                file=self._spool.root,
                value=request.class_name,
                remedy="Round the tasks' memory and runtime to fewer values",
            )
        self._classes.add(request.class_name)


def complete_staging(writer: Writer) -> list[str]:
    """Enqueue what writers left half enqueued; the ids.

    Safe while they live: every step is the one that they would take themselves, and each is made once. Drafts that are
    still being written are left alone.
    """
    spool, completed = writer.spool, []
    filesystem, layout = spool.filesystem, spool.layout
    for owner in filesystem.list(layout.staging):
        if WriterName.parse(owner) is None or owner == writer.name:
            continue
        for task_id in filesystem.list(layout.staging_of(owner)):
            draft, entry = layout.staging_of(owner) / task_id, layout.index(task_id)
            name = TaskName(0, task_id, 1)
            try:
                spec = parse_record(filesystem.read(draft), name, draft).spec
                filesystem.sync_file(draft)
                filesystem.make_directories(entry.parent, layout.root)
                filesystem.link(draft, entry)
            except (FileNotFoundError, UnreadableTask):
                continue
            except FileExistsError:
                if not filesystem.same_file(draft, entry):
                    filesystem.remove(draft)
                    continue
            filesystem.sync_directory(entry.parent)
            name = TaskName(spec.priority, task_id, 1)
            if writer.to_pending(draft, name, spec.request):
                writer.note("enqueued", task=task_id, attempt=1, group=spec.group, staged_by=owner)
                completed.append(task_id)
    writer.sync()
    return completed
