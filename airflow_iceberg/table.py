"""A table: load it, scan it, look into it, append to it. All that a user without Airflow needs.

Here the parts meet: the catalog knows where the table stands, `scan.table_scan` reads it, `operations.staging` talks to
jobs, `commit` makes changes true. Clock and dice come in here; everything below gets its times and ids as arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.commit.checks import check_writable
from airflow_iceberg.commit.earlier_runs import check_not_overtaken
from airflow_iceberg.commit.engine import Action, RetryPolicy, commit
from airflow_iceberg.commit.manifest_merging import MergePolicy
from airflow_iceberg.commit.operation_key import (
    ON_RERUN,
    OnRerun,
    OperationKey,
    check_properties,
    find_landed,
    find_other_epochs,
)
from airflow_iceberg.commit.settings import CommitSettings, now_ms, settings_for
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.commit.write_result import WriteResult, describe, result_of
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    UnsupportedError,
)
from airflow_iceberg.expressions.binding import parse
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import SortOrder, sort_order_from_shorthand
from airflow_iceberg.jobs.protocol.plan import Condition, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.alter_table import check_properties as check_properties_to_set
from airflow_iceberg.operations.append import adds_columns, append_action, with_new_columns
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.expressions.tree import Expression
    from airflow_iceberg.format.manifests.entries import DataFile
    from airflow_iceberg.operations.alter_table import AlterResult
    from airflow_iceberg.operations.delete import DeleteResult
    from airflow_iceberg.operations.overwrite import OverwriteResult
    from airflow_iceberg.scan.incremental_scan import IncrementalAppendScan
    from airflow_iceberg.scan.metadata_tables import Inspection
    from airflow_iceberg.scan.table_scan import TableScan


log = logging.getLogger(__name__)


class Table:
    """One Iceberg table as it was when it was loaded; `refresh` looks again, a commit moves it on."""

    def __init__(self, state: TableState, *, io: FileIO, catalog: Catalog | None) -> None:
        self._state = state
        self.io = io
        self._catalog = catalog

    # -- getting hold of one ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        catalog: Catalog,
        identifier: str | TableId,
        *,
        schema: Mapping[str, Any] | Schema | pa.Schema,
        partition_by: Sequence[str | PartitionField] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table.

        Args:
            schema: `{"id": "long not null", "ts": "timestamptz"}`, a Schema, or an Arrow schema.
            partition_by: `["day(ts)", "bucket(16, id)"]`.
            sort_by: `["ts desc nulls last"]`.
            location: where the table lies; the catalog's own choice by default.
            if_not_exists: return the table that is there, as it is, instead of failing; a warning is logged when it is
                different from what is described here.

        Raises:
            AlreadyExistsError: the name is taken.
            NotFoundError: the namespace does not exist, or a column that the partitioning or sorting names.
            InvalidInputError: an unknown type or transform, or a property with a value that is not of its kind.
        """
        _check_catalog(catalog, 'Table.create(catalog, "namespace.table", schema=…)')
        table = TableId.of(identifier)
        columns = schema_from_shorthand(schema)
        if not columns.fields:
            raise InvalidInputError(
                f"table {table} would have no columns; name them and their types, such as schema={{'id': 'long'}}"
            )
        metadata = new_table_metadata(
            location=(location or catalog.default_location(table)).rstrip("/"),
            schema=columns,
            spec=spec_from_shorthand(partition_by, columns),
            sort_order=sort_order_from_shorthand(sort_by, columns),
            properties=_checked_properties(properties or {}),
            table_uuid=str(uuid4()),
            now_ms=now_ms(),
        )
        check_writable(metadata, str(table))
        check_properties_to_set(metadata.properties)
        try:
            return cls._of(catalog, catalog.create(table, metadata))
        except AlreadyExistsError:
            if not if_not_exists:
                raise
            found = cls.load(catalog, table)
            _warn_if_different(found.metadata, metadata, str(table))
            return found

    @classmethod
    def load(cls, catalog: Catalog, identifier: str | TableId) -> Table:
        """Load a table.

        Raises:
            NotFoundError: there is no such table.
        """
        _check_catalog(catalog, 'Table.load(catalog, "namespace.table")')
        table = TableId.of(identifier)
        return cls._of(catalog, catalog.load(table))

    @classmethod
    def _of(cls, catalog: Catalog, state: TableState) -> Table:
        return cls(state, io=state.io or catalog.io, catalog=catalog)

    @classmethod
    def from_metadata(
        cls, location: str, properties: Mapping[str, str] | None = None, *, io: FileIO | None = None
    ) -> Table:
        """Open a metadata file, read-only and without a catalog.

        Args:
            properties: of the storage, as for a catalog; not used when `io` is given.
        """
        io = io or load_file_io(properties or {})
        metadata = TableMetadata.from_json(io.read(location), path=location)
        state = TableState(table=_name_by_location(metadata), metadata=metadata, metadata_location=location)
        return cls(state, io=io, catalog=None)

    def refresh(self) -> Table:
        """Look again and return the same object; a table without a catalog stays as it is."""
        if self._catalog is not None:
            self._state = self._catalog.load(self._state.table)
        return self

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
        """The catalog that it was loaded from.

        Raises:
            UnsupportedError: the table was opened by its metadata file.
        """
        if self._catalog is None:
            raise UnsupportedError(f"table {self.metadata_location} was opened without a catalog and is read-only")
        return self._catalog

    @property
    def metadata(self) -> TableMetadata:
        """All that the metadata file says."""
        return self._state.metadata

    @property
    def metadata_location(self) -> str:
        """Where the metadata file lies."""
        return self._state.metadata_location

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.metadata.location

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.properties

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
        """The head of the main branch; None for a table without rows yet."""
        return self.metadata.current_snapshot()

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Every snapshot that the metadata knows."""
        return self.metadata.snapshots

    # -- reading ------------------------------------------------------------------------------------------------------

    def scan(
        self,
        row_filter: Any = None,
        *,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
        limit: int | None = None,
        case_sensitive: bool = True,
    ) -> TableScan:
        """Describe a read; nothing is opened before a method of the scan is called.

        Args:
            row_filter: a SQL predicate such as `"amount > 10 and ts >= '2026-01-01'"`, or an expression.
            selected_fields: columns, nested ones with dots; `"*"` is all. By name alone: `_row_id` and
                `_last_updated_sequence_number` (the row lineage of version 3), `_file`, `_pos`, `_spec_id`,
                `_partition` and `_deleted` (which brings the deleted rows, too).
            snapshot_id, ref, as_of_ms: at most one of them; the current state by default.
            limit: at most so many rows.

        Raises:
            NotFoundError: no such column, snapshot or ref.
            InvalidInputError: the predicate does not parse or compares what cannot be compared.
        """
        from airflow_iceberg.scan.table_scan import TableScan

        return TableScan.of(
            self.metadata,
            self.io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            snapshot_id=snapshot_id,
            ref=ref,
            as_of_ms=as_of_ms,
            limit=limit,
            case_sensitive=case_sensitive,
        )

    def incremental_append_scan(
        self,
        from_snapshot_id: int | None = None,
        to_snapshot_id: int | None = None,
        row_filter: Any = None,
        *,
        selected_fields: Sequence[str] = ("*",),
        ref: str | None = None,
        limit: int | None = None,
        case_sensitive: bool = True,
    ) -> IncrementalAppendScan:
        """Describe a read of the rows appended after one snapshot, up to another; see `scan.incremental_scan`.

        Snapshots that did something else (overwrite, delete, compaction) are passed over, and so are deletes: the rows
        come as they were appended, in the table's current schema.

        Args:
            from_snapshot_id: exclusive; None reads from the oldest snapshot that the table still has.
            to_snapshot_id: inclusive; the head of `ref`, by default of main, if left out.

        Raises:
            NotFoundError: no such last snapshot, ref or column.
            InvalidInputError: the first snapshot is no ancestor of the last; the predicate does not parse.
        """
        from airflow_iceberg.scan.incremental_scan import incremental_append_scan

        return incremental_append_scan(
            self.metadata,
            self.io,
            from_snapshot_id=from_snapshot_id,
            to_snapshot_id=to_snapshot_id,
            ref=ref,
            row_filter=row_filter,
            selected_fields=selected_fields,
            limit=limit,
            case_sensitive=case_sensitive,
        )

    @property
    def inspect(self) -> Inspection:
        """The table's metadata as Arrow tables."""
        from airflow_iceberg.scan.metadata_tables import Inspection

        return Inspection(self.metadata, self.io, self.metadata_location)

    # -- altering -----------------------------------------------------------------------------------------------------

    def alter(self, changes: Sequence[Mapping[str, Any]]) -> AlterResult:
        """Change schema, partitioning, sort order, properties or format version, in one commit.

        Args:
            changes: `[{"add_column": {"name": "price", "type": "decimal(9, 2)"}}, {"drop_column": "old"}]`; see
                `plan.alter_table` and docs/how-to/alter-a-table.md. A list whose result stands already changes nothing.

        Raises:
            InvalidInputError: not a change, or one that the specification does not allow.
            NotFoundError: no such column or partition field.
            AlreadyExistsError: what is to be added is there and is different.
        """
        from airflow_iceberg.operations.alter_table import alter

        self._state, result = alter(self.catalog, self._state, changes)
        return result

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        *,
        branch: str = MAIN_BRANCH,
        snapshot_properties: Mapping[str, str] | None = None,
        operation: OperationKey | None = None,
        schema_evolution: str | None = None,
    ) -> WriteResult:
        """Append Arrow rows in this process and commit them.

        Columns are matched by name; casts lose nothing, or the call fails before anything is committed.

        Args:
            schema_evolution: "add_columns" lets columns that the rows have more, and wider types where that is legal,
                join the table's schema in the same commit as the rows.

        Raises:
            InvalidInputError: a column is missing, extra, or holds a value that does not fit.
            StalePlanError: another writer changed the schema meanwhile; nothing was committed.
        """
        from airflow_iceberg.data.write.rows import schema_with, write_rows

        if operation is not None and (found := self.find_append(operation, branch=branch)):
            return found
        self._check_branch(branch)
        self._check_options()
        check_properties(snapshot_properties or {})
        uuid, planned = self.metadata.table_uuid or "", self.schema()
        written = schema_with(self.metadata, rows) if adds_columns(schema_evolution) else planned
        prefix = staging.new_file_prefix(operation)
        files = write_rows(self.io, self.metadata, rows, file_prefix=prefix, schema=written)
        try:
            return self._commit_files(
                files,
                table_uuid=uuid,
                written_schema=written,
                planned_schema=planned,
                branch=branch,
                properties=snapshot_properties or {},
                operation=operation,
            )
        except CommitUnknownError:
            raise  # the commit may have landed: its files must stay
        except IcebergError:
            staging.remove(self.io, [file.file_path for file in files])
            raise

    def find_append(
        self, operation: OperationKey, *, branch: str = MAIN_BRANCH, on_rerun: OnRerun = "replace"
    ) -> WriteResult | None:
        """Ask the table whether this work is done; None means that there is work to do.

        Raises:
            NotFoundError: no such branch.
            IncompatibleChangeError: a run after a later clear has committed already.
        """
        if on_rerun not in ON_RERUN:
            raise InvalidInputError(f"unknown on_rerun {on_rerun!r}; one of {', '.join(ON_RERUN)}")
        self._check_branch(branch)
        landed = find_landed(self.metadata, operation, branch)
        if landed is not None:
            return result_of(landed, table=self.name, branch=branch, outcome="found")
        check_not_overtaken(self.metadata, operation, branch)
        earlier = find_other_epochs(self.metadata, operation, branch)
        if on_rerun == "skip" and earlier:
            return result_of(earlier[0][1], table=self.name, branch=branch, outcome="skipped")
        return None

    def plan_append(
        self,
        source: Source,
        *,
        operation: OperationKey | None = None,
        try_number: int = 1,
        branch: str = MAIN_BRANCH,
        parallelism: int | None = None,
        row_check: str | Expression | None = None,
        schema_evolution: str | None = None,
    ) -> JobPlan:
        """Write the plan of a job that appends; the job stages files, `commit_append` makes them part of the table.

        Args:
            row_check: a predicate that every row has to satisfy, or the job fails; bound by the job.
            schema_evolution: "add_columns" lets new columns of the source, and wider types, join the table's schema in
                the same commit as the rows.

        Raises:
            InvalidInputError, UnsupportedError: a property of the table would make the write or the commit fail.
            StorageError: the staging prefix cannot be written.
        """
        self._check_branch(branch)
        self._check_options()
        return staging.write_append_plan(
            self.io,
            self.metadata,
            source,
            table=self.name,
            operation=operation,
            try_number=try_number,
            parallelism=parallelism,
            row_check=None if row_check is None else Condition(text=str(row_check), predicate=parse(row_check)),
            adds_columns=adds_columns(schema_evolution),
        )

    def read_result(self, plan: JobPlan) -> JobResult:
        """Return what the job reported, or raise the job's own error."""
        return staging.read_result(self.io, plan)

    def commit_append(
        self,
        plan: JobPlan,
        result: JobResult,
        *,
        operation: OperationKey | None = None,
        try_number: int = 1,
        branch: str = MAIN_BRANCH,
        on_rerun: OnRerun = "replace",
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Commit the files that a job staged, exactly once, and remove the job's documents."""
        written = self._commit_files(
            staging.staged_files(plan, result),
            table_uuid=plan.table_uuid,
            written_schema=result.schema or plan.schema,
            planned_schema=plan.schema,
            branch=branch,
            properties=snapshot_properties or {},
            operation=operation,
            try_number=try_number,
            replace_earlier=on_rerun == "replace",
        )
        staging.clear(self.io, plan)
        return written

    def discard(self, plan: JobPlan, result: JobResult | None = None) -> None:
        """Remove what a try left behind that is known not to have committed; never raises."""
        files = () if result is None else staging.staged_files(plan, result)
        staging.clear(self.io, plan, files)

    # -- changing rows ------------------------------------------------------------------------------------------------

    def delete(
        self,
        predicate: str | Expression,
        *,
        branch: str = MAIN_BRANCH,
        max_rows: int | None = None,
        mode: str | None = None,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation: OperationKey | None = None,
    ) -> DeleteResult:
        """Delete the rows that a predicate selects, in this process; see `operations.delete` for jobs.

        Args:
            predicate: SQL such as `"customer = 17"`; rows of which it is null stay.
            max_rows: when more rows would go, nothing is committed.
            mode: "copy-on-write" or "merge-on-read"; the table's `write.delete.mode` if left out.
            isolation_level: "serializable" or "snapshot"; the table's `write.delete.isolation-level` if left out.

        Raises:
            InvalidInputError, NotFoundError: the predicate does not fit the table, or more rows would go.
            StalePlanError: other writers changed the same files again and again; nothing was committed.
        """
        from airflow_iceberg.operations.delete import DeleteRequest, delete

        self._check_options()
        request = DeleteRequest(
            predicate=predicate,
            mode=mode,
            isolation_level=isolation_level,
            max_rows=max_rows,
            branch=branch,
            snapshot_properties=snapshot_properties or {},
        )
        return delete(self, request, operation=operation)

    def overwrite(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        overwrite_filter: str | Expression | None = None,
        *,
        branch: str = MAIN_BRANCH,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation: OperationKey | None = None,
        schema_evolution: str | None = None,
    ) -> OverwriteResult:
        """Put Arrow rows in the place of those that a predicate selects, or of all, in this process and in one commit.

        Args:
            overwrite_filter: SQL such as `"day = '2026-01-01'"`; the new rows have to satisfy it, too. None replaces
                the whole table.
            isolation_level: "serializable" (the default) or "snapshot".
            schema_evolution: as of `append`.

        Raises:
            InvalidInputError: the filter does not select a row that is to be written.
            StalePlanError: another writer has changed what is replaced; nothing was committed.
        """
        from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite_rows

        self._check_branch(branch)
        self._check_options()
        request = OverwriteRequest(
            replace="table" if overwrite_filter is None else "matching",
            overwrite_filter=overwrite_filter,
            isolation_level=isolation_level,
            branch=branch,
            deletes_when_empty=True,
            schema_evolution=schema_evolution,
            snapshot_properties=snapshot_properties or {},
        )
        return overwrite_rows(self, rows, request, operation=operation)

    def dynamic_partition_overwrite(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        *,
        branch: str = MAIN_BRANCH,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation: OperationKey | None = None,
        schema_evolution: str | None = None,
    ) -> OverwriteResult:
        """Put Arrow rows in the place of all rows of the partitions that they touch; arguments as of `overwrite`.

        Partitions are those of the table's current spec: files of older specs stay, and a table without partitions is
        replaced as a whole.
        """
        from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite_rows

        self._check_branch(branch)
        self._check_options()
        request = OverwriteRequest(
            replace="partitions",
            isolation_level=isolation_level,
            branch=branch,
            schema_evolution=schema_evolution,
            snapshot_properties=snapshot_properties or {},
        )
        return overwrite_rows(self, rows, request, operation=operation)

    # -- any other change ---------------------------------------------------------------------------------------------

    def commit_settings(
        self,
        *,
        branch: str = MAIN_BRANCH,
        operation: OperationKey | None = None,
        try_number: int = 1,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> CommitSettings:
        """Return what an action of `airflow_iceberg.commit` needs beside its files; for one commit.

        Raises:
            InvalidInputError: a tag, or a snapshot property that the commit itself writes.
            NotFoundError: no such branch.
            UnsupportedError: the table is one that is not written here.
        """
        self._check_branch(branch)
        return settings_for(
            self.metadata,
            branch=branch,
            operation=operation,
            try_number=try_number,
            snapshot_properties=snapshot_properties,
        )

    def commit(self, action: SnapshotAction) -> WriteResult:
        """Land an action exactly once, and move this object on to the table that holds it.

        Raises:
            StalePlanError: another writer has changed what was planned on; nothing was committed.
            CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
        """
        self._state = commit(self.catalog, self._state, action)
        return describe(self._state, action.settings)

    def change(self, action: Action) -> None:
        """Land an action that makes no snapshot of its own (expiry, refs).

        Raises:
            CommitConflictError, CommitUnknownError: as `commit.engine.commit`.
        """
        check_writable(self.metadata, self.name)
        self._state = commit(self.catalog, self._state, action)

    def _commit_files(
        self,
        files: Sequence[DataFile],
        *,
        table_uuid: str,
        written_schema: Schema,
        branch: str,
        properties: Mapping[str, str],
        operation: OperationKey | None,
        planned_schema: Schema | None = None,
        try_number: int = 1,
        replace_earlier: bool = False,
    ) -> WriteResult:
        settings = settings_for(
            self.metadata,
            table_uuid=table_uuid,
            branch=branch,
            operation=operation,
            try_number=try_number,
            snapshot_properties=properties,
        )
        action = append_action(
            self.io,
            files,
            settings,
            written_schema=written_schema,
            try_number=try_number,
            replace_earlier=replace_earlier,
        )
        return self.commit(with_new_columns(action, written_schema, planned_schema or written_schema))

    def _check_branch(self, branch: str) -> None:
        check_writable(self.metadata, self.name)
        ref = self.metadata.refs.get(branch)
        self.metadata.ref_snapshot(branch)
        if ref is not None and ref.type != "branch":
            raise InvalidInputError(f"{branch!r} is a tag of table {self.name}; rows are written to branches only")

    def _check_options(self) -> None:
        """Find what will make the commit fail before anything is written: a job may take hours to come to it."""
        _ = self.catalog  # a table without one is read-only
        WriteOptions.from_properties(self.properties, self.schema(), self.sort_order())
        RetryPolicy.of(self.metadata)
        MergePolicy.of(self.metadata)
        properties = TableProperties.of(self.properties)
        _ = properties.summary_partition_limit, properties.metadata_previous_versions_max

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.metadata_location!r})"


