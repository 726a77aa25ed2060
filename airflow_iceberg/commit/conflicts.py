"""Conflict rules: may a change that was planned on one snapshot be committed on a later one?

Here: the commits on a branch since a snapshot (`History`), the checks over them, and which operation needs which checks
(`RULES`; docs/conflicts.md shows them as a table, which tests/commit/test_conflicts.py checks). Only table metadata
and manifests are read. Not here: who asks (the actions), and which files must be in the newest table
(`manifest_filter`, `snapshot_action.check_all_there`).

A commit on a newer table has three outcomes. If nothing that it depends on was changed, it is rebased: the engine makes
it again on the newer table. If something that the plan read was changed: `StalePlanError`, re-plan. If it contradicts
the table permanently: `IncompatibleChangeError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from airflow_iceberg.commit.attempts.kept import Kept
from airflow_iceberg.commit.operation_key import DAG_ID, RUN_ID, TASK_ID
from airflow_iceberg.errors import StalePlanError
from airflow_iceberg.format.manifests.entries import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.plan.deletes import DeleteIndex, referenced_file
from airflow_iceberg.storage.base import FileIO

Isolation = Literal["serializable", "snapshot"]
ISOLATION_LEVELS: tuple[Isolation, ...] = ("serializable", "snapshot")


class Check(Enum):
    """What no other writer may have done since the change was planned."""

    ADDED_DATA = "added rows that the change would have had to see"
    ADDED_DELETES = "added delete files for rows that the change replaces"
    REMOVED_DATA = "removed or rewritten data files with rows that the change replaces"
    FILES_GONE = "removed or rewritten a data file that the change refers to"
    ADDED_VECTORS = "deleted rows of a data file for which the change adds a deletion vector"


class Operation(Enum):
    """Kinds of changes, by what they depend on."""

    APPEND = "append"
    OVERWRITE = "overwrite by filter"
    REPLACE_PARTITIONS = "dynamic overwrite"
    COPY_ON_WRITE = "copy-on-write delete, update or merge"
    DELETE_FILES = "delete of whole files"
    MERGE_ON_READ_DELETE = "merge-on-read delete"
    MERGE_ON_READ_UPDATE = "merge-on-read update or merge"
    REWRITE = "compaction"
    REWRITE_MANIFESTS = "rewrite of manifests"
    EXPIRE = "expiry of snapshots"


_REPLACING = frozenset({Check.ADDED_DELETES, Check.REMOVED_DATA})
_DELETING = frozenset({Check.FILES_GONE, Check.ADDED_VECTORS})

RULES: Mapping[Operation, Mapping[Isolation, frozenset[Check]]] = {
    operation: {"snapshot": checks, "serializable": checks | ({Check.ADDED_DATA} if reads else frozenset())}
    for operation, checks, reads in (
        (Operation.APPEND, frozenset[Check](), False),
        (Operation.OVERWRITE, _REPLACING, True),
        (Operation.REPLACE_PARTITIONS, _REPLACING, True),
        # Its files are known by name: their checks are exact, not by predicate.
        (Operation.COPY_ON_WRITE, frozenset({Check.ADDED_DELETES, Check.FILES_GONE}), True),
        # The files are selected again on each base, as if the delete came last.
        (Operation.DELETE_FILES, frozenset[Check](), False),
        (Operation.MERGE_ON_READ_DELETE, _DELETING, True),
        (Operation.MERGE_ON_READ_UPDATE, _DELETING | {Check.ADDED_DELETES, Check.REMOVED_DATA}, True),
        (Operation.REWRITE, frozenset({Check.ADDED_DELETES, Check.FILES_GONE}), False),
        (Operation.REWRITE_MANIFESTS, frozenset[Check](), False),
        (Operation.EXPIRE, frozenset[Check](), False),
    )
}

# Operations of snapshots (as their summaries say) that can do what a check looks for.
_ADDING_DATA = frozenset({"append", "overwrite"})
_ADDING_DELETES = frozenset({"overwrite", "delete"})
_REMOVING = frozenset({"overwrite", "replace", "delete"})
_ANY = frozenset({"append", "overwrite", "replace", "delete"})

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES
# The checks that look at rows of a filter: operations that may do it, the entry that shows it, words of the error.
_BY_FILTER = {
    Check.ADDED_DATA: (_ADDING_DATA, EntryStatus.ADDED, _DATA, "added data file", "may have to see"),
    Check.ADDED_DELETES: (_ADDING_DELETES, EntryStatus.ADDED, _DELETES, "added delete file", "may concern"),
    Check.REMOVED_DATA: (_REMOVING, EntryStatus.DELETED, _DATA, "removed data file", "may concern"),
}


class ConflictFilter(Protocol):
    """The files that a change depends on."""

    def may_concern(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list one."""

    def concerns(self, file: DataFile) -> bool:
        """Whether a file is one, or may be."""


