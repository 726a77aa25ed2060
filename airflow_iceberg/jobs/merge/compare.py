"""Whether an update changes anything: rows that would get the values that they have are no reason for a commit.

Each task looks only up to the first row that gets another value. Not here: the update itself (`jobs.merge.tasks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.edit_rows import FileEdits
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.same_values import are_same
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.merge.tasks import MergeContext, file_edits
from airflow_iceberg.jobs.protocol.result import FileChange
from airflow_iceberg.jobs.task import CompareFiles, TaskReport

if TYPE_CHECKING:
    from airflow_iceberg.jobs.protocol.table_input import FileUnit


def compare_files(context: MergeContext, spec: CompareFiles) -> TaskReport:
    """Report the first file in which a row is deleted or gets another value; none without such.

    Raises:
        InvalidInputError: several rows of the source match a row of a file.
    """
    read = context.read_as()
    for unit, slices in (place for places in spec.edits for place in places):
        edits = file_edits(context, read, unit, slices, spec.clauses)
        if edits is not None and not _is_same(read, unit, edits):
            change = FileChange(file_path=unit.file.file_path, deleted_count=0, updated_count=1)
            return TaskReport(number=spec.number, changes=(change,))
    return TaskReport(number=spec.number)


def _is_same(read: ReadAs, unit: FileUnit, edits: FileEdits) -> bool:
    return not edits.deleted.cardinality and all(_has_values(read, unit, update) for update in edits.updates)


def _has_values(read: ReadAs, unit: FileUnit, update: pa.Table) -> bool:
    """Whether rows of a file have the values of an update."""
    update = update.sort_by(POSITION.name)
    positions = numbers_of(update.column(POSITION.name))
    names = [name for name in update.column_names if name != POSITION.name]
    schema = Schema((*map(read.schemas[0].find_field, names), POSITION))
    found = 0
    for batch in read.rows(unit, read.delete_reader(), schema=schema, positions=RowPositions.of(positions)):
        places = np.searchsorted(positions, numbers_of(batch.column(POSITION.name)))
        rows = update.take(number_array(places))
        if not all(are_same(batch.column(name), _joined(rows.column(name))) for name in names):
            return False
        found += len(batch)
    return found == len(positions)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
