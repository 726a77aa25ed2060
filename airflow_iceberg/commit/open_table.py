"""A table that is open for changes: its state, its catalog, and its commits.

Operations work on an `OpenTable`; users have `airflow_iceberg.table.Table`, which adds operations, branches and tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.checks import check_branch, check_writable
from airflow_iceberg.commit.engine import Action, Landed, commit
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.refs.marks import PREFIX as MARKS_OF_REFS
from airflow_iceberg.commit.refs.new_branch import NewBranch, WithNewBranch
from airflow_iceberg.commit.settings import CommitSettings, settings_for
from airflow_iceberg.commit.snapshot_action import MakesSnapshot, as_snapshot_action
from airflow_iceberg.commit.write_result import WriteResult, describe
from airflow_iceberg.errors import NotFoundError, UnsupportedError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder
from airflow_iceberg.plan.alter_table.applied import without_marks
from airflow_iceberg.storage.base import FileIO


class OpenTable:
    """One Iceberg table in the state in which it was loaded, or last refreshed or committed."""

    def __init__(self, state: TableState, *, io: FileIO, catalog: Catalog | None) -> None:
        self._io = io
        self._catalog = catalog
        self._gated: tuple[TableMetadata, FileIO] | None = None
        self._state = state
        self._newest: TableState | None = None
        self._new_branch: NewBranch | None = None
        self._take(state)

    def refresh(self) -> Self:
        """Load the table again and return the same object; a table without a catalog does not change.

        Raises:
            TableReplacedError: it was dropped or renamed, and another table has its name.
        """
        if self._catalog is not None:
            self._take(self._catalog.reload(self._state))
        return self

    @property
    def io(self) -> FileIO:
        """Access to the table's files, and to no others: through the gate of its locations.

        Raises:
            InvalidInputError: the connection does not trust the table's location.
        """
        if self._catalog is None:
            return self._io
        metadata = self._state.metadata
        if self._gated is None or self._gated[0] is not metadata:
            gate = self._catalog.gate(self._state.table, metadata, self._state.metadata_location)
            self._gated = (metadata, gate.around(self._io))
        return self._gated[1]

    @io.setter
    def io(self, io: FileIO) -> None:
        self._io, self._gated = io, None

    def deleting_io(self) -> FileIO:
        """Return access to the table's files for the deletion of files that its metadata names."""
        return self.io if self._catalog is None else self._catalog.deleting_io(self._state, self._io)

    def rewind(self, metadata: TableMetadata, metadata_location: str) -> None:
        """Show the table as it was once, for work that goes on after it was planned then.

        Until it is loaded again or committed to. Commits are made on the state that was loaded last.
        """
        self._newest = self._newest or self._state
        # A swap that expects this state would lose what others have committed since.
        self._state = replace(self._newest, metadata=metadata, metadata_location=metadata_location, token=None)

    @property
    def is_rewound(self) -> bool:
        """Whether the table is shown as it was once."""
        return self._newest is not None

    @property
    def state(self) -> TableState:
        """The state that was loaded last, for a commit to several tables."""
        return self._newest or self._state

    @property
    def newest_metadata(self) -> TableMetadata:
        """The metadata that was loaded last, also of a table that was rewound."""
        return self._with_branch((self._newest or self._state).metadata)

    @contextmanager
    def new_branch(self, name: str) -> Iterator[None]:
        """Show the table with a branch in the block, and create the branch with what is committed to it there.

        A branch that the table has is used as it is.
        """
        self._new_branch = NewBranch(name, io=self.io, metadata=self.metadata)
        try:
            yield
        finally:
            self._new_branch = None

    def _with_branch(self, metadata: TableMetadata) -> TableMetadata:
        return metadata if self._new_branch is None else self._new_branch.shown(metadata)

    def _take(self, state: TableState) -> None:
        self._state, self._newest = state, None

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def identifier(self) -> TableId:
        """Namespace and name."""
        return self._state.table

    @property
    def name(self) -> str:
        """Namespace and name as text, `sales.orders`."""
        return str(self._state.table)

    @property
    def catalog(self) -> Catalog:
        """The catalog that the table was loaded from.

        Raises:
            UnsupportedError: the table was opened by its metadata file.
        """
        if self._catalog is None:
            raise UnsupportedError(f"table {self.metadata_location} was opened without a catalog and is read-only")
        return self._catalog

    @property
    def metadata(self) -> TableMetadata:
        """The content of the metadata file."""
        return self._with_branch(self._state.metadata)

    @property
    def metadata_location(self) -> str:
        """The location of the metadata file."""
        return self._state.metadata_location

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.metadata.location

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties, without the marks of changes that were made; `metadata.properties` has those, too."""
        shown = without_marks(self.metadata.properties)
        return {name: value for name, value in shown.items() if not name.startswith(MARKS_OF_REFS)}

    @property
    def refs(self) -> Mapping[str, SnapshotRef]:
        """Branches and tags by name."""
        return self.metadata.refs

    def schema(self) -> Schema:
        """The current schema."""
        return self.metadata.schema()

    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self.metadata.spec()

    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self.metadata.sort_order()

    def current_snapshot(self) -> Snapshot | None:
        """The head of the main branch; None for a table that has no snapshot yet."""
        return self.metadata.current_snapshot()

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Every snapshot that the metadata has."""
        return self.metadata.snapshots

    # -- changing it --------------------------------------------------------------------------------------------------

    def check_branch(self, branch: str) -> None:
        """Check that rows can be written to a branch.

        Raises:
            InvalidInputError: the name is a tag.
            NotFoundError: the branch does not exist.
            UnsupportedError: this version does not write the table.
        """
        check_writable(self.metadata, self.name)
        check_branch(self.metadata, branch, self.name)
        try:
            self.metadata.ref_snapshot(branch)
        except NotFoundError as error:
            hint = "create it first, or with create_branch=True"
            if self._catalog is not None and self._catalog.names_have_refs:
                hint += f"; a branch of the catalog, which has all tables, is named in the table: {self.name}@{branch}"
            raise NotFoundError(f"{error}; {hint}") from error

    def commit_settings(
        self,
        *,
        branch: str = MAIN_BRANCH,
        operation_key: OperationKey | None = None,
        try_number: int = 1,
        snapshot_properties: Mapping[str, str] | None = None,
        table_uuid: str | None = None,
    ) -> CommitSettings:
        """Return what an action of `airflow_iceberg.commit` needs in addition to its files; for one commit.

        Args:
            table_uuid: the uuid of the table that was planned for; by default that of the table as it is.

        Raises:
            InvalidInputError: a tag, or a snapshot property that the commit itself writes.
            NotFoundError: no such branch.
            UnsupportedError: this version does not write the table.
        """
        self.check_branch(branch)
        return settings_for(
            self.metadata,
            table_uuid=table_uuid,
            branch=branch,
            operation_key=operation_key,
            try_number=try_number,
            snapshot_properties=snapshot_properties,
        )

    def commit(self, action: MakesSnapshot) -> WriteResult:
        """Commit an action exactly once; afterwards this object is the table that contains it.

        Raises:
            StalePlanError: another writer has changed what was planned on; nothing was committed.
            CommitConflictError, CommitUnknownError: see `commit.engine.commit`.
        """
        landed = self.land(action)
        return describe(landed.state, action.settings, landed.outcome, action.made)

    def change(self, action: Action) -> None:
        """Commit an action that makes no snapshot (expiry, refs).

        Raises:
            CommitConflictError, CommitUnknownError: see `commit.engine.commit`.
        """
        check_writable(self.metadata, self.name)
        self.land(action)

    def land(self, action: Action) -> Landed:
        """Commit any action, also one that makes the table writable again, and return how that ended."""
        branch = self._new_branch
        if branch is not None and (of_snapshot := as_snapshot_action(action)) is not None:
            action = WithNewBranch(of_snapshot, branch) if of_snapshot.settings.branch == branch.name else action
        landed = commit(self.catalog, self._newest or self._state, action)
        self._take(landed.state)
        return landed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.metadata_location!r})"
