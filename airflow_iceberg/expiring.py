"""Expiring snapshots, and deleting the files that only they reached.

Here: `expire_snapshots`: what goes, the commit, then the files. Not here: the retention rules (`plan.retention`), the
commit (`commit.expire`), reachability (`reachability`).

Before each attempt to commit, the snapshots that are to go are noted in a document under the table's staging prefix.
Only when the table is known not to have them any more are their files looked for, against the table as it is then. A
try that died between commit and the last file is finished by the next one, which finds the document; one that no try
comes after, by whichever expiry comes once it is too old to be of a running task. Files go in the order data,
manifests, lists: as long as a list is there, all that it leads to can be found again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_iceberg.changing import now_ms
from airflow_iceberg.commit.expire import ExpireSnapshots
from airflow_iceberg.commit.forget import ForgetUnused, Forgotten
from airflow_iceberg.errors import FormatError, NotFoundError, StorageError
from airflow_iceberg.expired_meanwhile import on_newest
from airflow_iceberg.plan.orphans import DEFAULT_AGE_MS
from airflow_iceberg.plan.retention import Expiry, check_may_delete
from airflow_iceberg.reachability import Deletable, RefSize, find_deletable, sizes_of_refs, statistics_paths
from airflow_iceberg.spec._fields import Fields
from airflow_iceberg.spec.manifests import FileContent
from airflow_iceberg.spec.snapshots import Snapshot
from airflow_iceberg.staging import STAGING_FOLDER, of_dead_jobs, remove, remove_folders
from airflow_iceberg.walk.running import Progress, in_bytes
from airflow_iceberg.walking import Walker

if TYPE_CHECKING:
    from airflow_iceberg.commit.operation import OperationKey
    from airflow_iceberg.spec.changes import Change
    from airflow_iceberg.spec.metadata import TableMetadata
    from airflow_iceberg.storage.base import FileStatus
    from airflow_iceberg.table import Table
    from airflow_iceberg.walking import Walk

log = logging.getLogger(__name__)

BATCH = 1000
THREADS = 16
NOTE = "expired.json"
PREFIX = "expire-"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpireRequest:
    """What is asked for; the words of Iceberg's `expire_snapshots`.

    Attributes:
        older_than_ms: snapshots of before that time may go; by default what the table's properties say (5 days).
        retain_last: so many of each branch stay; by default what the table's properties say (1).
        snapshot_ids: these go besides.
        clean_expired_metadata: forget schemas and partition specs that nothing uses any more.
        dry_run: change nothing, say what would go.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpireResult:
    """What went; counts by the names of Iceberg's procedure.

    Attributes:
        outcome: "committed"; "finished", when only files that an earlier try left were deleted; "nothing"; "dry-run".
        deleted_bytes: of data and delete files.
        failed_files: files that could not be deleted; the clean-up of orphans will find them.
        staging_files: documents of jobs that died long ago, removed.
        refs: what each ref keeps alive, for a dry run.
    """

    table: str
    outcome: str
    expired_snapshots: int = 0
    expired_refs: tuple[str, ...] = ()
    deleted_data_files_count: int = 0
    deleted_position_delete_files_count: int = 0
    deleted_equality_delete_files_count: int = 0
    deleted_manifest_files_count: int = 0
    deleted_manifest_lists_count: int = 0
    deleted_statistics_files_count: int = 0
    deleted_bytes: int = 0
    failed_files: int = 0
    removed_schemas: int = 0
    removed_partition_specs: int = 0
    staging_files: int = 0
    refs: tuple[RefSize, ...] = field(default=())

    def lines(self) -> Iterator[str]:
        """Yield what people read of it."""
        if self.outcome == "nothing":
            yield "no snapshot is to go"
        else:
            verb = "would go" if self.outcome == "dry-run" else "are gone"
            yield f"{self.expired_snapshots} snapshots {verb}{self._names_of_refs()}"
            yield (
                f"{self.deleted_data_files_count} data files, {self.deleted_position_delete_files_count} position and "
                f"{self.deleted_equality_delete_files_count} equality delete files, {in_bytes(self.deleted_bytes)}, "
                f"{self.deleted_manifest_files_count} manifests, {self.deleted_manifest_lists_count} manifest lists "
                f"and {self.deleted_statistics_files_count} statistics files {verb}"
            )
        if self.failed_files:
            yield f"{self.failed_files} files could not be deleted; the next try takes them up"
        if self.removed_schemas or self.removed_partition_specs:
            yield f"{self.removed_schemas} schemas and {self.removed_partition_specs} partition specs are forgotten"
        if self.staging_files:
            yield f"{self.staging_files} documents of jobs that died long ago"
        for ref in self.refs:
            yield (
                f"ref {ref.name}: {ref.snapshots} snapshots keep {in_bytes(ref.size_bytes)} alive, "
                f"{in_bytes(ref.exclusive_bytes)} of them nothing else does"
            )

    def _names_of_refs(self) -> str:
        return f", and the refs {', '.join(self.expired_refs)}" if self.expired_refs else ""

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        found["expired_refs"] = list(self.expired_refs)
        found["refs"] = [
            {
                "name": ref.name,
                "snapshots": ref.snapshots,
                "size_bytes": ref.size_bytes,
                "exclusive_bytes": ref.exclusive_bytes,
            }
            for ref in self.refs
        ]
        return found


