"""A table: create it, load it, read it, change it. All that a user without Airflow needs.

`commit.open_table` has its state and commits, `operations.refs.table` branches and tags, `operations.history.table` who
changed it; `operations.existing.tables` makes it of what exists, `scan` reads it, and `operations` change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg import operations, scan
from airflow_iceberg.catalogs.base import Catalog, TableId, TableState
from airflow_iceberg.catalogs.missing import load_table
from airflow_iceberg.commit.operation_key import OnRerun, OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionField
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.existing.tables import ExistingTables
from airflow_iceberg.operations.history.table import HasHistory
from airflow_iceberg.operations.refs.table import ChangesRefs
from airflow_iceberg.operations.row_level.table import ChangesRows
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.trust import Trust

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.expressions.tree import Expression
    from airflow_iceberg.operations.alter_table import AlterTableResult
    from airflow_iceberg.scan import IncrementalAppendScan, Inspection, TableScan


class Table(ChangesRefs, ChangesRows, ExistingTables, HasHistory):
    """One Iceberg table in the state in which it was loaded, or last refreshed or committed."""

    # -- opening a table ----------------------------------------------------------------------------------------------

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
        """Create a table; arguments and errors as of `operations.create_table`.

        Args:
            catalog, identifier, schema, partition_by, sort_by, properties, location, if_not_exists: as there.
        """
        _check_catalog(catalog, 'Table.create(catalog, "namespace.table", schema=…)')
        request = operations.create_table.CreateTableRequest(
            schema=schema,
            partition_by=partition_by,
            sort_by=sort_by,
            properties={} if properties is None else properties,
            location=location,
            if_not_exists=if_not_exists,
        )
        return cls._of(catalog, operations.create_table.create_table(catalog, TableId.of(identifier), request))

    @classmethod
    def load(cls, catalog: Catalog, identifier: str | TableId) -> Table:
        """Load a table.

        Args:
            catalog, identifier: the catalog; namespace and name of the table, `sales.orders`.

        Raises:
            NotFoundError: the table does not exist.
        """
        _check_catalog(catalog, 'Table.load(catalog, "namespace.table")')
        return cls._of(catalog, load_table(catalog, TableId.of(identifier)))

    @classmethod
    def _of(cls, catalog: Catalog, state: TableState) -> Table:
        return cls(state, io=state.io or catalog.io, catalog=catalog)

    @classmethod
    def from_metadata(
        cls, location: str, properties: Mapping[str, str] | None = None, *, io: FileIO | None = None
    ) -> Table:
        """Open a metadata file, read-only and without a catalog.

        Args:
            location, io: the location of the file, and access to files, if there is one already.
            properties: properties of the storage, as for a catalog; ignored when `io` is given, apart from
                `allowed-locations`: the prefixes of files that are neither in the bucket of the metadata file nor, for
                a local one, below the folder above its own.
        """
        gate = Trust.of(properties or {}).gate_of_metadata_file(location)
        io = gate.around(io or load_file_io(properties or {}))
        metadata = metadata_json.read(io.read(location), path=location)
        state = TableState(table=_name_by_location(metadata), metadata=metadata, metadata_location=location)
        return cls(state, io=io, catalog=None)

    # -- reading ------------------------------------------------------------------------------------------------------

    def scan(
        self,
        row_filter: Any = None,
        *,
        predicate_params: Mapping[str, Any] | None = None,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
        limit: int | None = None,
        case_sensitive: bool = True,
    ) -> TableScan:
        """Describe a read; files are opened when a method of the scan is called.

        Args:
            row_filter: a SQL predicate such as `"amount > 10 and customer = :customer"`, or an expression.
            predicate_params: the values of the predicate's placeholders by name, `{"customer": "O'Neill"}`. A value
                takes the place of a literal, whatever is in it.
            selected_fields: columns, nested ones with dots; `"*"` is all. Only by name: `_row_id` and
                `_last_updated_sequence_number` (the row lineage of version 3), `_file`, `_pos`, `_spec_id`,
                `_partition` and `_deleted` (with the deleted rows).
            snapshot_id, ref, as_of_ms: the snapshot to read, by at most one of the three; the current state by default.
            limit, case_sensitive: the largest number of rows; whether the case of names in the filter counts.

        Raises:
            NotFoundError: no such column, snapshot or ref.
            InvalidInputError: the predicate does not parse or compares values that cannot be compared.
        """
        return scan.TableScan.of(
            self.metadata,
            self.io,
            row_filter=row_filter,
            predicate_params=predicate_params,
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
        predicate_params: Mapping[str, Any] | None = None,
        selected_fields: Sequence[str] = ("*",),
        ref: str | None = None,
        limit: int | None = None,
        case_sensitive: bool = True,
    ) -> IncrementalAppendScan:
        """Describe a read of the rows appended after one snapshot, up to another; see `scan.incremental_scan`.

        Other snapshots (overwrite, delete, compaction) and deletes are skipped: the rows are as they were appended, in
        the table's current schema.

        Args:
            from_snapshot_id: exclusive; None reads from the oldest snapshot that the table still has.
            to_snapshot_id: inclusive; the head of `ref`, by default of main, if left out.
            row_filter, predicate_params, selected_fields, ref, limit, case_sensitive: the arguments of `scan`.

        Raises:
            NotFoundError: no such last snapshot, ref or column.
            InvalidInputError: the first snapshot is no ancestor of the last; the predicate does not parse.
        """
        return scan.incremental_append_scan(
            self.metadata,
            self.io,
            from_snapshot_id=from_snapshot_id,
            to_snapshot_id=to_snapshot_id,
            ref=ref,
            row_filter=row_filter,
            predicate_params=predicate_params,
            selected_fields=selected_fields,
            limit=limit,
            case_sensitive=case_sensitive,
        )

    def changes(
        self,
        from_snapshot_id: int | None,
        to_snapshot_id: int | None = None,
        row_filter: Any = None,
        *,
        mode: str = "append",
        net: bool = False,
        compute_updates: bool = False,
        identifier_columns: Sequence[str] = (),
        predicate_params: Mapping[str, Any] | None = None,
        selected_fields: Sequence[str] = ("*",),
        ref: str | None = None,
        case_sensitive: bool = True,
    ) -> pa.RecordBatchReader:
        """Return the rows that were appended or changed after one snapshot, up to another, in the columns of the last.

        Args:
            from_snapshot_id: exclusive; None: all rows of the last snapshot are new.
            to_snapshot_id: inclusive; the head of `ref`, by default of main, if left out.
            row_filter, predicate_params, selected_fields, ref, case_sensitive: the arguments of `scan`.
            mode: "append", the rows that were appended; "changelog", all changes, with the columns `_change_type`
                (insert, delete, update_before, update_after), `_change_ordinal` (the number of the snapshot among
                those that were read) and `_commit_snapshot_id`. Rows that were only rewritten are no changes.
            net: of a changelog, only what differs between the two snapshots in the end.
            compute_updates, identifier_columns: of a changelog, whether the old and the new version of a row are an
                update, and which columns identify a row; by default the identifier fields, or the row's `_row_id` (v3).

        Raises:
            NotFoundError: no such last snapshot, ref or column.
            InvalidInputError: the first snapshot has expired, or is no ancestor of the last.
        """
        options = scan.ChangesOptions(
            mode=mode, net=net, compute_updates=compute_updates, identifier_columns=identifier_columns
        )
        return scan.read_changes(
            self.metadata,
            self.io,
            options,
            from_snapshot_id=from_snapshot_id,
            to_snapshot_id=to_snapshot_id,
            ref=ref,
            scan={
                "row_filter": row_filter,
                "predicate_params": predicate_params,
                "selected_fields": selected_fields,
                "case_sensitive": case_sensitive,
            },
        )

    @property
    def inspect(self) -> Inspection:
        """The table's metadata as Arrow tables."""
        return scan.Inspection(self.metadata, self.io, self.metadata_location)

    # -- changing -----------------------------------------------------------------------------------------------------

    def alter(
        self, changes: Sequence[Mapping[str, Any]], *, operation_key: OperationKey | None = None
    ) -> AlterTableResult:
        """Change schema, partitioning, sort order, properties or format version, in one commit.

        Args:
            changes: `[{"add_column": {"name": "price", "type": "decimal(9, 2)"}}, {"drop_column": "old"}]`; see
                `plan.alter_table` and docs/how-to/alter-a-table.md. Changes that are already made change nothing, and
                a list that changes its own result, such as an exchange of two names, is made once.
            operation_key: key of an Airflow task, whose earlier commit is found.

        Raises:
            InvalidInputError: not a change, or one that the specification does not allow.
            NotFoundError: no such column or partition field.
            AlreadyExistsError: something to be added exists and is different.
        """
        request = operations.alter_table.AlterTableRequest(changes=changes)
        return operations.alter_table.alter_table(Work.of(self, operation_key), request)

    def append(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        *,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        on_rerun: OnRerun = "append",
        schema_evolution: str | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Append Arrow rows in this process and commit them.

        Columns are matched by name; casts lose nothing, or the call fails before anything is committed.

        Args:
            rows: an Arrow table, record batch or reader.
            branch, snapshot_properties: the branch to commit to, and entries of the snapshot's summary.
            create_branch: whether a branch that the table does not have is created from main, in the same commit.
            operation_key: key of an Airflow task, whose earlier commit is found.
            on_rerun: what happens to the rows of a run of the task before it was cleared: "append" keeps them,
                "replace" replaces them in the same commit, "skip" leaves it at them.
            schema_evolution: "add_columns" adds new columns of the rows, and wider types where that is legal, to the
                table's schema in the same commit.
            write_format: format of the data files, "parquet" or "avro"; by default the table's `write.format.default`.

        Raises:
            InvalidInputError: a column is missing, unknown, or holds a value that does not fit.
            StalePlanError: another writer changed the schema meanwhile; nothing was committed.
        """
        request = operations.append.AppendRequest(
            rows=rows,
            branch=branch,
            create_branch=create_branch,
            on_rerun=on_rerun,
            schema_evolution=schema_evolution,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.append.append(Work.of(self, operation_key), request)

    def overwrite(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        overwrite_filter: str | Expression | None = None,
        *,
        predicate_params: Mapping[str, Any] | None = None,
        check_filter: bool = True,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        schema_evolution: str | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Replace the rows that a predicate selects, or all, by Arrow rows, in this process and in one commit.

        Args:
            overwrite_filter: SQL such as `"day = :day"`; the new rows have to satisfy it, too. None replaces the whole
                table.
            predicate_params: the values of the filter's placeholders by name, as of `scan`.
            check_filter: False also takes new rows that the filter does not select: rows that it selects are deleted,
                and the new rows appended, in one commit.
            isolation_level: "serializable" (the default) or "snapshot".
            rows, branch, create_branch, snapshot_properties, operation_key: the arguments of `append`.
            schema_evolution, write_format: the arguments of `append`.

        Raises:
            InvalidInputError: the filter does not select a row that is to be written.
            StalePlanError: another writer has changed what is replaced; nothing was committed.
        """
        request = operations.overwrite.OverwriteRequest(
            rows=rows,
            replace="table" if overwrite_filter is None else "matching",
            overwrite_filter=overwrite_filter,
            predicate_params=predicate_params,
            check_filter=check_filter,
            isolation_level=isolation_level,
            branch=branch,
            create_branch=create_branch,
            deletes_when_empty=True,
            schema_evolution=schema_evolution,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.overwrite.overwrite(Work.of(self, operation_key), request)

    def dynamic_partition_overwrite(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        *,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        schema_evolution: str | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Replace all rows of the partitions that Arrow rows are in.

        Partitions are those of the table's current spec: files of older specs are kept, and a table without partitions
        is replaced as a whole.

        Args:
            rows, branch, create_branch, isolation_level, snapshot_properties: the arguments of `overwrite`.
            operation_key, schema_evolution, write_format: the arguments of `overwrite`.
        """
        request = operations.overwrite.OverwriteRequest(
            rows=rows,
            replace="partitions",
            isolation_level=isolation_level,
            branch=branch,
            create_branch=create_branch,
            schema_evolution=schema_evolution,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.overwrite.overwrite(Work.of(self, operation_key), request)


def _name_by_location(metadata: TableMetadata) -> TableId:
    """Name a table without a catalog by the last two folders of its location; for messages only."""
    folders = [part.replace(".", "_") for part in metadata.location.split("/") if part.strip()]
    *_, namespace, name = ["metadata", "table", *folders]
    return TableId(namespace=(namespace,), name=name)


def _check_catalog(catalog: object, call: str) -> None:
    if not isinstance(catalog, Catalog):
        text = f"expected a catalog first and then the table's name, got {type(catalog).__name__} first"
        raise InvalidInputError(f"{text}; write it as {call}")
