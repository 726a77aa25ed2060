"""The match of an upsert without a query engine: rows match whose keys are equal, and Arrow compares them.

In memory are the keys of the source, and the places of the rows that match; all other values are read when they are cut
into changes. Not here: conditions and expressions in SQL (`jobs.merge.sql`), and keys of other types than the table's,
which an engine compares by its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.expressions.merge_clauses import INSERT
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of
from airflow_iceberg.format.arrow.paths import at_path, type_at
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.names import spelled
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.merge import sql
from airflow_iceberg.jobs.run_task import open_context, stage_rows

if TYPE_CHECKING:
    from airflow_iceberg.jobs.merge.keys import Keys
    from airflow_iceberg.jobs.merge.tasks import Matching
    from airflow_iceberg.jobs.protocol.merge_task import Clause, MergeTask
    from airflow_iceberg.jobs.protocol.plan import JobPlan
    from airflow_iceberg.jobs.task import Staging, TaskReport
    from airflow_iceberg.storage.base import FileIO

Longs = npt.NDArray[np.int64]

_NO_ROW = -1


def needs_no_engine(task: MergeTask, matching: Matching) -> bool:
    """Return whether rows match by nothing but keys that Arrow compares as engines do.

    On Spark they are matched by Spark, whatever the keys: source and table may be too large for one process.
    """
    schema, candidates = matching.source_schema, matching.candidates
    if not task.has_only_keys or task.dialect == "spark" or schema is None or not candidates.key_ids:
        return False
    kinds = [type_at(schema, path) for path in candidates.source_keys]
    fields = [task.write.schema.find_field(field_id) for field_id in candidates.key_ids]
    return all(
        not pa.types.is_nested(kind) and not pa.types.is_null(kind) and kind.equals(type_to_arrow(one.type))
        for one, kind in zip(fields, kinds, strict=True)
    )


class KeyIndex:
    """Finds rows by their keys: equal values, where NaN equals NaN and 0.0 equals -0.0; null equals nothing.

    Args:
        columns: the columns of the keys, each with the values of all rows.

    Attributes:
        codes: a number for each row, the same for equal keys, from 0; _NO_ROW for a key with a null.
        distinct: how many keys there are without nulls.
    """

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[Longs] = []
        codes = None
        for column in map(_normal, columns):
            values = pc.drop_null(pc.unique(column))
            self._values.append(values)
            found = _codes(column, values)
            if codes is None:
                codes = found
                continue
            pairs = _paired(codes, found, len(values))
            self._pairs.append(np.unique(pairs[pairs >= 0]))
            codes = _places(pairs, self._pairs[-1])
        assert codes is not None
        self.codes: Longs = codes
        self.distinct = len(self._pairs[-1]) if self._pairs else len(self._values[0])
        self._rows = np.full(self.distinct + 1, _NO_ROW, np.int64)
        self._rows[codes] = np.arange(len(codes))
        self._rows[_NO_ROW] = _NO_ROW  # the last one, of rows without a code

    def rows_of(self, columns: Sequence[pa.ChunkedArray]) -> Longs:
        """Return the number of the row that has the key of each of some other rows, _NO_ROW for none."""
        codes = None
        for number, (column, values) in enumerate(zip(map(_normal, columns), self._values, strict=True)):
            found = _codes(column, values)
            if codes is None:
                codes = found
            else:
                codes = _places(_paired(codes, found, len(values)), self._pairs[number - 1])
        return self._rows[codes]


def _normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats with one zero and one NaN, which Arrow tells by their bits."""
    if not pa.types.is_floating(column.type):
        return column
    values = numbers_of(column) + numbers_of(column).dtype.type(0)
    values[np.isnan(values)] = np.nan
    valid = numbers_of(pc.is_valid(column)) if column.null_count else None
    return pa.chunked_array([number_array(values, valid)])


def _codes(column: pa.ChunkedArray, values: pa.Array) -> Longs:
    found = pc.index_in(column, value_set=values)
    codes: Longs = numbers_of(found).astype(np.int64)
    if found.null_count:
        codes[~numbers_of(pc.is_valid(found))] = _NO_ROW
    return codes


def _paired(first: Longs, second: Longs, count: int) -> Longs:
    """Return one number for each pair of codes; the second ones are less than `count`."""
    return np.where((first < 0) | (second < 0), _NO_ROW, first * count + second)


def _places(numbers: Longs, known: Longs) -> Longs:
    """Return the place of each number among the known ones, which are sorted."""
    places = np.searchsorted(known, numbers)
    inside = np.minimum(places, max(len(known) - 1, 0))
    is_known = known[inside] == numbers if len(known) else np.zeros(len(numbers), np.bool_)
    return np.where(is_known, places, _NO_ROW)


