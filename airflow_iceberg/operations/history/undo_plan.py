"""The plan of an undo: which files it removes and restores, and why it may; or why it is refused.

Rows that a run has only added: they are removed, wherever they are now (`commit.runs.rows`). Rows that a run has
deleted or replaced: the files of the snapshot before are restored, if all that the run wrote is as it was, and no other
writer has changed the same partitions since.

Not here: which snapshots are of the run (`targets`), rows in files with other rows (`lineage`), the commit (`undo`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_iceberg.commit.conflicts import ChangedFiles, describe
from airflow_iceberg.commit.file_filters import PartitionFilter
from airflow_iceberg.commit.operation_key import find_undone, undone_in
from airflow_iceberg.commit.runs.names import is_appended
from airflow_iceberg.commit.runs.own_works import replaced_in
from airflow_iceberg.commit.runs.rows import (
    Refused,
    Run,
    check_row_ids,
    find_rows_of,
    grouped,
    is_new_file,
    may_carry_rows,
    may_hold_rows_of,
)
from airflow_iceberg.commit.write_result import RowCounts
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.manifests.entries import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.operations.history.net_changes import NetChanges, live_entries, net_changes
from airflow_iceberg.operations.history.targets import Targets
from airflow_iceberg.plan.deletes import DeleteIndex, referenced_file
from airflow_iceberg.storage.base import FileIO

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoPlan:
    """What an undo does.

    Attributes:
        removed: data files and delete files that are removed.
        restored: data files and delete files that are added as they were.
        run_files: the data files that the run has added, with their row ids.
        carriers: the snapshots of others that may have written rows of the run into other files, and these files.
        counts: rows that are removed and restored, where the run's own summaries say so; None: they are counted.
    """

    removed: tuple[DataFile, ...] = ()
    restored: tuple[ManifestEntry, ...] = ()
    run_files: tuple[ManifestEntry, ...] = ()
    carriers: tuple[tuple[Snapshot, frozenset[str]], ...] = ()
    counts: tuple[int, int] | None = None


def plan_undo(io: FileIO, metadata: TableMetadata, targets: Targets, head: Snapshot) -> UndoPlan:
    """Return what an undo does.

    Raises:
        IncompatibleChangeError: it cannot be proved what the rows of the run are now, or that rows can be restored.
    """
    planner = _Planner(io, metadata, targets, head)
    return planner.removal() if planner.net.only_adds else planner.restoration()


def check_undone(io: FileIO, targets: Targets, head: Snapshot) -> None:
    """Check that no file is left of the snapshots that summaries call undone: these may be forged.

    Raises:
        IncompatibleChangeError: there is one.
    """
    for entry in live_entries(io, head, _DATA) if targets.undone else ():
        by = targets.undone.get(entry.snapshot_id or 0)
        if by is not None:
            raise IncompatibleChangeError(
                f"snapshot {by} says that it has undone snapshot {entry.snapshot_id}, of which file "
                f"{entry.data_file.file_path} is still in the table: its summary is forged; nothing was changed; find "
                f"out who has made it, and delete the rows of the run with a predicate"
            )


class _Planner:
    def __init__(self, io: FileIO, metadata: TableMetadata, targets: Targets, head: Snapshot) -> None:
        self._io, self._metadata, self._targets = io, metadata, targets
        self._files = ChangedFiles(io)
        self.net: NetChanges = net_changes(io, metadata, targets, self._files)
        self._entries = list(live_entries(io, head, _DATA))
        self._live = {entry.data_file.identity: entry for entry in self._entries}
        self._head = head
        self._check_single(self._entries)

    def _check_single(self, live: Sequence[ManifestEntry]) -> None:
        """Check that no file of the run is listed twice: files are removed by their paths, so with the rows of both."""
        for path, count in Counter(
            e.data_file.file_path for e in live if e.data_file.identity in self.net.added
        ).items():
            if count > 1:
                raise self._refused(f"file {path} of the run was added to the table once more, by other work")

    def _is_live(self, entry: ManifestEntry) -> bool:
        """Whether a file that the run has added is live, and was not removed and added again by others since."""
        live = self._live.get(entry.data_file.identity)
        if live is None or live.snapshot_id == entry.snapshot_id:
            return live is not None
        if self._metadata.format_version > 1:
            return live.sequence_number == entry.sequence_number  # an undo gives restored files their old number
        adder = self._metadata.snapshot(live.snapshot_id or 0)
        return adder is not None and bool(undone_in(adder))

    # -- rows that were only added -------------------------------------------------------------------------------------

    def removal(self) -> UndoPlan:
        """Remove the rows that the run has added, wherever they are now."""
        ids = {snapshot.snapshot_id for snapshot in self._targets.snapshots}
        run = Run(history=self._targets.history, own=ids, wanted=ids, has_new_rows=lambda snapshot, path: True)
        rows = find_rows_of(self._files, self._metadata, run, self._entries, self._refused)
        check_row_ids(self._metadata, rows, self._refused)
        return UndoPlan(
            removed=tuple(entry.data_file for entry in rows.files),
            run_files=rows.written,
            carriers=grouped(rows.carriers),
        )

    # -- rows that were deleted or replaced ----------------------------------------------------------------------------

    def restoration(self) -> UndoPlan:
        """Restore the files that the run has removed, and remove those that it has added."""
        net = self.net
        live_deletes = {e.data_file.identity: e for e in live_entries(self._io, self._head, _DELETES)}
        self._check_untouched(live_deletes)
        self._check_partitions()
        self._check_not_superseded()
        left = [entry for identity, entry in live_deletes.items() if identity not in net.added_deletes]
        after = DeleteIndex([*left, *net.removed_deletes.values()], metadata=self._metadata)
        self._check_restorable()
        self._check_deletes_as_before(after)
        counts = [RowCounts.of(snapshot) for snapshot in self._targets.snapshots]
        updated = sum(one.updated for one in counts)
        return UndoPlan(
            removed=tuple(entry.data_file for entry in (*net.added.values(), *net.added_deletes.values())),
            restored=(*net.removed.values(), *net.removed_deletes.values()),
            counts=(
                max(sum(one.added for one in counts) + updated, 0),
                max(sum(one.deleted for one in counts) + updated, 0),
            ),
        )

    def _check_untouched(self, live_deletes: Mapping[tuple[str, int | None], ManifestEntry]) -> None:
        """Check that all that the run wrote is there as it was, and the files whose rows it marked as deleted."""
        net = self.net
        for entry in net.added.values():
            if not self._is_live(entry):
                raise self._refused(f"file {entry.data_file.file_path} of the run was rewritten or removed since")
        others = [entry for identity, entry in live_deletes.items() if identity not in net.added_deletes]
        index = DeleteIndex(others, metadata=self._metadata)
        for entry in net.added.values():
            for delete in index.of(entry):
                raise self._refused(
                    f"rows of file {entry.data_file.file_path} of the run were deleted since, in {delete.file_path}"
                )
        paths = {path for path, _ in self._live}
        for identity, entry in net.added_deletes.items():
            file = entry.data_file
            target = referenced_file(file)
            if file.content is FileContent.EQUALITY_DELETES or target is None:
                raise self._refused(
                    f"the run has written the delete file {file.file_path}, which does not name a single data file"
                )
            if identity not in live_deletes or target not in paths:
                raise self._refused(f"data file {target}, whose rows the run has deleted, was changed since")

    def _check_partitions(self) -> None:
        """Check that no other writer has changed rows in the partitions whose rows the run has changed."""
        net = self.net
        entries = (*net.added.values(), *net.removed.values(), *net.added_deletes.values())
        touched = PartitionFilter([entry.data_file for entry in entries], self._metadata)
        for snapshot in self._targets.later:
            if snapshot.operation in ("append", "replace"):
                continue
            for status in (EntryStatus.ADDED, EntryStatus.DELETED):
                for content in (_DATA, _DELETES):
                    for entry in self._files.of(snapshot, status, content):
                        if touched.concerns(entry.data_file):
                            raise self._refused(f"{describe(snapshot)} has changed rows of the same partitions since")

    def _check_not_superseded(self) -> None:
        """Check that no row comes back of a run that was cleared, or undone, since."""
        undone = find_undone(reversed(self._targets.history))
        superseded: dict[int, Snapshot] = {}
        for snapshot in self._targets.later:
            if snapshot.snapshot_id not in undone:
                superseded |= dict.fromkeys((*replaced_in(snapshot), *undone_in(snapshot)), snapshot)
        restored = self._files_with_restored_rows() if superseded else ()
        for number, by in superseded.items() if restored else ():
            holding = self._files_with_rows_of(number, restored)
            for entry in restored:
                if entry.snapshot_id == number or entry.data_file.file_path in holding:
                    raise self._refused(
                        f"rows of file {entry.data_file.file_path}, which the run has removed, may be of snapshot "
                        f"{number}, whose rows {describe(by)} has replaced or undone since: they would come back"
                    )

    def _files_with_restored_rows(self) -> tuple[ManifestEntry, ...]:
        """Return the files that come back, and those of which rows come back."""
        deletes = (*self.net.added_deletes.values(), *self.net.removed_deletes.values())
        marked = {referenced_file(entry.data_file) for entry in deletes}
        return (*self.net.removed.values(), *(entry for entry in self._entries if entry.data_file.file_path in marked))

    def _files_with_rows_of(self, snapshot_id: int, among: Sequence[ManifestEntry]) -> frozenset[str]:
        """Return the files that may have held rows of another run, up to the last snapshot of the one that is undone.

        Those of a snapshot that has expired may be in all files of which it is not known that their rows were new.
        """
        history = list(self._metadata.ancestors(self._targets.snapshots[-1].snapshot_id))
        at = next((at for at, one in enumerate(history) if one.snapshot_id == snapshot_id), None)
        if at is None:
            return frozenset(entry.data_file.file_path for entry in among if not is_appended(self._metadata, entry))
        ids = frozenset({snapshot_id})
        run = Run(history=tuple(reversed(history[: at + 1])), own=ids, wanted=ids, has_new_rows=is_new_file)
        return may_hold_rows_of(self._files, self._metadata, run, self._refused)

    def _check_restorable(self) -> None:
        carries = any(
            may_carry_rows(one, [entry.data_file.file_path for entry in self._files.of(one, EntryStatus.ADDED, _DATA)])
            for one in self._targets.snapshots
        )
        for identity, entry in (*self.net.removed.items(), *self.net.removed_deletes.items()):
            file = entry.data_file
            if identity in self._live:
                raise self._refused(f"file {file.file_path}, which the run has removed, is in the table again")
            is_data, has_no_ids = file.content is FileContent.DATA, file.first_row_id is None
            if is_data and has_no_ids and carries and self._metadata.format_version >= 3:
                raise self._refused(
                    f"file {file.file_path}, which the run has replaced, was written before the table's upgrade to "
                    f"version 3: its rows that the run has kept have row ids by now, and would get other ones"
                )
            is_position = file.content is FileContent.POSITION_DELETES
            if is_position and file.is_deletion_vector != (self._metadata.format_version >= 3):
                raise self._refused(f"delete file {file.file_path} is of an older format version than the table")
            if not self._io.exists(file.file_path):
                raise self._refused(f"file {file.file_path}, which the run has removed, was deleted from the store")

    def _check_deletes_as_before(self, after: DeleteIndex) -> None:
        """Check that the restored files get the deletes that they had: none was lost, and none came later."""
        wanted = dict(self.net.removed)
        marked = {referenced_file(entry.data_file) for entry in self.net.added_deletes.values()}
        wanted |= {identity: entry for identity, entry in self._live.items() if identity[0] in marked}
        for snapshot in self._targets.snapshots if wanted else ():
            parent = self._metadata.snapshot(snapshot.parent_snapshot_id or 0)
            if parent is None:
                raise self._refused(f"the snapshot before snapshot {snapshot.snapshot_id} has expired")
            there = {entry.data_file.identity for entry in live_entries(self._io, parent, _DATA)}
            known = [identity for identity in wanted if identity in there]
            before = DeleteIndex(live_entries(self._io, parent, _DELETES), metadata=self._metadata) if known else None
            for identity in known:
                entry = wanted.pop(identity)
                assert before is not None
                if _names(before.of(entry)) != _names(after.of(entry)):
                    raise self._refused(
                        f"other delete files apply to file {entry.data_file.file_path} than before the run"
                    )

    def _refused(self, why: str) -> IncompatibleChangeError:
        return cannot_undo(self._targets, self._metadata)(why)


def cannot_undo(targets: Targets, metadata: TableMetadata) -> Refused:
    """Return what makes the error of an undo that is refused, from the reason."""
    first = targets.snapshots[0]
    before = first.parent_snapshot_id
    kept = before is not None and metadata.snapshot(before) is not None
    roll_back = (
        f"roll the branch back to snapshot {before}, which also takes back what others have committed since; or "
        f"copy the rows of that snapshot into the table; or "
        if kept
        else ""
    )
    return lambda why: IncompatibleChangeError(
        f"cannot undo the changes of snapshot {first.snapshot_id} (operation {targets.keys[0]}): {why}; "
        f"nothing was changed; {roll_back}delete and write its rows with a predicate"
    )


def _names(files: Sequence[DataFile]) -> set[tuple[str, int | None]]:
    return {file.identity for file in files}