def _name_by_location(metadata: TableMetadata) -> TableId:
    """Name a table without a catalog by the last two folders of its location; for messages only."""
    folders = [part.replace(".", "_") for part in metadata.location.split("/") if part.strip()]
    *_, namespace, name = ["metadata", "table", *folders]
    return TableId(namespace=(namespace,), name=name)


def _checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidInputError(f"properties: expected names and values, got {type(properties).__name__}")
    return {str(name): property_text("properties", str(name), value) for name, value in properties.items()}


def _check_catalog(catalog: object, call: str) -> None:
    if not isinstance(catalog, Catalog):
        raise InvalidInputError(
            f"expected a catalog first and then the table's name, got {type(catalog).__name__} first; "
            f"write it as {call}"
        )


def _warn_if_different(there: TableMetadata, wanted: TableMetadata, name: str) -> None:
    """Say that the table that is there is not the one that was described."""
    pairs = {
        "columns": (str(there.schema()), str(wanted.schema())),
        "partitioning": (_terms(there.spec().fields), _terms(wanted.spec().fields)),
        "sort order": (_terms(there.sort_order().fields), _terms(wanted.sort_order().fields)),
    }
    other = [what for what, (left, right) in pairs.items() if left != right]
    if other:
        log.warning(
            "table %s is there already and is left as it is, with other %s than asked for; alter it to change it",
            name,
            " and ".join(other),
        )


def _terms(fields: Sequence[Any]) -> list[tuple[str, int]]:
    return [(str(field.transform), field.source_id) for field in fields]