def expire_snapshots(
    table: Table, request: ExpireRequest, *, operation: OperationKey | None = None, walk: Walk | None = None
) -> ExpireResult:
    """Remove old snapshots from a table, then the files that only they reached.

    Args:
        operation: key of the Airflow task: its next try finishes what this one leaves.
        walk: reads the manifests, here or on Spark; in this process by default.

    Raises:
        InvalidInputError: `gc.enabled` is false, or a ref that stays points to one of `snapshot_ids`.
        NotFoundError: no such snapshot; or a file of a snapshot that stays is missing: then no file is deleted.
        FormatError, StorageError: what stays cannot be read; no file is deleted.
        CommitUnknownError: cannot tell whether the commit has landed; no file is deleted, the next try finds out.
    """
    check_may_delete(table.metadata)
    walk = walk or Walker(table)
    notes = _Notes(table, operation)
    action = _NotedExpiry(
        notes,
        table_uuid=table.metadata.table_uuid or "",
        new_uuid=str(uuid4()),
        now_ms=now_ms,
        older_than_ms=request.older_than_ms,
        retain_last=request.retain_last,
        snapshot_ids=request.snapshot_ids,
    )
    _check_ids(table, request, notes)
    if request.dry_run:
        return on_newest(table, lambda: _dry_run(table, action, walk))
    on_newest(table, lambda: _check_lists(table, action))
    table.change(action)
    # The commit of an earlier try may be older than what this one knows of the table.
    table.refresh()
    removed = _Removed()
    for note in notes.due(table.metadata):
        _delete_files(table, note, removed, walk)
    staged = _clear_dead(table, notes, removed, walk)
    cleaned = _clean_metadata(table) if request.clean_expired_metadata else Forgotten()
    is_committed = not (action.expiry.is_empty and cleaned.is_empty)
    outcome = "committed" if is_committed else "finished" if removed.files else "nothing"
    return removed.result(table, action.expiry, outcome, cleaned=cleaned, staging_files=staged)


def _check_ids(table: Table, request: ExpireRequest, notes: _Notes) -> None:
    """Refuse snapshots that are not there, unless an earlier try of the task has expired them."""
    missing = [i for i in request.snapshot_ids if table.metadata.snapshot(i) is None]
    gone = {s.snapshot_id for note in notes.due(table.metadata) for s in note.snapshots} if missing else set()
    for snapshot_id in missing:
        if snapshot_id not in gone:
            raise NotFoundError(f"cannot expire snapshot {snapshot_id}: table {table.name} does not have it")


def _check_lists(table: Table, action: ExpireSnapshots) -> None:
    """Refuse a table that has lost a manifest list, while nothing is changed yet: no file of it could be deleted."""
    ExpireSnapshots.__call__(action, table.metadata)  # without a note
    gone = set(action.expiry.snapshot_ids)
    if not gone:
        return
    lists = [s.manifest_list for s in table.metadata.snapshots if s.snapshot_id not in gone and s.manifest_list]
    with ThreadPoolExecutor(THREADS) as pool:
        for location, exists in zip(lists, pool.map(table.io.exists, lists), strict=True):
            if not exists:
                raise NotFoundError(
                    f"cannot expire snapshots of table {table.name}: {location}, the manifest list of a snapshot that "
                    f"stays, is missing: there is no such file; nothing was changed"
                )


class _NotedExpiry(ExpireSnapshots):
    """Notes what each attempt is about to remove: a newer base may let more snapshots go."""

    def __init__(self, notes: _Notes, **settings: Any) -> None:
        super().__init__(**settings)
        self._notes = notes

    def __call__(self, metadata: TableMetadata) -> Change:
        change = super().__call__(metadata)
        if self.expiry.snapshot_ids:
            self._notes.write(metadata, self.expiry.snapshot_ids)
        return change


def _clean_metadata(table: Table) -> Forgotten:
    action = ForgetUnused(table.io, table_uuid=table.metadata.table_uuid or "", new_uuid=str(uuid4()))
    table.change(action)
    return action.forgotten


