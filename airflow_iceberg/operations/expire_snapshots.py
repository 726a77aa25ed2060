"""Expiring snapshots, and deleting the files that only they reached.

Here: `expire_snapshots`: what goes, the commit, then the files. Not here: the retention rules
(`plan.expire_snapshots`), the commit (`commit.actions.expire_snapshots`), reachability (`inventory.reachable_files`).

Before each attempt to commit, the snapshots that are to go are noted in a document under the table's staging prefix.
Only when the table is known not to have them any more are their files looked for, against the table as it is then. A
try that died between commit and the last file is finished by the next one, which finds the document; one that no try
comes after, by whichever expiry comes once it is too old to be of a running task. Files go in the order data,
manifests, lists: as long as a list is there, all that it leads to can be found again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_iceberg.commit.actions.expire_snapshots import ExpireSnapshots
from airflow_iceberg.commit.actions.remove_unused_schemas import ForgetUnused, Forgotten
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.commit.write_result import OperationResult, Outcome
from airflow_iceberg.errors import FormatError, NotFoundError, StorageError
from airflow_iceberg.format.manifests.entries import FileContent
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, RemoveSnapshotRef, RemoveSnapshots, apply_change
from airflow_iceberg.inventory.reachable_files import (
    Deletable,
    RefSize,
    find_deletable,
    sizes_of_refs,
    statistics_paths,
)
from airflow_iceberg.inventory.run import Progress, in_bytes
from airflow_iceberg.operations.expiry_notes import NOTE, Note, Notes
from airflow_iceberg.operations.file_inventory import FileInventory
from airflow_iceberg.operations.staging import STAGING_FOLDER, of_dead_jobs, remove, remove_folders
from airflow_iceberg.operations.work import Work, reread
from airflow_iceberg.plan.expire_snapshots import Expiry, check_may_delete
from airflow_iceberg.plan.orphan_files import DEFAULT_AGE_MS

if TYPE_CHECKING:
    from airflow_iceberg.inventory.run import RunUnits
    from airflow_iceberg.storage.base import FileStatus

log = logging.getLogger(__name__)

BATCH = 1000
THREADS = 16


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
class ExpireResult(OperationResult):
    """What an expiry removed.

    Attributes:
        expired_refs: names of branches and tags that outlived their retention.
        removed_files_size_bytes: of data and delete files.
        failed_files: files that could not be deleted; the removal of orphan files will find them.
        staging_files: documents of jobs that died long ago, deleted.
        refs: what each ref keeps alive, for a dry run.
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
    removed_schemas: int = 0
    removed_partition_specs: int = 0
    staging_files: int = 0
    refs: tuple[RefSize, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield what people read of it."""
        if self.outcome is Outcome.NOTHING:
            yield "no snapshot has expired"
        else:
            verb = "would be deleted" if self.outcome is Outcome.DRY_RUN else "were deleted"
            yield f"{self.expired_snapshots} snapshots{self._names_of_refs()} {verb}"
            yield (
                f"{self.deleted_data_files} data files, {self.removed_position_delete_files} position and "
                f"{self.removed_equality_delete_files} equality delete files, "
                f"{in_bytes(self.removed_files_size_bytes)}, "
                f"{self.deleted_manifests} manifests, {self.deleted_manifest_lists} manifest lists "
                f"and {self.deleted_statistics_files} statistics files {verb}"
            )
        if self.failed_files:
            yield f"{self.failed_files} files could not be deleted; the next try deletes them"
        if self.removed_schemas or self.removed_partition_specs:
            yield f"{self.removed_schemas} schemas and {self.removed_partition_specs} partition specs were removed"
        if self.staging_files:
            yield f"{self.staging_files} documents of jobs that died long ago were deleted"
        for ref in self.refs:
            yield (
                f"ref {ref.name}: {ref.snapshots} snapshots keep {in_bytes(ref.size_bytes)} alive, "
                f"{in_bytes(ref.exclusive_bytes)} of them alone"
            )

    def _names_of_refs(self) -> str:
        return f" and the refs {', '.join(self.expired_refs)}" if self.expired_refs else ""


def expire_snapshots(work: Work, request: ExpireRequest, *, inventory: RunUnits | None = None) -> ExpireResult:
    """Remove old snapshots from a table, then delete the files that only they reached.

    Args:
        inventory: reads the manifests, here or on Spark; in this process by default.

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
    # The commit of an earlier try may be older than what this one knows of the table.
    table.refresh()
    removed = _Removed()
    for note in notes.due(table.metadata):
        _delete_files(table, note, removed, inventory)
    staged = _clear_dead(table, notes, removed, inventory)
    cleaned = _clean_metadata(table) if request.clean_expired_metadata else Forgotten()
    is_committed = not (action.expiry.is_empty and cleaned.is_empty)
    outcome = Outcome.COMMITTED if is_committed else Outcome.FINISHED if removed.files else Outcome.NOTHING
    return removed.result(work, action.expiry, outcome, cleaned=cleaned, staging_files=staged)


def _action(
    table: OpenTable, request: ExpireRequest, *, noted: Callable[[TableMetadata, Sequence[int]], None] | None = None
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


def _check_ids(table: OpenTable, request: ExpireRequest, notes: Notes) -> None:
    """Refuse snapshots that are not there, unless an earlier try of the task has expired them."""
    missing = [i for i in request.snapshot_ids if table.metadata.snapshot(i) is None]
    gone = {s.snapshot_id for note in notes.due(table.metadata) for s in note.snapshots} if missing else set()
    for snapshot_id in missing:
        if snapshot_id not in gone:
            raise NotFoundError(f"cannot expire snapshot {snapshot_id}: table {table.name} does not have it")


def _check_lists(table: OpenTable, action: ExpireSnapshots) -> None:
    """Refuse a table that has lost a manifest list, while nothing is changed yet: no file of it could be deleted."""
    action(table.metadata)
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


def _clean_metadata(table: OpenTable) -> Forgotten:
    action = ForgetUnused(table.io, table_uuid=table.metadata.table_uuid or "", new_uuid=str(uuid4()))
    table.change(action)
    return action.forgotten


def _dry_run(work: Work, action: ExpireSnapshots, inventory: RunUnits) -> ExpireResult:
    table, metadata = work.table, work.table.metadata
    action(metadata)
    expiry = action.expiry
    gone = [s for s in metadata.snapshots if s.snapshot_id in set(expiry.snapshot_ids)]
    after = _without(metadata, expiry.snapshot_ids, expiry.refs)
    removed = _Removed()
    statistics = statistics_paths(metadata, expiry.snapshot_ids)
    removed.add(find_deletable(table.io, gone, after, statistics, inventory=inventory), failed=0)
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
    """Return what is too old under the staging prefix to be of a job that still runs."""
    root = f"{table.location.rstrip('/')}/{STAGING_FOLDER}/"
    try:
        return of_dead_jobs(table.io.list(root), root, now_ms() - DEFAULT_AGE_MS)
    except StorageError as error:
        # What is asked for is done by now.
        log.warning("%s: cannot look for what dead jobs left: %s", table.name, error)
        return ()


def _clear_dead(table: OpenTable, notes: Notes, removed: _Removed, inventory: RunUnits) -> int:
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
        elif _delete_files(table, note, removed, inventory):
            done.append(note.location)
    remove(table.io, done)
    remove_folders(table.io, table.location, done)
    return len(done)


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
        work: Work,
        expiry: Expiry,
        outcome: Outcome,
        *,
        cleaned: Forgotten | None = None,
        refs: tuple[RefSize, ...] = (),
        staging_files: int = 0,
    ) -> ExpireResult:
        return ExpireResult(
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
            removed_schemas=0 if cleaned is None else len(cleaned.schema_ids),
            removed_partition_specs=0 if cleaned is None else len(cleaned.spec_ids),
            staging_files=staging_files,
            refs=refs,
        )


def _delete_files(table: OpenTable, note: Note, removed: _Removed, inventory: RunUnits) -> bool:
    """Delete what only the snapshots of a note reached, then the note itself; return whether all of it is gone."""
    statistics = note.statistics if note.snapshots else ()
    found = reread(
        table, lambda: find_deletable(table.io, note.snapshots, table.metadata, statistics, inventory=inventory)
    )
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


def _delete(table: OpenTable, what: str, parts: Iterable[Sequence[str]], count: int) -> int:
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
            progress.count(len(batch), 0)
            progress.finish(len(batch))
    return failed
