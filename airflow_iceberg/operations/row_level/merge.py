"""Merge: the rows of a source change the rows of the table that they match, and the others are added.

    merge(work, MergeRequest(rows=Source.from_sql("select * from staging"), on=["id"], upsert=True))

Here: the words of a request. Not here: the job and the commit (`operations.row_level.changes`), how clauses
are read (`expressions.merge_sql`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.data.write.options import checked_format
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.clause_names import tables_read
from airflow_iceberg.expressions.merge_clauses import UPSERT, MergeClause, column_name
from airflow_iceberg.expressions.merge_sql import parse_clauses
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.inputs.tables import Input, check_inputs
from airflow_iceberg.operations.new_rows import RowsFunction
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.row_level.changes import (
    OWN_ENTRIES,
    OWN_NAMES,
    RowLevelChanges,
    change_rows,
    check_dialect,
)
from airflow_iceberg.operations.work import Work

if TYPE_CHECKING:
    import pyarrow as pa

_TRUTHS = ("true", "false")


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRequest:
    """What is merged, and how.

    Attributes:
        rows: the source: one that a job reads, or Arrow rows of this process, or a function that returns some.
        on: the columns that both have and that are compared, `"id"` or a field of a struct, `"a.id"`; or a condition in
            SQL over `target` and `source`.
        clauses: what happens to rows, as in SQL's MERGE: "when matched and … then update set …", one text or several.
        upsert: the short form: rows that match get all values of the source, the others are added, or only one of the
            two clauses. Each key is in one row of the source then.
        params: the values of the placeholders of `on` and `clauses`, by name.
        params_name: what the caller calls `params`, for errors.
        dialect: the SQL of `on` and `clauses`: "spark", the default, or "duckdb" where a job runs without Spark, as
            that of `Table.merge` does.
        mode: "copy-on-write" or "merge-on-read"; None selects the table's `write.merge.mode`.
        isolation_level: "serializable" or "snapshot"; None selects the table's `write.merge.isolation-level`.
        inputs: tables that the source, `on` or the clauses read, as for an append.
        write_format: the format of the data files, "parquet" or "avro"; None for that of the table.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    rows: Source | pa.Table | pa.RecordBatch | pa.RecordBatchReader | RowsFunction
    on: str | Sequence[str]
    clauses: str | Sequence[str] | None = None
    upsert: bool | tuple[MergeClause, ...] = False
    params: Mapping[str, Any] | None = None
    params_name: str = "params"
    dialect: str = "spark"
    mode: str | None = None
    isolation_level: str | None = None
    branch: str = MAIN_BRANCH
    create_branch: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Input | Changes] = field(default_factory=dict)
    write_format: str | None = None

    def __post_init__(self) -> None:
        check_dialect(self.dialect)
        checked_format(self.write_format)
        if not self.on or (isinstance(self.on, str) and not self.on.strip()):
            raise InvalidInputError("on is empty, expected columns such as ['id'], or a condition in SQL")
        if (
            isinstance(self.on, str)
            and column_name(self.on).strip().isidentifier()
            and self.on.strip().lower() not in _TRUTHS
        ):
            raise InvalidInputError(
                f"on is {self.on!r}, expected columns such as [{self.on.strip()!r}], or a condition in SQL over target "
                f"and source"
            )
        if bool(self.upsert) == (self.clauses is not None):
            raise InvalidInputError("a merge needs either clauses or upsert=True, and not both")
        read = tables_read(self._texts, dialect=self.dialect)
        check_inputs(self.inputs, self.rows, by_condition=read, taken=OWN_NAMES)
        check_properties(self.snapshot_properties, own=OWN_ENTRIES)
        mark = "$" if self.dialect == "duckdb" else ":"
        sql_params.checked(self.params, " ".join(self._texts), mark=mark, argument=self.params_name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared, if `on` has columns."""
        return () if isinstance(self.on, str) else tuple(self.on)

    @property
    def merge_clauses(self) -> tuple[MergeClause, ...]:
        """The clauses.

        Raises:
            InvalidInputError: not clauses of a merge.
        """
        if isinstance(self.upsert, tuple):
            return self.upsert
        if self.upsert:
            return UPSERT
        text = self.clauses if isinstance(self.clauses, str) else "\n".join(self.clauses or ())
        return parse_clauses(text, dialect=self.dialect)

    @property
    def _texts(self) -> list[str]:
        """All SQL here."""
        texts = [text for one in self.merge_clauses for text in (one.condition, *one.expressions)]
        on = [self.on] if isinstance(self.on, str) else []
        return [*on, *(text for text in texts if text is not None)]


@creates_branch
def merge(work: Work, request: MergeRequest) -> WriteResult:
    """Change and add rows in one commit; a try that finds the commit of an earlier try reports it.

    If another writer changes the same rows, the merge is planned and run again on the latest snapshot. A cleared task
    merges once more, into the table as it is then.

    Raises:
        InvalidInputError: SQL that does not fit the table or the source; several rows of the source match a row of the
            table; a value that does not fit its column. Nothing was committed.
        StalePlanError: other writers changed the same rows, in each round; nothing was committed.
        CommitUnknownError: cannot tell whether the commit has landed; nothing was deleted.
    """
    changes = RowLevelChanges(
        clauses=request.merge_clauses,
        rows=request.rows,
        on=request.on if isinstance(request.on, str) else None,
        columns=request.columns,
        is_unique=bool(request.upsert and request.columns),
        dialect=request.dialect,
        params=request.params,
        params_name=request.params_name,
        inputs=request.inputs,
        mode=request.mode,
        isolation_level=request.isolation_level,
        mode_property=TableProperties.merge_mode,
        write_format=request.write_format,
        isolation_property=TableProperties.merge_isolation_level,
    )
    return change_rows(work, request, changes)