def _dry_run(table: Table, action: ExpireSnapshots, walk: Walk) -> ExpireResult:
    metadata = table.metadata
    ExpireSnapshots.__call__(action, metadata)  # without a note
    expiry = action.expiry
    gone = [s for s in metadata.snapshots if s.snapshot_id in set(expiry.snapshot_ids)]
    after = _without(metadata, expiry.snapshot_ids, expiry.refs)
    removed = _Removed()
    statistics = statistics_paths(metadata, expiry.snapshot_ids)
    removed.add(find_deletable(table.io, gone, after, statistics, walk=walk), failed=0)
    refs = sizes_of_refs(table.io, metadata, walk=walk)
    return removed.result(table, expiry, "dry-run", refs=refs, staging_files=len(_dead_documents(table)))


def _without(metadata: TableMetadata, snapshot_ids: Sequence[int], refs: Sequence[str]) -> TableMetadata:
    """Return the metadata as the commit would make it."""
    from airflow_iceberg.spec.changes import Change, RemoveSnapshotRef, RemoveSnapshots, apply_change

    updates = (
        *(RemoveSnapshotRef(ref_name=name) for name in refs),
        *((RemoveSnapshots(snapshot_ids=tuple(snapshot_ids)),) if snapshot_ids else ()),
    )
    return apply_change(metadata, Change(updates=updates, requirements=()), now_ms=now_ms(), base_location=None)


# -- notes of what is to go --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """Snapshots that were to go, as they were noted before the commit."""

    location: str
    table_uuid: str | None
    snapshots: tuple[Snapshot, ...]
    statistics: tuple[str, ...]


class _Notes:
    """The documents of one task (all tries), or of one call outside of Airflow."""

    def __init__(self, table: Table, operation: OperationKey | None) -> None:
        self._table = table
        token = uuid4().hex[:12] if operation is None else operation.file_token
        self._prefix = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/{PREFIX}{token}"

    def write(self, metadata: TableMetadata, snapshot_ids: Sequence[int]) -> None:
        """Note snapshots that are to go."""
        wanted = set(snapshot_ids)
        document = {
            "version": 1,
            "table-uuid": metadata.table_uuid,
            "snapshots": [
                {
                    "snapshot-id": snapshot.snapshot_id,
                    "manifest-list": snapshot.manifest_list,
                    "manifests": None if snapshot.manifests is None else list(snapshot.manifests),
                }
                for snapshot in metadata.snapshots
                if snapshot.snapshot_id in wanted
            ],
            "statistics": list(statistics_paths(metadata, snapshot_ids)),
        }
        self._table.io.create(f"{self._prefix}/{uuid4().hex[:12]}/{NOTE}", json.dumps(document).encode())

    def due(self, metadata: TableMetadata) -> Iterator[_Note]:
        """Yield the notes, with those of their snapshots that the table has not any more."""
        for status in list(self._table.io.list(self._prefix)):
            if not status.location.endswith(f"/{NOTE}"):
                continue
            note = self.read(status.location, metadata)
            if note is not None:
                yield note

    def read(self, location: str, metadata: TableMetadata) -> _Note | None:
        """Return a note with those of its snapshots that the table has not any more; None if it is another table's.

        Raises:
            FormatError: it is damaged.
        """
        note = _read_note(location, self._table.io.read(location))
        # The table was dropped and made again in the same place: the files of the old one are not ours to take.
        if note.table_uuid not in (None, metadata.table_uuid):
            return None
        known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return replace(note, snapshots=tuple(s for s in note.snapshots if s.snapshot_id not in known))


def _dead_documents(table: Table) -> tuple[FileStatus, ...]:
    """Return what is too old under the staging prefix to be of a job that still runs."""
    root = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/"
    try:
        return of_dead_jobs(table.io.list(root), root, now_ms() - DEFAULT_AGE_MS)
    except StorageError as error:
        # What is asked for is done by now.
        log.warning("%s: cannot look for what dead jobs left: %s", table.name, error)
        return ()


def _clear_dead(table: Table, notes: _Notes, removed: _Removed, walk: Walk) -> int:
    """Finish what expiries have noted that nobody tries any more, and remove what dead jobs left; return how much."""
    done: list[str] = []
    for status in _dead_documents(table):
        try:
            note = notes.read(status.location, table.metadata) if status.location.endswith(f"/{NOTE}") else None
        except (FormatError, NotFoundError) as error:
            log.warning("%s: what an expiry had noted cannot be read: %s", table.name, error)
            note = None
        if note is None:
            done.append(status.location)
        elif _delete_files(table, note, removed, walk):
            done.append(note.location)
    remove(table.io, done)
    remove_folders(table.io, table.location, done)
    return len(done)