def describe(snapshot: Snapshot) -> str:
    """Name a snapshot and its writer for an error: the DAG run if it is one of Airflow's."""
    summary = snapshot.summary
    names = [f"{what} {summary[key]!r}" for what, key in _WRITERS if key in summary]
    if not names:
        engine = summary.get("engine-name") or ("Spark" if "spark.app.id" in summary else "another writer")
        names = [engine]
    return f"snapshot {snapshot.snapshot_id} ({snapshot.operation}, by {', '.join(names)})"


_WRITERS = (("DAG", DAG_ID), ("task", TASK_ID), ("run", RUN_ID))


class ChangedFiles:
    """Files that single snapshots added and removed; each manifest is read once over all attempts."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        # By the snapshot's id and list; by the row, from which entries inherit. Both are as they were in that snapshot:
        # a later list may give the same files row ids.
        self._manifests: Kept[tuple[ManifestFile, ...]] = Kept()
        self._entries: Kept[tuple[ManifestEntry, ...]] = Kept()

    def of(
        self,
        snapshot: Snapshot,
        status: EntryStatus,
        content: ManifestContent,
        conflict_filter: ConflictFilter | None = None,
    ) -> Iterator[ManifestEntry]:
        """Yield the entries that a snapshot added or deleted.

        Args:
            conflict_filter: selects the manifests to open.
        """
        for manifest in self._own_manifests(snapshot):
            is_added = status is EntryStatus.ADDED
            count = manifest.added_files_count if is_added else manifest.deleted_files_count
            if manifest.content is not content or count == 0:
                continue
            if conflict_filter is None or conflict_filter.may_concern(manifest):
                for entry in self._own_entries(manifest):
                    if entry.status is status and entry.snapshot_id == snapshot.snapshot_id:
                        yield entry

    def _own_manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        def read() -> tuple[ManifestFile, ...]:
            rows = read_manifests(self._io, snapshot)
            return tuple(row for row in rows if row.added_snapshot_id == snapshot.snapshot_id)

        return self._manifests.of(snapshot.snapshot_id, snapshot.manifest_list, snapshot.manifests, make=read)

    def _own_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        def read() -> tuple[ManifestEntry, ...]:
            entries = read_entries(self._io, manifest)
            return tuple(entry for entry in entries if entry.status is not EntryStatus.EXISTING)

        return self._entries.of(manifest, make=read)


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The commits on a branch after a snapshot.

    Attributes:
        metadata: the newest table.
        branch: the branch, for the errors.
        snapshots: the snapshots of the commits, newest first.
    """

    metadata: TableMetadata
    branch: str
    snapshots: tuple[Snapshot, ...]
    files: ChangedFiles

    @classmethod
    def since(cls, metadata: TableMetadata, branch: str, start: int | None, files: ChangedFiles) -> History:
        """Return the commits after a snapshot.

        Args:
            start: the snapshot that was planned on; None if the branch had none, then all of its commits.

        Raises:
            StalePlanError: the branch does not reach back to that snapshot: it was rolled back, or snapshots in between
                have expired.
        """
        head = metadata.ref_snapshot(branch)
        found: list[Snapshot] = []
        oldest = start
        for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.snapshot_id == start:
                return cls(metadata=metadata, branch=branch, snapshots=tuple(found), files=files)
            found.append(snapshot)
            oldest = snapshot.parent_snapshot_id
        if start is None and oldest is None:
            return cls(metadata=metadata, branch=branch, snapshots=tuple(found), files=files)
        why = "is no longer in the table" if start is None or metadata.snapshot(start) is None else "is not in it"
        what = "the state before the first snapshot" if start is None else f"snapshot {start}"
        raise StalePlanError(
            f"cannot determine what was committed to branch {branch!r} since this change was planned: its history does "
            f"not go back to {what}, which {why} (snapshots were expired, or the branch was rolled back); nothing was "
            f"committed, re-plan"
        )

    @property
    def snapshot_ids(self) -> frozenset[int]:
        return frozenset(snapshot.snapshot_id for snapshot in self.snapshots)

    def who_removed(self, file: DataFile) -> str:
        """Name the snapshot that removed a file, for an error."""
        content = ManifestContent.DATA if file.content is FileContent.DATA else ManifestContent.DELETES
        for snapshot in self.snapshots:
            for entry in self.files.of(snapshot, EntryStatus.DELETED, content):
                if entry.data_file.identity == file.identity:
                    return describe(snapshot)
        return "another writer"

    # -- the checks: each raises StalePlanError ------------------------------------------------------------------------

    def check_rows(self, checks: Collection[Check], conflict_filter: ConflictFilter) -> None:
        """Make those of the checks that look at the rows of a filter, in `_BY_FILTER`."""
        for check, (operations, status, content, did, how) in _BY_FILTER.items():
            for snapshot in self._by(operations) if check in checks else ():
                for entry in self.files.of(snapshot, status, content, conflict_filter):
                    if conflict_filter.concerns(entry.data_file):
                        raise self._stale(snapshot, f"{did} {entry.data_file.file_path}", how)

    def check_files_there(self, paths: Collection[str], *, may_be_deleted: bool = False) -> None:
        """No writer removed the files that the change refers to.

        Args:
            may_be_deleted: whether files may have been deleted with all their rows, as for a delete of rows.
        """
        wanted = frozenset(paths)
        for snapshot in self._by(_REMOVING - {"delete"} if may_be_deleted else _REMOVING) if wanted else ():
            for entry in self.files.of(snapshot, EntryStatus.DELETED, ManifestContent.DATA):
                if entry.data_file.file_path in wanted:
                    raise self._stale(snapshot, f"removed data file {entry.data_file.file_path}", "refers to")

    def check_not_added_again(self, paths: Collection[str]) -> None:
        """No writer added the files once more: deletes by position would be of rows that were not read, too."""
        wanted = frozenset(paths)
        for snapshot in self._by(_ADDING_DATA | _REMOVING) if wanted else ():
            for entry in self.files.of(snapshot, EntryStatus.ADDED, ManifestContent.DATA):
                if entry.data_file.file_path in wanted:
                    raise self._stale(snapshot, f"added data file {entry.data_file.file_path} once more", "refers to")

    def check_no_deletes_for(self, files: Iterable[ManifestEntry], *, equality: bool = True) -> None:
        """No writer added delete files for these data files.

        Args:
            files: data files with their data sequence numbers.
            equality: whether equality deletes count; not for rewritten rows that keep their old number, to which they
                still apply.
        """
        index: DeleteIndex | None = None
        owner: dict[tuple[str, int | None], Snapshot] = {}
        added = []
        for snapshot in self._by(_ADDING_DELETES):
            for entry in self.files.of(snapshot, EntryStatus.ADDED, ManifestContent.DELETES):
                if equality or entry.data_file.content is not FileContent.EQUALITY_DELETES:
                    owner[entry.data_file.identity] = snapshot
                    added.append(entry)
        if not added:
            return
        # Several commits may have replaced the vector of a file; one of them is enough for the error.
        index = DeleteIndex(_without_replaced_vectors(added), metadata=self.metadata)
        for file in files:
            for delete in index.of(file):
                raise self._stale(
                    owner[delete.identity],
                    f"added delete file {delete.file_path} for data file {file.data_file.file_path}",
                    "replaces",
                )

    def check_no_new_vectors(self, paths: Collection[str]) -> None:
        """No writer deleted rows of data files for which the change adds a deletion vector: a file has only one."""
        wanted = frozenset(paths)
        for snapshot in self._by(_ANY) if wanted else ():
            for entry in self.files.of(snapshot, EntryStatus.ADDED, ManifestContent.DELETES):
                file = entry.data_file
                if file.content is FileContent.POSITION_DELETES and referenced_file(file) in wanted:
                    raise self._stale(
                        snapshot, f"deleted rows of data file {referenced_file(file)} (in {file.file_path})", "replaces"
                    )

    def _by(self, operations: frozenset[str]) -> Iterator[Snapshot]:
        # An unknown operation may have done anything.
        return (s for s in self.snapshots if s.operation in operations or s.operation not in _ANY)

    def _stale(self, snapshot: Snapshot, did: str, how: str) -> StalePlanError:
        return StalePlanError(
            f"{describe(snapshot)} {did}, which this change of branch {self.branch!r} {how}; nothing was committed, "
            f"re-plan on the latest snapshot"
        )


def _without_replaced_vectors(entries: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
    seen: set[str | None] = set()
    for entry in entries:
        if entry.data_file.is_deletion_vector:
            if entry.data_file.referenced_data_file in seen:
                continue
            seen.add(entry.data_file.referenced_data_file)
        yield entry
