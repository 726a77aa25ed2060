"""The methods of a table that change its rows, in this process: `delete`, `merge`, `upsert`, `update`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg import operations
from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import UPSERT, name_parts
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.expressions.tree import Expression

DUCKDB = "duckdb"


class ChangesRows(OpenTable):
    """A table whose rows can be changed; the SQL of `merge` and `update` is DuckDB's, which has to be installed."""

    def delete(
        self,
        predicate: str | Expression,
        *,
        predicate_params: Mapping[str, Any] | None = None,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        max_rows: int | None = None,
        mode: str | None = None,
        isolation_level: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Delete the rows that a predicate selects, in this process; see `operations.delete` for jobs.

        Args:
            predicate: SQL such as `"customer = :customer"`; rows where it is null are kept.
            predicate_params: the values of the predicate's placeholders by name, as of `scan`.
            max_rows: the largest number of rows that may be deleted; with more, nothing is committed.
            mode: "copy-on-write" or "merge-on-read"; the table's `write.delete.mode` if left out.
            isolation_level: "serializable" or "snapshot"; the table's `write.delete.isolation-level` if left out.
            create_branch, write_format: the arguments of `append`.

        Raises:
            InvalidInputError, NotFoundError: the predicate does not fit the table, or selects more rows.
            StalePlanError: other writers changed the same files, in each round; nothing was committed.
        """
        operations.new_rows.check_options(self, write_format=write_format, writes_files=False)
        request = operations.delete.DeleteRequest(
            predicate=predicate,
            predicate_params=predicate_params,
            mode=mode,
            isolation_level=isolation_level,
            max_rows=max_rows,
            branch=branch,
            create_branch=create_branch,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.delete.delete(Work.of(self, operation_key), request)

    def merge(
        self,
        rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        on: str | Sequence[str],
        clauses: str | Sequence[str],
        *,
        params: Mapping[str, Any] | None = None,
        mode: str | None = None,
        isolation_level: str | None = None,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Let Arrow rows change the rows of the table that they match, and add the others.

        Args:
            on: the columns that are compared, or a condition in SQL over `target` and `source`.
            clauses: what happens to the rows, as in SQL's MERGE:
                `"when matched and source.op = 'd' then delete when matched then update set * when not matched then
                insert *"`.
            params: the values of placeholders of the SQL, `$name`, by name.
            mode: "copy-on-write" or "merge-on-read"; the table's `write.merge.mode` if left out.
            isolation_level: "serializable" or "snapshot"; the table's `write.merge.isolation-level` if left out.
            create_branch, write_format: the arguments of `append`.

        Raises:
            InvalidInputError: SQL that does not fit; several rows match one row of the table. Nothing was committed.
            StalePlanError: other writers changed the same rows, in each round; nothing was committed.
            UnsupportedError: DuckDB is not installed.
        """
        request = operations.merge.MergeRequest(
            rows=rows,
            on=on,
            clauses=clauses,
            params=params,
            dialect=DUCKDB,
            mode=mode,
            isolation_level=isolation_level,
            branch=branch,
            create_branch=create_branch,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.merge.merge(Work.of(self, operation_key), request)

    def upsert(
        self,
        df: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
        join_cols: Sequence[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
        *,
        mode: str | None = None,
        operation_key: OperationKey | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Update the rows that have the keys of Arrow rows, and add the other Arrow rows; arguments as of PyIceberg.

        Args:
            df: the rows, with all columns of the table; each key once, and none null.
            join_cols: the columns of the key, `"id"` or a field of a struct, `"a.id"`; by default the identifier fields
                of the table's schema.
            mode, create_branch, write_format: as of `merge`.

        DuckDB is only needed for a key whose fields are spelled in another way inside a struct, or whose values are
        nested.

        Raises: as `merge`; InvalidInputError also without a key, or if neither is to be done.
        """
        keys = self._keys(join_cols, case_sensitive)
        if not when_matched_update_all and not when_not_matched_insert_all:
            raise InvalidInputError("an upsert that neither updates nor inserts does nothing; set one of the two")
        chosen = (when_matched_update_all, when_not_matched_insert_all)
        request = operations.merge.MergeRequest(
            rows=df,
            on=keys,
            upsert=tuple(clause for clause, is_chosen in zip(UPSERT, chosen, strict=True) if is_chosen),
            dialect=DUCKDB,
            mode=mode,
            branch=branch,
            create_branch=create_branch,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.merge.merge(Work.of(self, operation_key), request)

    def _keys(self, join_cols: Sequence[str] | None, case_sensitive: bool) -> list[str]:
        schema = self.metadata.schema()
        if join_cols is not None:
            fields = [schema.find_key(_plain(name, schema), case_sensitive) for name in join_cols]
            return [schema.find_name(field.id) or "" for field in fields]
        keys = [schema.find_name(field_id) or "" for field_id in schema.identifier_field_ids]
        if not keys:
            raise InvalidInputError(
                f"table {self.name} has no identifier fields, by which rows would be matched: set join_cols, such as "
                f"['id']"
            )
        return keys

    def update(
        self,
        set: Mapping[str, str],
        where: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        mode: str | None = None,
        isolation_level: str | None = None,
        branch: str = MAIN_BRANCH,
        create_branch: bool = False,
        snapshot_properties: Mapping[str, str] | None = None,
        operation_key: OperationKey | None = None,
        write_format: str | None = None,
    ) -> WriteResult:
        """Give rows new values.

        Args:
            set: the columns, each with an SQL expression over the columns of its row: `{"total": "price * amount"}`.
            where: a condition in SQL; all rows if left out.
            params, mode, isolation_level, write_format: as of `merge`, with the table's properties `write.update.*`.

        Raises: as `merge`.
        """
        request = operations.update.UpdateRequest(
            set=set,
            where=where,
            params=params,
            dialect=DUCKDB,
            mode=mode,
            isolation_level=isolation_level,
            branch=branch,
            create_branch=create_branch,
            snapshot_properties={} if snapshot_properties is None else snapshot_properties,
            write_format=write_format,
        )
        return operations.update.update(Work.of(self, operation_key), request)


def _plain(name: str, schema: Schema) -> str:
    """Return the name of a field without the marks around its parts."""
    return name if name in schema.names else ".".join(name_parts(name))
