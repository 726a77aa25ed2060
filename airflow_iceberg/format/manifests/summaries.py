"""The row of a manifest in a manifest list: counts, and the range of each partition field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_iceberg.format.manifests.entries import (
    UNASSIGNED_SEQ,
    FieldSummary,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    counted,
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
        entries: the entries as written, before inheritance.
        length: size of the manifest, in bytes.
        sequence_number: number of the commit, or UNASSIGNED_SEQ if the list writer assigns it.
    Spec: Manifest Lists.
    """
    known = list(entries)
    # A number that the commit assigns is higher than any explicit one.
    numbers = (entry.sequence_number for entry in known if entry.is_live and entry.sequence_number is not None)
    row = ManifestFile(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=sequence_number,
        min_sequence_number=min(numbers, default=sequence_number),
        added_snapshot_id=snapshot_id,
        partitions=summarize_partitions((entry.data_file.partition for entry in known), spec=spec, schema=schema),
    )
    return counted(row, known)


def summarize_partitions(
    partitions: Iterable[tuple[Any, ...]], *, spec: PartitionSpec, schema: Schema
) -> tuple[FieldSummary, ...]:
    """Return the range of some partitions in each field of their spec, in its order."""
    summaries = [_Summary(field.type) for field in spec.partition_type(schema).fields]
    for partition in partitions:
        for summary, value in zip(summaries, partition, strict=True):
            summary.add(value)
    return tuple(summary.result() for summary in summaries)


class _Summary:
    """Collects the values of one partition field of a manifest's entries."""

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
            # -0.0 and 0.0 are equal here, but sort differently in other readers: the range includes both.
            lower = -0.0 if lower == 0 else lower
            upper = 0.0 if upper == 0 else upper
        return FieldSummary(
            contains_null=self._null,
            contains_nan=self._nan,
            lower_bound=None if lower is None else values.to_bytes(self._type, lower),
            upper_bound=None if upper is None else values.to_bytes(self._type, upper),
        )


def _order(value: Any) -> Any:
    """Return the sort key of a value: the bytes of a UUID, other values themselves."""
    return getattr(value, "bytes", value)
