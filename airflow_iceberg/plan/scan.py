"""Which files a scan reads.

Here: from the manifests of a snapshot to the data files that may hold selected rows, in one pass. Not here: opening
manifests (the caller's `read`), the rules of pruning (`projection`, `metrics`), reading rows (`data.read.file`).

Files are pruned in three stages: whole manifests by their partition summaries, files by their partition, files by
their column statistics. A pruned manifest is not opened. Delete manifests are opened first; `deletes` decides which of
their files apply to a data file.

Entries are columns (`format.manifests.columns`), and only the remaining files become objects. Entries of manifests that
cannot be read as columns are objects from the start. Both ways apply the same rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from airflow_iceberg.errors import FormatError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.metrics import ColumnRange, file_may_match, may_match, summary_range
from airflow_iceberg.expressions.metrics_columns import Ints, columns_of, rows_may_match
from airflow_iceberg.expressions.projection import Residuals, project
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE, AlwaysFalse, AlwaysTrue, Column, Expression
from airflow_iceberg.format.manifests.columns import EntryColumns, column_values
from airflow_iceberg.format.manifests.entries import DataFile, EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.plan.deletes import DeleteIndex

ReadManifest: TypeAlias = Callable[[ManifestFile], Iterable[ManifestEntry]]
"""A function that opens a manifest; its entries have their inherited values."""
Part: TypeAlias = "EntryColumns | tuple[ManifestFile, Iterable[ManifestEntry]]"
ReadColumns: TypeAlias = Callable[[Sequence[ManifestFile], Collection[int]], Iterable[Part]]
"""A function that opens manifests in order, with the statistics of some columns, as `read_columns`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileScanTask:
    """A data file to read.

    Attributes:
        sequence_number: data sequence number of the file.
        delete_files: the delete files that apply to it: a deletion vector or position deletes, then equality deletes.
        residual: filter for the rows of the file; ``AlwaysTrue`` if the partition decides.
        outdated: a deletion vector of the file that is older than it, and applies to nothing.
    """

    file: DataFile
    sequence_number: int = 0
    delete_files: tuple[DataFile, ...] = ()
    residual: Expression = ALWAYS_TRUE
    outdated: tuple[DataFile, ...] = ()


def plan_files(
    manifests: Iterable[ManifestFile],
    read: ReadManifest | None = None,
    *,
    read_columns: ReadColumns | None = None,
    metadata: TableMetadata,
    schema: Schema,
    row_filter: str | Expression | None = None,
    case_sensitive: bool = True,
    whole_files: bool = False,
) -> Iterator[FileScanTask]:
    """Yield the data files that may hold selected rows, in the order of the manifests.

    Args:
        manifests: manifests of one snapshot.
        read: opens a manifest; not needed with `read_columns`.
        read_columns: opens manifests as columns, which is many times faster.
        metadata: the table, for its partition specs.
        schema: schema of the snapshot, to which the filter is bound.
        whole_files: whether tasks have all deletes of their file, also of rows that are not selected: needed to
            rewrite the file, not to read it.
    Raises:
        FormatError: delete files that contradict each other or are incomplete.
        NotFoundError, InvalidInputError: the filter does not fit the schema.
    Spec: Scan Planning.
    """
    expression = parse_filter(row_filter, schema, case_sensitive)
    if expression == ALWAYS_FALSE:
        return iter(())
    if read_columns is None:
        assert read is not None, "plan_files needs `read` or `read_columns`"
        read_columns = _one_by_one(read)
    pruners = _Pruners(expression, metadata)
    kept = [manifest for manifest in manifests if pruners.may_hold(manifest, deletes=whole_files)]
    of_deletes = [manifest for manifest in kept if manifest.content is ManifestContent.DELETES]
    deletes = DeleteIndex(
        _live_entries(read_columns(of_deletes, ())),
        metadata=metadata,
        row_filter=ALWAYS_TRUE if whole_files else expression,
    )
    of_data = [manifest for manifest in kept if manifest.content is ManifestContent.DATA]
    return _plan(read_columns(of_data, columns_of(expression)), pruners, deletes)


def _one_by_one(read: ReadManifest) -> ReadColumns:
    return lambda manifests, keys: ((manifest, read(manifest)) for manifest in manifests)


def _live_entries(parts: Iterable[Part]) -> Iterator[ManifestEntry]:
    for part in parts:
        if isinstance(part, tuple):
            yield from (entry for entry in part[1] if entry.status is not EntryStatus.DELETED)
        else:
            yield from part.entries(np.flatnonzero(part.is_live))


def _plan(parts: Iterable[Part], pruners: _Pruners, deletes: DeleteIndex) -> Iterator[FileScanTask]:
    for part in parts:
        if isinstance(part, tuple):
            yield from pruners.of(part[0]).tasks(part[1], deletes)
        else:
            for number, manifest in enumerate(part.manifests):
                yield from pruners.of(manifest).column_tasks(part, number, deletes)


