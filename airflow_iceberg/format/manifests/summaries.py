"""What a manifest list says of a manifest: counts, rows, and the range of each partition field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_iceberg.format.manifests.entries import (
    UNASSIGNED_SEQ,
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import DoubleType, FloatType, IcebergType
from airflow_iceberg.format.values import bytes as values


def describe_manifest(
    entries: Iterable[ManifestEntry],
    *,
    path: str,
    length: int,
    spec: PartitionSpec,
    schema: Schema,
    content: ManifestContent = ManifestContent.DATA,
    snapshot_id: int,
    sequence_number: int = UNASSIGNED_SEQ,
) -> ManifestFile:
    """Return the manifest list row of a manifest just written.

    Args:
        entries: as written, before inheritance.
        length: size of the manifest, in bytes.
        sequence_number: of the commit, or UNASSIGNED_SEQ to have the list writer assign it.
    Spec: Manifest Lists.
    """
    files, rows = [0, 0, 0], [0, 0, 0]
    lowest: int | None = None
    partitions = []
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
        partitions.append(entry.data_file.partition)
        # What is left to the commit is younger than anything explicit.
        if entry.is_live and entry.sequence_number is not None:
            lowest = entry.sequence_number if lowest is None else min(lowest, entry.sequence_number)
    return ManifestFile(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=sequence_number,
        min_sequence_number=sequence_number if lowest is None else lowest,
        added_snapshot_id=snapshot_id,
        added_files_count=files[EntryStatus.ADDED],
        existing_files_count=files[EntryStatus.EXISTING],
        deleted_files_count=files[EntryStatus.DELETED],
        added_rows_count=rows[EntryStatus.ADDED],
        existing_rows_count=rows[EntryStatus.EXISTING],
        deleted_rows_count=rows[EntryStatus.DELETED],
        partitions=summarize_partitions(partitions, spec=spec, schema=schema),
    )


def summarize_partitions(
    partitions: Iterable[tuple[Any, ...]], *, spec: PartitionSpec, schema: Schema
) -> tuple[FieldSummary, ...]:
    """Return what some partitions have in each field of their spec, in its order."""
    summaries = [_Summary(field.type) for field in spec.partition_type(schema).fields]
    for partition in partitions:
        for summary, value in zip(summaries, partition, strict=True):
            summary.add(value)
    return tuple(summary.result() for summary in summaries)


class _Summary:
    """Collects one partition field over the entries of a manifest."""

    __slots__ = ("_is_float", "_lower", "_nan", "_null", "_type", "_upper")

    def __init__(self, type_: IcebergType) -> None:
        self._type = type_
        self._is_float = isinstance(type_, FloatType | DoubleType)
        self._null = self._nan = False
        self._lower: Any = None
        self._upper: Any = None

    def add(self, value: Any) -> None:
        if value is None:
            self._null = True
        elif self._is_float and value != value:
            self._nan = True
        elif self._lower is None:
            self._lower = self._upper = value
        elif _order(value) < _order(self._lower):
            self._lower = value
        elif _order(value) > _order(self._upper):
            self._upper = value

    def result(self) -> FieldSummary:
        lower, upper = self._lower, self._upper
        if self._is_float:
            # -0.0 and 0.0 are equal and sort differently for others: widen to hold both.
            lower = -0.0 if lower == 0 else lower
            upper = 0.0 if upper == 0 else upper
        return FieldSummary(
            contains_null=self._null,
            contains_nan=self._nan,
            lower_bound=None if lower is None else values.to_bytes(self._type, lower),
            upper_bound=None if upper is None else values.to_bytes(self._type, upper),
        )


def _order(value: Any) -> Any:
    """Return what a value sorts by: a UUID by its bytes, everything else by itself."""
    return getattr(value, "bytes", value)