@dataclass(kw_only=True)
class KeyMatch:
    """The changes of an upsert; see `jobs.phase.Query`.

    Attributes:
        clauses: at most one for rows that match, and one for the others; each takes all columns of the source.
        keys: the keys as predicates, by which row groups are left out.
        parallelism: the number of tasks' files that are read at a time.
    """

    plan: JobPlan
    io: FileIO
    matching: Matching
    clauses: Sequence[Clause]
    keys: Keys
    parallelism: int
    name: str = "the merge"
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self._context: Any = open_context(self.plan, self.io)
        assert self.matching.source_schema is not None
        none, places = self.matching.source_schema.empty_table(), (pa.nulls(0, pa.int32()), pa.nulls(0, pa.int64()))
        tables = [_of_clause(number, clause, none, *places) for number, clause in enumerate(self.clauses)]
        self.schema = pa.unify_schemas([table.schema for table in tables])

    def bad_key(self) -> tuple[Any, ...] | None:
        """Return a key that is null or in several rows of the source, and the number of rows; None without such."""
        codes = self._index.codes
        missing = np.flatnonzero(codes == _NO_ROW)
        if len(missing):
            row, count = int(missing[0]), 1
        elif self._index.distinct < len(codes):
            counts = np.bincount(codes)
            code = int(np.argmax(counts))
            row, count = int(np.argmax(codes == code)), int(counts[code])
        else:
            return None
        return (*(column[row].as_py() for column in self._columns), count)

    def stage(self, plan: JobPlan, staging: Staging) -> list[TaskReport]:
        """Stage the changes as one task."""
        return [stage_rows(self._context, 0, self._changes(), staging, source=self.name)]

    @cached_property
    def _columns(self) -> list[pa.ChunkedArray]:
        """The keys of the source, in the order of its rows."""
        candidates, schema = self.matching.candidates, self.matching.source_schema
        assert schema is not None
        kinds = [type_at(schema, path) for path in candidates.source_keys]
        none = pa.schema([pa.field(str(at), kind) for at, kind in enumerate(kinds)]).empty_table()
        tables = exchange.read_slices(self._context.io, candidates.keys)
        return list(pa.concat_tables([none, *(table.cast(none.schema) for table in tables)]).columns)

    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(self._columns)

    def _changes(self) -> Iterator[pa.Table]:
        """Yield the changes of each clause, with the columns of `jobs.merge.sql`; others are left out."""
        rows, files, positions = self._matched()
        first = 0
        for table in exchange.read_slices(self._context.io, self.matching.source or ()):
            last = first + table.num_rows
            start, end = np.searchsorted(rows, [first, last]).tolist()
            found = rows[start:end] - first
            is_new = np.ones(table.num_rows, np.bool_)
            is_new[found] = False
            for number, clause in enumerate(self.clauses):
                if clause.action == INSERT:
                    new = table.filter(number_array(is_new))
                    yield _of_clause(
                        number, clause, new, pa.nulls(len(new), pa.int32()), pa.nulls(len(new), pa.int64())
                    )
                else:
                    places = number_array(files[start:end]), number_array(positions[start:end])
                    yield _of_clause(number, clause, table.take(number_array(found)), *places)
            first = last

    def _matched(self) -> tuple[Longs, npt.NDArray[np.int32], Longs]:
        """Return rows of the source, ascending, each with the file and the position of a row of the table."""
        candidates, found = self.matching.candidates, []
        if candidates.keys and candidates.items:
            index = self._index  # made before there are threads
            with ThreadPoolExecutor(max_workers=self.parallelism, thread_name_prefix="iceberg-match") as pool:
                parts = pool.map(lambda number: self._matched_of(number, index), range(len(candidates.items)))
                found = [one for part in parts for one in part]
        none = np.zeros(0, np.int64)
        rows, files, positions = (
            np.concatenate([none.astype(kind), *(one[at] for one in found)])
            for at, kind in enumerate((np.int64, np.int32, np.int64))
        )
        order = np.argsort(rows, kind="stable")
        return rows[order], files[order], positions[order]

    def _matched_of(self, number: int, index: KeyIndex) -> list[tuple[Longs, npt.NDArray[np.int32], Longs]]:
        candidates = self.matching.candidates
        paths = [candidates.reader.schema.path(field_id) for field_id in candidates.key_ids]
        found = []
        for file, table in candidates.tables(self._context.io, number, self.keys):
            rows = index.rows_of([at_path(table, path) for path in paths])
            is_match = rows != _NO_ROW
            positions = numbers_of(table.column(POSITION.name))[is_match]
            found.append((rows[is_match], np.full(len(positions), file, np.int32), positions))
        return found


def _of_clause(number: int, clause: Clause, rows: pa.Table, files: pa.Array, positions: pa.Array) -> pa.Table:
    """Return changes of one clause: places, and the values of the columns of the same names."""
    values = [rows.column(spelled(name, rows.column_names, where="the source") or name) for name in clause.columns]
    names = [sql.value_name(number, at) for at in range(len(values))]
    chosen = number_array(np.full(rows.num_rows, number, np.int32))
    return pa.table([files, positions, chosen, *values], names=[sql.FILE, sql.POSITION, sql.CLAUSE, *names])
