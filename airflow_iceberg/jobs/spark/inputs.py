"""The inputs of a job as DataFrames: views for a query, arguments for a callable.

Not here: what is read of each (`operations.inputs`), how a table is read (`jobs.spark.read_table`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_iceberg.jobs.protocol.pinned import PinnedTable
from airflow_iceberg.jobs.spark.read_table import read_pinned


def open_inputs(
    tables: Sequence[PinnedTable], spark: Any, storage: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Return the DataFrames of inputs by their names.

    Args:
        storage: properties of the FileIO of the table that is written to.
        others: those of inputs that have their own, by the inputs' names.

    Raises:
        StalePlanError: a metadata file or a manifest is gone.
        UnsupportedError: a column that Spark has no type for.
    """
    found = {}
    for table in tables:
        with table.reading():
            found[table.name] = read_pinned(spark, table, others.get(table.name, storage))
    return found
