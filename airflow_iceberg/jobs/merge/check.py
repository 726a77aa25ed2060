"""The check of an overwrite's new rows by its filter, where only an SQL engine can evaluate it.

The rows are in files already, in the types of the table, so that they are checked as readers will see them. Not here:
filters that Arrow evaluates while the rows are written (`data.cast.row_check`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_iceberg.data.cast.row_check import does_not_match, shown_value
from airflow_iceberg.expressions.merge_clauses import TARGET, quoted
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.merge.scoped_sql import scoped_condition
from airflow_iceberg.jobs.merge.tasks import Candidates, Matching, MatchUnit
from airflow_iceberg.jobs.protocol.table_input import TableInput, read_work
from airflow_iceberg.jobs.table_reader import ReadUnit, TableReader
from airflow_iceberg.redaction import hide

if TYPE_CHECKING:
    from airflow_iceberg.jobs.phase import Job
    from airflow_iceberg.jobs.protocol.merge_task import MergeTask


def check_new_rows(job: Job[MergeTask], files: TableInput) -> None:
    """Check that the condition is true of each row of new files.

    Raises:
        InvalidInputError: it is false or null of one, which the message shows; SQL that the engine does not accept.
    """
    (clause,), names = job.task.clauses, job.task.target.selected_fields
    condition = clause.condition or "true"
    with job.timings.phase("check"):
        matching = Matching(candidates=_rows(job, files, names))
        query = unmatched_query(condition, names, dialect=job.task.dialect)
        row = job.engine.first(job.task, matching, query)
    if row is not None:
        values = ", ".join(f"{name} is {shown_value(value)}" for name, value in zip(names, row, strict=False))
        raise does_not_match("a new row", hide("sql", condition), values)


def unmatched_query(condition: str, names: Sequence[str], *, dialect: str) -> str:
    """Return the query of a row for which the condition is false or null: its columns, or its position without any."""
    columns = [f"{TARGET}.{quoted(name, dialect)}" for name in names] or [f"{TARGET}.{sql.ROW_POSITION}"]
    sides = sql.Sides(target=names, dialect=dialect)
    if sides.is_plain(condition, (TARGET,)):
        rows, text = f"{sql.TARGET_ROWS} as {TARGET}", sides.text(condition, (TARGET,))
    else:
        rows, text = scoped_condition(condition, sides)
        columns = [sql.hidden_column(TARGET, at) for at in range(len(names))] or [sql.ROW_POSITION]
    return f"select {', '.join(columns)} from {rows} where not coalesce({text}, false) limit 1"


def _rows(job: Job[MergeTask], files: TableInput, names: Sequence[str]) -> Candidates:
    schema = files.schema
    reader = TableReader(
        projection=Schema((*map(schema.find_field, names), POSITION)),
        schema=schema,
        schemas=files.schemas,
        specs=files.specs,
        name_mapping=files.name_mapping,
    )
    items = tuple(
        tuple(MatchUnit(file=item.number, read=ReadUnit(unit=unit, residual=ALWAYS_TRUE)) for unit in item.units)
        for item in read_work(job.io, files)
    )
    return Candidates(reader=reader, items=items)
