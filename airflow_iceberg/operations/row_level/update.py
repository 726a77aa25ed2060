"""Update: rows of the table get new values.

update(work, UpdateRequest(set={"status": "'closed'"}, where="due < current_date()"))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.operation_key import check_properties
from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.data.write.options import checked_format
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import MergeClause
from airflow_iceberg.expressions.merge_sql import update_clause
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.inputs.tables import Input, check_names
from airflow_iceberg.operations.refs.creates_branch import creates_branch
from airflow_iceberg.operations.row_level.changes import (
    OWN_ENTRIES,
    OWN_NAMES,
    RowLevelChanges,
    change_rows,
    check_dialect,
)
from airflow_iceberg.operations.work import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRequest:
    """Which rows get which values.

    Attributes:
        set: the columns, each with an SQL expression over the columns of the row: `{"total": "price * amount"}`. A name
            may be in backticks or double quotes, and one of a field of a struct.
        where: a condition in SQL, by which rows are selected; None selects all rows. It may have subqueries over
            `inputs`.
        params: the values of the placeholders of the SQL, by name; errors call them `params_name`.
        dialect, mode, isolation_level, inputs, write_format: as for a merge, with the properties `write.update.*`.
        create_branch: whether a branch that the table does not have is created from main, in the same commit.
    """

    set: Mapping[str, str]
    where: str | None = None
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
        if self.where is not None and not self.where.strip():
            raise InvalidInputError("where is empty; to update every row write 'true'")
        check_names(self.inputs, taken=OWN_NAMES)
        check_properties(self.snapshot_properties, own=OWN_ENTRIES)
        text = " ".join([*self.clause.expressions, self.where or ""])
        mark = "$" if self.dialect == "duckdb" else ":"
        sql_params.checked(self.params, text, mark=mark, argument=self.params_name)

    @property
    def clause(self) -> MergeClause:
        """The update as a clause."""
        return update_clause(self.set, where=self.where)


@creates_branch
def update(work: Work, request: UpdateRequest) -> WriteResult:
    """Give rows new values in one commit; a try that finds the commit of an earlier try reports it.

    Raises: as `operations.row_level.merge`.
    """
    changes = RowLevelChanges(
        clauses=(request.clause,),
        dialect=request.dialect,
        params=request.params,
        params_name=request.params_name,
        inputs=request.inputs,
        mode=request.mode,
        isolation_level=request.isolation_level,
        mode_property=TableProperties.update_mode,
        write_format=request.write_format,
        isolation_property=TableProperties.update_isolation_level,
    )
    return change_rows(work, request, changes)