class _Pruners:
    """One pruner for each partition spec of the manifests."""

    def __init__(self, expression: Expression, metadata: TableMetadata) -> None:
        self._expression = expression
        self._metadata = metadata
        self._by_spec: dict[int, _Pruner] = {}

    def may_hold(self, manifest: ManifestFile, *, deletes: bool) -> bool:
        """Tell whether a manifest may list a file that counts.

        Deletes apply within a partition, or everywhere if their spec is unpartitioned, which is never pruned. So
        deletes of pruned manifests cannot apply to a selected row. But what a new deletion vector replaces, or
        contradicts, may be anywhere.

        Args:
            deletes: whether all manifests of deletes count.
        """
        if deletes and manifest.content is ManifestContent.DELETES:
            return manifest.may_have_live_files
        return self.of(manifest).may_hold(manifest)

    def of(self, manifest: ManifestFile) -> _Pruner:
        spec_id = manifest.partition_spec_id
        if spec_id not in self._by_spec:
            self._by_spec[spec_id] = _Pruner(self._expression, self._metadata.spec(spec_id))
        return self._by_spec[spec_id]


class _Pruner:
    """Decides about the manifests and files of one partition spec."""

    def __init__(self, expression: Expression, spec: PartitionSpec) -> None:
        self._expression = expression
        self._spec = spec
        self._projected = project(expression, spec)
        self._residuals = Residuals(expression, spec)
        self._positions = {field.field_id: index for index, field in enumerate(spec.fields)}

    def may_hold(self, manifest: ManifestFile) -> bool:
        """Tell whether a manifest may list a file with selected rows."""
        if not manifest.may_have_live_files:
            return False
        summaries = manifest.partitions
        if isinstance(self._projected, AlwaysTrue) or summaries is None or len(summaries) != len(self._positions):
            return not isinstance(self._projected, AlwaysFalse)

        def ranges(column: Column) -> ColumnRange:
            assert column.field_id is not None
            return summary_range(summaries[self._positions[column.field_id]], column.type)

        return may_match(self._projected, ranges)

    def tasks(self, entries: Iterable[ManifestEntry], deletes: DeleteIndex) -> Iterator[FileScanTask]:
        """Yield the live files that may hold selected rows."""
        takes_all = isinstance(self._expression, AlwaysTrue)
        for entry in entries:
            if entry.status is EntryStatus.DELETED:
                continue
            file = entry.data_file
            residual = self._expression if takes_all else self._residual(file)
            if residual is not ALWAYS_FALSE and (takes_all or file_may_match(residual, file)):
                yield FileScanTask(
                    file=file,
                    sequence_number=entry.sequence_number or 0,
                    delete_files=deletes.of(entry) if deletes else (),
                    residual=residual,
                    outdated=deletes.outdated_of(entry) if deletes else (),
                )

    def _residual(self, file: DataFile) -> Expression:
        self._check_partition(file.partition, file.file_path)
        return self._residuals.of(file.partition)

    def _check_partition(self, partition: tuple[Any, ...], path: str) -> None:
        if len(partition) != len(self._positions):
            raise FormatError(
                f"expected a partition of {len(self._positions)} values in spec {self._spec.spec_id}, "
                f"got {len(partition)}, for data file '{path}'"
            )

    def column_tasks(self, part: EntryColumns, number: int, deletes: DeleteIndex) -> Iterable[FileScanTask]:
        """Return the same as `tasks`, for one of the manifests in some columns."""
        start, end = part.rows_of(number)
        rows = start + np.flatnonzero(part.is_live[start:end])
        if isinstance(self._expression, AlwaysTrue) or not len(rows):
            return _column_tasks(part, rows, deletes, repeat(self._expression))
        self._check_partition(part.partition[int(rows[0])], part.file_path[int(rows[0])])
        return self._selected_tasks(part, rows, deletes)

    def _selected_tasks(self, part: EntryColumns, rows: Ints, deletes: DeleteIndex) -> Iterable[FileScanTask]:
        numbers = rows.tolist()
        partitions = part.partition
        residuals = [self._residuals.of(partitions[row]) for row in numbers]
        by_residual: dict[int, tuple[Expression, list[int]]] = {}
        for place, residual in enumerate(residuals):
            if residual is not ALWAYS_FALSE:
                by_residual.setdefault(id(residual), (residual, []))[1].append(place)
        kept = np.zeros(len(rows), np.bool_)
        for residual, found in by_residual.values():
            places = np.array(found, np.int64)
            kept[places] = rows_may_match(residual, part, rows[places])
        selected = np.flatnonzero(kept).tolist()
        return _column_tasks(part, rows[kept], deletes, [residuals[place] for place in selected])


def _column_tasks(
    part: EntryColumns, rows: Ints, deletes: DeleteIndex, residuals: Iterable[Expression]
) -> Iterable[FileScanTask]:
    if not len(rows):
        return ()
    if deletes:
        entries = part.entries(rows)
        files: Sequence[DataFile] = [entry.data_file for entry in entries]
        applying: Iterable[tuple[DataFile, ...]] = map(deletes.of, entries)
        outdated: Iterable[tuple[DataFile, ...]] = map(deletes.outdated_of, entries)
    else:
        files, applying, outdated = part.files(rows), repeat(()), repeat(())
    sequences = [number or 0 for number in column_values(part.sequence_number, rows)]
    # Frozen objects are slow to make one by one; their slots are set column by column.
    tasks = list(map(_new, repeat(FileScanTask, len(files))))
    for setter, values in zip(_SETTERS, (files, sequences, applying, residuals, outdated), strict=True):
        deque(map(setter, tasks, values), maxlen=0)
    return tasks


_new = object.__new__
_SETTERS: tuple[Callable[[Any, Any], None], ...] = tuple(
    getattr(FileScanTask, name).__set__ for name in ("file", "sequence_number", "delete_files", "residual", "outdated")
)