def _read_note(location: str, data: bytes) -> _Note:
    try:
        fields = Fields(json.loads(data), "", location)
    except ValueError as error:
        raise FormatError(f"a note of expired snapshots is damaged: {error}", path=location) from error
    return _Note(
        location=location,
        table_uuid=fields.opt_str("table-uuid"),
        snapshots=tuple(_noted_snapshot(item) for item in fields.items("snapshots")),
        statistics=tuple(str(path) for path in fields.list("statistics")),
    )


def _noted_snapshot(fields: Fields) -> Snapshot:
    manifests = fields.list("manifests") if "manifests" in fields else None
    return Snapshot(
        snapshot_id=fields.int("snapshot-id"),
        timestamp_ms=0,
        manifest_list=fields.opt_str("manifest-list"),
        manifests=None if manifests is None else tuple(str(path) for path in manifests),
        summary={},
    )


# -- deleting ----------------------------------------------------------------------------------------------------------


class _Removed:
    """Counts what went."""

    def __init__(self) -> None:
        self.contents: dict[FileContent, int] = dict.fromkeys(FileContent, 0)
        self.manifests = self.lists = self.statistics = self.size_bytes = self.failed = 0

    @property
    def files(self) -> int:
        return sum(self.contents.values()) + self.manifests + self.lists + self.statistics

    def add(self, found: Deletable, *, failed: int) -> None:
        for content in FileContent:
            self.contents[content] += found.content.count(content)
        self.manifests += len(found.manifests)
        self.lists += len(found.manifest_lists)
        self.statistics += len(found.statistics)
        self.size_bytes += found.content.size_bytes
        self.failed += failed

    def result(
        self,
        table: Table,
        expiry: Expiry,
        outcome: str,
        *,
        cleaned: Forgotten | None = None,
        refs: tuple[RefSize, ...] = (),
        staging_files: int = 0,
    ) -> ExpireResult:
        return ExpireResult(
            table=table.name,
            outcome=outcome,
            expired_snapshots=len(expiry.snapshot_ids),
            expired_refs=expiry.refs,
            deleted_data_files_count=self.contents[FileContent.DATA],
            deleted_position_delete_files_count=self.contents[FileContent.POSITION_DELETES],
            deleted_equality_delete_files_count=self.contents[FileContent.EQUALITY_DELETES],
            deleted_manifest_files_count=self.manifests,
            deleted_manifest_lists_count=self.lists,
            deleted_statistics_files_count=self.statistics,
            deleted_bytes=self.size_bytes,
            failed_files=self.failed,
            removed_schemas=0 if cleaned is None else len(cleaned.schema_ids),
            removed_partition_specs=0 if cleaned is None else len(cleaned.spec_ids),
            staging_files=staging_files,
            refs=refs,
        )


def _delete_files(table: Table, note: _Note, removed: _Removed, walk: Walk) -> bool:
    """Delete what only the snapshots of a note reached, then the note itself; return whether all of it is gone."""
    statistics = note.statistics if note.snapshots else ()
    found = on_newest(table, lambda: find_deletable(table.io, note.snapshots, table.metadata, statistics, walk=walk))
    for what, parts, count in (
        ("data and delete files", found.content.paths(), len(found.content)),
        ("statistics files", (found.statistics,), len(found.statistics)),
        ("manifests", (found.manifests,), len(found.manifests)),
        ("manifest lists", (found.manifest_lists,), len(found.manifest_lists)),
    ):
        failed = _delete(table, what, parts, count)
        if failed:
            # A list that stays leads the next try to what could not be deleted.
            removed.add(_only(found, what), failed=failed)
            return False
    removed.add(found, failed=0)
    try:
        table.io.delete([note.location])
    except StorageError as error:
        # All is done that it was written for: a later expiry finds no work in it, and removes it.
        log.warning("%s: the files are gone, but not their list: %s", table.name, error)
    remove_folders(table.io, table.location, [note.location])
    return True


def _only(found: Deletable, what: str) -> Deletable:
    """Return what came before the files that could not all be deleted; those themselves count as failed."""
    if what == "data and delete files":
        return Deletable()
    gone = replace(found, manifests=(), manifest_lists=())
    if what == "statistics files":
        return replace(gone, statistics=())
    return gone if what == "manifests" else replace(gone, manifests=found.manifests)


def _delete(table: Table, what: str, parts: Iterable[Sequence[str]], count: int) -> int:
    """Delete files in batches; return how many batches failed, in files."""
    failed = 0
    progress = Progress(f"{table.name}: deleting {what}", whole=count)
    for paths in parts:
        for start in range(0, len(paths), BATCH):
            batch = paths[start : start + BATCH]
            try:
                table.io.delete(batch)
            except StorageError as error:
                failed += len(batch)
                log.warning("%s: could not delete some of %d %s: %s", table.name, len(batch), what, error)
            progress.come_past(len(batch), 0)
            progress.finish(len(batch))
    return failed
