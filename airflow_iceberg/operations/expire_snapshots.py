"""Expire snapshots, and delete the files that only they reached.

Here: `expire_snapshots`: selection, commit, deletion. Not here: the retention rules (`plan.expire_snapshots`), the
commit (`commit.actions.expire_snapshots`), reachability (`inventory.reachable_files`).

Before each attempt to commit, the snapshots that it removes are noted in a document under the table's staging prefix.
Their files are looked for only when the table does not have the snapshots any more, and compared with the table as it
is then. If a try is killed between the commit and the last file, the next one finds the document and finishes the work;
without a next try, the first expiry after the document is too old to be of a running task. Files are deleted in the
order data, manifests, lists: as long as a list exists, everything that it refers to can be found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_iceberg.commit.actions.expire_snapshots import ExpireSnapshots
from airflow_iceberg.commit.actions.remove_unused_schemas import RemoveUnusedSchemas, UnusedSchemas
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, NotFoundError, StorageError, advised
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, RemoveSnapshots, apply_change
from airflow_iceberg.inventory.reachable_files import (
    Deletable,
    DeletableFiles,
    RefSize,
    find_deletable,
    sizes_of_refs,
    statistics_paths,
)
from airflow_iceberg.inventory.run import Progress, in_bytes
from airflow_iceberg.operations.file_inventory import FileInventory
from airflow_iceberg.operations.removal.expiry_notes import NOTE, Note, Notes
from airflow_iceberg.operations.staging import STAGING_FOLDER, of_dead_jobs, remove, remove_folders
from airflow_iceberg.operations.work import Work, reread
from airflow_iceberg.plan.expire_snapshots import Expiry, check_may_delete
from airflow_iceberg.plan.orphan_files import DEFAULT_AGE_MS

if TYPE_CHECKING:
    from airflow_iceberg.inventory.run import RunUnits
    from airflow_iceberg.storage.base import FileIO, FileStatus

log = logging.getLogger(__name__)

BATCH = 1000
THREADS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpireSnapshotsRequest:
    """What expires; the words of Iceberg's `expire_snapshots`.

    Attributes:
        older_than_ms: the time before which snapshots may expire; by default from the table's properties (5 days ago).
        retain_last: the number of snapshots of each branch that are kept; by default from the table's properties (1).
        snapshot_ids: further snapshots to expire.
        clean_expired_metadata: whether unused schemas and partition specs are removed.
        dry_run: whether nothing is changed, and the result says what would be.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpireSnapshotsResult(OperationResult):
    """What an expiry removed.

    Attributes:
        expired_refs: names of branches and tags that outlived their retention.
        removed_files_size_bytes: the size of data and delete files.
        failed_files: files that could not be deleted; the next removal of orphan files finds them.
        kept_files: files outside of the table's own locations, which may be another table's and are not deleted.
        staging_files: deleted documents of jobs that died long ago.
        refs: the files that each ref keeps, for a dry run.
    """

    expired_snapshots: int = 0
    expired_refs: tuple[str, ...] = ()
    deleted_data_files: int = 0
    removed_position_delete_files: int = 0
    removed_equality_delete_files: int = 0
    deleted_manifests: int = 0
    deleted_manifest_lists: int = 0
    deleted_statistics_files: int = 0
    removed_files_size_bytes: int = 0
    failed_files: int = 0
    kept_files: int = 0
    removed_schemas: int = 0
    removed_partition_specs: int = 0
    staging_files: int = 0
    refs: tuple[RefSize, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield lines for the log."""
        if self.outcome is Outcome.NOTHING:
            yield "no snapshot has expired"
        else:
            verb = "would be deleted" if self.outcome is Outcome.DRY_RUN else "were deleted"
            refs = f" and the refs {', '.join(self.expired_refs)}" if self.expired_refs else ""
            yield f"{self.expired_snapshots} snapshots{refs} {verb}"
            yield (
                f"{self.deleted_data_files} data files, {self.removed_position_delete_files} position and "
                f"{self.removed_equality_delete_files} equality delete files, "
                f"{in_bytes(self.removed_files_size_bytes)}, "
                f"{self.deleted_manifests} manifests, {self.deleted_manifest_lists} manifest lists "
                f"and {self.deleted_statistics_files} statistics files {verb}"
            )
        if self.failed_files:
            yield f"{self.failed_files} files could not be deleted; the next try deletes them"
        if self.kept_files:
            yield f"{self.kept_files} files are kept: they are outside of the table's own locations"
        if self.removed_schemas or self.removed_partition_specs:
            yield f"{self.removed_schemas} schemas and {self.removed_partition_specs} partition specs were removed"
        if self.staging_files:
            yield f"{self.staging_files} documents of jobs that died long ago were deleted"
        for ref in self.refs:
            yield (
                f"ref {ref.name}: {ref.snapshots} snapshots keep {in_bytes(ref.size_bytes)} alive, "
                f"{in_bytes(ref.exclusive_bytes)} of them alone"
            )


def expire_snapshots(
    work: Work, request: ExpireSnapshotsRequest, *, inventory: RunUnits | None = None
) -> ExpireSnapshotsResult:
    """Remove old snapshots from a table, then delete the files that only they reached.

    Args:
        inventory: a function that reads the manifests, here or on Spark; in this process by default.

    Raises:
        InvalidInputError: `gc.enabled` is false, or a remaining ref points to one of `snapshot_ids`.
        NotFoundError: no such snapshot; or a file of a remaining snapshot is missing: then no file is deleted.
        FormatError, StorageError: a remaining file cannot be read; no file is deleted.
        CommitUnknownError: cannot tell whether the commit has landed; no file is deleted, the next try finds out.
    """
    table = work.table
    check_may_delete(table.metadata)
    inventory = inventory or FileInventory(work)
    notes = Notes(table, work.operation_key)
    _check_ids(table, request, notes)
    if request.dry_run:
        return reread(table, lambda: _dry_run(work, _action(table, request), inventory))
    reread(table, lambda: _check_lists(table, _action(table, request)))
    action = _action(table, request, noted=notes.write)
    table.change(action)
    # The state of the table may be older than the commit of an earlier try.
    table.refresh()
    removed = _Removed()
    for note in notes.due(table.metadata):
        _finish(table, notes, note, removed, inventory)
    staged = _clear_dead(table, notes, removed, inventory)
    cleaned = UnusedSchemas()
    if request.clean_expired_metadata:
        cleaned = _clean_metadata(table, is_expired=bool(removed.files or not action.expiry.is_empty))
    is_committed = not (action.expiry.is_empty and cleaned.is_empty)
    outcome = Outcome.COMMITTED if is_committed else Outcome.FINISHED if removed.files else Outcome.NOTHING
    return removed.result(work, action.expiry, outcome, cleaned=cleaned, staging_files=staged)


def _action(
    table: OpenTable,
    request: ExpireSnapshotsRequest,
    *,
    noted: Callable[[TableMetadata, Sequence[int]], None] | None = None,
) -> ExpireSnapshots:
    return ExpireSnapshots(
        table_uuid=table.metadata.table_uuid or "",
        new_uuid=str(uuid4()),
        now_ms=now_ms,
        older_than_ms=request.older_than_ms,
        retain_last=request.retain_last,
        snapshot_ids=request.snapshot_ids,
        before_attempt=noted,
    )


def _check_ids(table: OpenTable, request: ExpireSnapshotsRequest, notes: Notes) -> None:
    """Refuse unknown snapshots, unless an earlier try of the task has expired them."""
    missing = [i for i in request.snapshot_ids if table.metadata.snapshot(i) is None]
    gone = {s.snapshot_id for note in notes.due(table.metadata) for s in note.snapshots} if missing else set()
    for snapshot_id in missing:
        if snapshot_id not in gone:
            raise NotFoundError(f"cannot expire snapshot {snapshot_id}: table {table.name} does not have it")


def _check_lists(table: OpenTable, action: ExpireSnapshots) -> None:
    """Refuse a table that has lost a manifest list before anything is changed: none of its files could be deleted."""
    action(table.metadata)
    gone = set(action.expiry.snapshot_ids)
    if not gone:
        return
    lists = [s.manifest_list for s in table.metadata.snapshots if s.snapshot_id not in gone and s.manifest_list]
    with ThreadPoolExecutor(THREADS) as pool:
        for location, exists in zip(lists, pool.map(table.io.exists, lists), strict=True):
            if not exists:
                raise NotFoundError(
                    f"cannot expire snapshots of table {table.name}: {location}, the manifest list of a remaining "
                    f"snapshot, is missing: there is no such file; nothing was changed"
                )


def _clean_metadata(table: OpenTable, *, is_expired: bool) -> UnusedSchemas:
    """Remove unused schemas and partition specs by a second commit: an error of it undoes nothing of the expiry."""
    action = RemoveUnusedSchemas(table.io, table_uuid=table.metadata.table_uuid or "", new_uuid=str(uuid4()))
    try:
        table.change(action)
    except IcebergError as error:
        if is_expired:
            head = f"the snapshots of table {table.name} are expired, but its unused schemas and specs are not removed"
            error.args = (f"{head}: {error.args[0]}", *error.args[1:])
            if error.advice is None:
                advised(error, "the next expiry with clean_expired_metadata removes them")
        raise
    return action.unused


def _dry_run(work: Work, action: ExpireSnapshots, inventory: RunUnits) -> ExpireSnapshotsResult:
    table, metadata = work.table, work.table.metadata
    action(metadata)
    expiry = action.expiry
    gone = [s for s in metadata.snapshots if s.snapshot_id in set(expiry.snapshot_ids)]
    after = _without(metadata, expiry.snapshot_ids, expiry.refs)
    removed = _Removed()
    statistics = statistics_paths(metadata, expiry.snapshot_ids)
    removed.add(find_deletable(table.deleting_io(), gone, after, statistics, inventory=inventory), failed=0)
    refs = sizes_of_refs(table.io, metadata, inventory=inventory)
    return removed.result(work, expiry, Outcome.DRY_RUN, refs=refs, staging_files=len(_dead_documents(table)))


def _without(metadata: TableMetadata, snapshot_ids: Sequence[int], refs: Sequence[str]) -> TableMetadata:
    """Return the metadata as the commit would make it."""
    updates = (
        *(RemoveSnapshotRef(ref_name=name) for name in refs),
        *((RemoveSnapshots(snapshot_ids=tuple(snapshot_ids)),) if snapshot_ids else ()),
    )
    return apply_change(metadata, Change(updates=updates, requirements=()), now_ms=now_ms(), base_location=None)


def _dead_documents(table: OpenTable) -> tuple[FileStatus, ...]:
    """Return the documents under the staging prefix that are too old to be of a running job."""
    root = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/"
    try:
        return of_dead_jobs(table.io.list(root), root, now_ms() - DEFAULT_AGE_MS)
    except StorageError as error:
        # The expiry itself is done by now.
        log.warning("%s: cannot search for files of killed jobs: %s", table.name, error)
        return ()


def _clear_dead(table: OpenTable, notes: Notes, removed: _Removed, inventory: RunUnits) -> int:
    """Finish old expiries by their notes, and delete old documents of jobs; return the number of documents."""
    done: list[str] = []
    for status in _dead_documents(table):
        note = notes.read(status.location, table.metadata) if status.location.endswith(f"/{NOTE}") else None
        if note is None or _finish(table, notes, note, removed, inventory):
            done.append(status.location)
    if done:
        io = table.deleting_io()
        remove(io, done)
        remove_folders(io, table.location, done)
    return len(done)


def _finish(table: OpenTable, notes: Notes, note: Note, removed: _Removed, inventory: RunUnits) -> bool:
    """Delete the files of a note; return whether the note is of no more use.

    Anybody who can write to the table's folder can write a note. What a forged one leads to must not stop the expiry;
    the next removal of orphan files finds what it leaves.
    """
    try:
        return _delete_files(table, note, removed, inventory)
    except (FormatError, InvalidInputError) as error:
        if notes.is_own(note):
            raise
        log.warning("%s: what another expiry had noted cannot be used: %s", table.name, error)
        return True


# -- deleting ----------------------------------------------------------------------------------------------------------


class _Removed:
    """Counts of removed files."""

    def __init__(self) -> None:
        self.contents: dict[FileContent, int] = dict.fromkeys(FileContent, 0)
        self.manifests = self.lists = self.statistics = self.size_bytes = self.failed = self.kept = 0

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
        self.kept += found.foreign

    def result(
        self,
        work: Work,
        expiry: Expiry,
        outcome: Outcome,
        *,
        cleaned: UnusedSchemas | None = None,
        refs: tuple[RefSize, ...] = (),
        staging_files: int = 0,
    ) -> ExpireSnapshotsResult:
        return ExpireSnapshotsResult(
            table=work.table.name,
            outcome=outcome,
            operation_key=work.key_text,
            expired_snapshots=len(expiry.snapshot_ids),
            expired_refs=expiry.refs,
            deleted_data_files=self.contents[FileContent.DATA],
            removed_position_delete_files=self.contents[FileContent.POSITION_DELETES],
            removed_equality_delete_files=self.contents[FileContent.EQUALITY_DELETES],
            deleted_manifests=self.manifests,
            deleted_manifest_lists=self.lists,
            deleted_statistics_files=self.statistics,
            removed_files_size_bytes=self.size_bytes,
            failed_files=self.failed,
            kept_files=self.kept,
            removed_schemas=0 if cleaned is None else len(cleaned.schema_ids),
            removed_partition_specs=0 if cleaned is None else len(cleaned.spec_ids),
            staging_files=staging_files,
            refs=refs,
        )


def _delete_files(table: OpenTable, note: Note, removed: _Removed, inventory: RunUnits) -> bool:
    """Delete the files that only the snapshots of a note reached, then the note; return whether all are deleted."""
    statistics = note.statistics if note.snapshots else ()
    io = table.deleting_io()
    found = reread(table, lambda: find_deletable(io, note.snapshots, table.metadata, statistics, inventory=inventory))
    for what, parts, count in (
        ("data and delete files", found.content.paths(), len(found.content)),
        ("statistics files", (found.statistics,), len(found.statistics)),
        ("manifests", (found.manifests,), len(found.manifests)),
        ("manifest lists", (found.manifest_lists,), len(found.manifest_lists)),
    ):
        failed = _delete(table, io, what, parts, count)
        if failed:
            # The manifest lists are kept, and lead the next try to what could not be deleted.
            removed.add(_only(found, what, io), failed=failed)
            return False
    removed.add(found, failed=0)
    try:
        io.delete([note.location])
    except (StorageError, InvalidInputError) as error:
        # A later expiry finds no work in it, and deletes it.
        log.warning("%s: the files are deleted, but not their list: %s", table.name, error)
    remove_folders(io, table.location, [note.location])
    return True


def _only(found: Deletable, what: str, io: FileIO) -> Deletable:
    """Return the files before those that could not all be deleted, which count as failed themselves."""
    match what:
        case "data and delete files":
            return Deletable(content=DeletableFiles(io))
        case "statistics files":
            return Deletable(content=found.content)
        case "manifests":
            return Deletable(content=found.content, statistics=found.statistics)
    return replace(found, manifest_lists=())


def _delete(table: OpenTable, io: FileIO, what: str, parts: Iterable[Sequence[str]], count: int) -> int:
    """Delete files in batches; return the number of files in failed batches."""
    failed = 0
    progress = Progress(f"{table.name}: deleting {what}", whole=count)
    for batch in (paths[start : start + BATCH] for paths in parts for start in range(0, len(paths), BATCH)):
        try:
            io.delete(batch)
        except StorageError as error:
            failed += len(batch)
            log.warning("%s: could not delete some of %d %s: %s", table.name, len(batch), what, error)
        progress.count(len(batch), 0)
        progress.finish(len(batch))
    return failed
