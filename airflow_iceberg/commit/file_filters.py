"""Filters of manifests and files, by a predicate or by partitions, across all specs of a table.

They answer: may this manifest list such a file, may this file hold such a row, are all of its rows such. They choose
the files to remove (`manifest_filter`) and detect conflicts (`conflicts`). Not here: the rules of pruning
(`expressions.projection`, `expressions.metrics`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from airflow_iceberg.expressions.metrics import ColumnRange, file_may_match, file_must_match, may_match, summary_range
from airflow_iceberg.expressions.projection import Residuals, project
from airflow_iceberg.expressions.tree import ALWAYS_FALSE, ALWAYS_TRUE, Column, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.types import IcebergType, UUIDType
from airflow_iceberg.format.values.bytes import canonical_key

# Above this number of partitions a manifest's summaries are not compared with each of them.
COMPARED_PARTITIONS = 200

PartitionKey = tuple[int, Hashable]
"""The id of a partition's spec, and its canonical values. Equal values of two specs are two partitions."""


def partition_key(file: DataFile) -> PartitionKey:
    """Return the partition of a file."""
    return file.spec_id, canonical_key(file.partition)


class RowFilter:
    """The rows that a predicate selects.

    Args:
        row_filter: a predicate bound to columns by field id, so that its meaning does not change with the schema.
    """

    def __init__(self, row_filter: Expression, metadata: TableMetadata) -> None:
        self.row_filter = row_filter
        self._metadata = metadata
        self._by_spec: dict[int, _SpecFilter] = {}

    def may_concern(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list a file with such rows."""
        return self._of(manifest.partition_spec_id).may_concern(manifest)

    def concerns(self, file: DataFile) -> bool:
        """Whether a data file may hold such rows, or a delete file may delete them."""
        residual = self._of(file.spec_id).residuals.of(file.partition)
        if residual == ALWAYS_FALSE:
            return False
        # The statistics of a delete file are not those of the rows that it deletes.
        return file.content is not FileContent.DATA or file_may_match(residual, file)

    def covers(self, file: DataFile) -> bool:
        """Whether all rows of a data file, or all rows that a delete file may delete, are certainly such rows."""
        residual = self._of(file.spec_id).residuals.of(file.partition)
        if residual == ALWAYS_TRUE:
            return True
        return file.content is FileContent.DATA and residual != ALWAYS_FALSE and file_must_match(residual, file)

    def _of(self, spec_id: int) -> _SpecFilter:
        if spec_id not in self._by_spec:
            self._by_spec[spec_id] = _SpecFilter(self.row_filter, self._metadata.spec(spec_id))
        return self._by_spec[spec_id]


class _SpecFilter:
    """A predicate as applied to files of one partition spec."""

    def __init__(self, row_filter: Expression, spec: PartitionSpec) -> None:
        self._projected = project(row_filter, spec)
        self.residuals = Residuals(row_filter, spec)
        self._positions = {field.field_id: index for index, field in enumerate(spec.fields)}

    def may_concern(self, manifest: ManifestFile) -> bool:
        summaries = manifest.partitions
        if summaries is None or len(summaries) != len(self._positions):
            return self._projected != ALWAYS_FALSE

        def ranges(column: Column) -> ColumnRange:
            assert column.field_id is not None
            return summary_range(summaries[self._positions[column.field_id]], column.type)

        return may_match(self._projected, ranges)


class PartitionFilter:
    """All files in some partitions.

    Args:
        files: at least one file of each partition.
    """

    def __init__(self, files: Iterable[DataFile], metadata: TableMetadata) -> None:
        found = {partition_key(file): file for file in files}
        self.keys = frozenset(found)
        tuples: dict[int, list[tuple[Any, ...]]] = {}
        for file in found.values():
            tuples.setdefault(file.spec_id, []).append(file.partition)
        self._by_spec = {
            spec_id: _Tuples(values, _result_types(metadata, spec_id)) for spec_id, values in tuples.items()
        }

    def may_concern(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list a file of these partitions."""
        tuples = self._by_spec.get(manifest.partition_spec_id)
        return tuples is not None and tuples.may_be_in(manifest)

    def concerns(self, file: DataFile) -> bool:
        """Whether a file is in one of these partitions."""
        return file.spec_id in self._by_spec and partition_key(file) in self.keys


def _result_types(metadata: TableMetadata, spec_id: int) -> tuple[IcebergType, ...]:
    schema = metadata.schema_of_spec(spec_id)
    return tuple(field.type for field in metadata.spec(spec_id).partition_type(schema).fields)


class _Tuples:
    """The partition tuples of one spec, compared with the summaries of manifests."""

    def __init__(self, tuples: list[tuple[Any, ...]], types: tuple[IcebergType, ...]) -> None:
        self._tuples = tuples if len(tuples) <= COMPARED_PARTITIONS else None
        self._types = types

    def may_be_in(self, manifest: ManifestFile) -> bool:
        summaries = manifest.partitions
        if self._tuples is None or summaries is None or len(summaries) != len(self._types):
            return True
        ranges = [summary_range(summary, kind) for summary, kind in zip(summaries, self._types, strict=True)]
        return any(
            all(map(_may_be, values, ranges, self._types)) for values in self._tuples if len(values) == len(ranges)
        )


def _may_be(value: Any, found: ColumnRange, kind: IcebergType) -> bool:
    if value is None:
        return found.may_be_null
    if isinstance(value, float) and value != value:
        return found.may_be_nan
    # Writers have ordered UUIDs in two ways, see `expressions.metrics.trusted_bounds`.
    if isinstance(kind, UUIDType):
        return found.may_be_value
    return (
        found.may_be_value
        and (found.lower is None or bool(found.lower <= value))
        and (found.upper is None or bool(found.upper >= value))
    )
