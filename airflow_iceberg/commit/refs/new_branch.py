"""A branch that a write creates together with its rows, in one commit, if the table does not have it.

The branch begins at the head of main as it is when the rows are committed. In a table without snapshots it begins with
an empty one, as in Iceberg Java. Until then the work is planned on the table as it would be with the branch.

Not here: the creation of a branch alone (`commit.actions.snapshot_refs`).
"""

from __future__ import annotations

from airflow_iceberg.commit.attempts.kept import Kept, metadata_folder
from airflow_iceberg.commit.checks import of_this_table
from airflow_iceberg.commit.settings import CommitSettings, settings_for
from airflow_iceberg.commit.snapshot_action import MakesSnapshot, next_sequence_number
from airflow_iceberg.commit.snapshot_writer import SnapshotWriter
from airflow_iceberg.commit.write_result import Outcome
from airflow_iceberg.format.metadata.requirements import AssertRefSnapshotId
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import AddSnapshot, Change, SetSnapshotRef, Update, apply_change
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef, summarize
from airflow_iceberg.storage.base import FileIO


class NewBranch:
    """A branch, and how a table looks that has it.

    Args:
        io: where the manifest list of an empty first snapshot is written.
    """

    def __init__(self, name: str, *, io: FileIO, metadata: TableMetadata) -> None:
        self.name = name
        self.settings: CommitSettings = settings_for(metadata)
        self._writer = SnapshotWriter(io, snapshot_id=self.settings.snapshot_id, commit_uuid=self.settings.commit_uuid)
        # By the format version, the numbers and the time that it gets, the schema, and the folder of its list.
        self._empty: Kept[Snapshot] = Kept()
        # The table as it was loaded, and as it is shown; with the one before, of a table that was rewound.
        self._shown: list[tuple[TableMetadata, TableMetadata]] = []
        # Whether the table has the empty snapshot, and whether it may have it since a change with it was given away.
        self._is_there = self._may_be_there = False

    def give(self) -> None:
        """Note that a change with the branch is given away: a catalog may create the branch before its rows."""
        self._may_be_there = True

    def see(self, metadata: TableMetadata) -> None:
        """Note whether the table has the empty snapshot, after a change was refused."""
        self._may_be_there = metadata.snapshot(self.settings.snapshot_id) is not None
        self._is_there = self._is_there or self._may_be_there

    def shown(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata with the branch, or with the ref that has the name already."""
        if self.name in metadata.refs:
            return metadata
        for before, after in self._shown:
            if before is metadata:
                return after
        birth = Change(updates=self.birth(metadata))
        after = apply_change(metadata, birth, now_ms=metadata.last_updated_ms, base_location=None)
        self._shown = [(metadata, after), *self._shown[:1]]
        return after

    def birth(self, metadata: TableMetadata) -> tuple[Update, ...]:
        """Return the updates that create the branch."""
        main = metadata.current_snapshot_id
        if main is not None:
            return (SetSnapshotRef(ref_name=self.name, ref=SnapshotRef(snapshot_id=main)),)
        empty = self._empty_snapshot(metadata)
        return AddSnapshot(snapshot=empty), SetSnapshotRef(
            ref_name=self.name, ref=SnapshotRef(snapshot_id=empty.snapshot_id)
        )

    def _empty_snapshot(self, metadata: TableMetadata) -> Snapshot:
        sequence_number = next_sequence_number(metadata)
        numbers = (metadata.format_version, sequence_number, metadata.next_row_id, metadata.last_updated_ms)
        key = (*numbers, metadata.current_schema_id, metadata_folder(metadata))
        return self._empty.of(*key, make=lambda: self._write_empty(metadata, sequence_number))

    def _write_empty(self, metadata: TableMetadata, sequence_number: int) -> Snapshot:
        location, added_rows = self._writer.write_list(
            (), metadata, parent_snapshot_id=None, sequence_number=sequence_number
        )
        return Snapshot(
            snapshot_id=self.settings.snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=max(self.settings.now_ms(), metadata.last_updated_ms),
            manifest_list=location,
            summary=summarize(
                added=(), removed=(), previous=None, operation="append", properties=self.settings.properties
            ),
            schema_id=metadata.current_schema_id,
            first_row_id=None if added_rows is None else metadata.next_row_id or 0,
            added_rows=added_rows,
        )

    def clean_up(self, metadata: TableMetadata | None) -> None:
        """Delete the lists that no snapshot has, once no attempt is in doubt.

        Args:
            metadata: the table with the work; None if it has failed.
        """
        if metadata is None and (self._is_there or self._may_be_there):
            return
        self._writer.remove_unused(None if metadata is None else metadata.snapshot(self.settings.snapshot_id))


class WithNewBranch(MakesSnapshot):
    """Commits an action to a branch, which the same commit creates if necessary; the action decides what has landed."""

    def __init__(self, action: MakesSnapshot, branch: NewBranch) -> None:
        self._action = action
        self._branch = branch
        self.settings = action.settings

    def __call__(self, metadata: TableMetadata) -> Change:
        name = self._branch.name
        if name in metadata.refs:
            return self._action(metadata)
        change = self._action(self._branch.shown(metadata))
        birth = self._branch.birth(metadata)
        self._branch.give()
        uuid = str(self.settings.commit_uuid)
        at = AssertRefSnapshotId(ref=name, snapshot_id=None)
        if not change.updates:
            return of_this_table(metadata, birth, (at,), new_uuid=uuid)
        # The action moves the branch from where it begins.
        first = tuple(update for update in birth if isinstance(update, AddSnapshot))
        others = (one for one in change.requirements if not (isinstance(one, AssertRefSnapshotId) and one.ref == name))
        return Change(updates=(*first, *change.updates), requirements=(*others, at))

    @property
    def made(self) -> Snapshot | None:
        return self._action.made

    def landed(self, metadata: TableMetadata) -> Outcome | None:
        self._branch.see(metadata)
        return self._action.landed(self._seen(metadata))

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        """Whether the branch would have the work, or no snapshot was made since: the branch may have been dropped."""
        if self._branch.name not in metadata.refs:
            is_newer = metadata.last_sequence_number > base.last_sequence_number
            return not is_newer and metadata.snapshots == base.snapshots
        return self._action.has_surely_not_landed(metadata, self._seen(base))

    def has_left_files(self, metadata: TableMetadata) -> bool:
        return self._action.has_left_files(metadata)

    def succeeded(self, metadata: TableMetadata) -> None:
        self._action.succeeded(metadata)
        self._branch.clean_up(metadata)

    def failed(self) -> None:
        self._action.failed()
        self._branch.clean_up(None)

    def _seen(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata with the branch if that needs no file: a branch without snapshots has no work."""
        return metadata if metadata.current_snapshot_id is None else self._branch.shown(metadata)
