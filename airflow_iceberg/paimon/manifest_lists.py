"""Manifest lists: the manifests of a snapshot, and which of them a filter by partition, bucket and level needs."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.paimon.binary_row import decode_row, row_arity
from airflow_iceberg.paimon.containers import read_records
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.stats import SimpleStats
from airflow_iceberg.paimon.types import PaimonField

VERSION = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestMeta:
    """A line of a manifest list.

    Attributes:
        partition_stats: the bounds and null counts of the partition keys.
        min_bucket, max_bucket, min_level, max_level, min_row_id, max_row_id: ranges; None if they are unknown.
    """

    file_name: str
    file_size_bytes: int
    added_files: int
    deleted_files: int
    partition_stats: SimpleStats | None
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFilter:
    """Which files are wanted.

    Attributes:
        partition: the values of some or all partition keys, None for null.
        buckets, levels: the wanted numbers; None for all.
    """

    partition: Mapping[str, Any] | None = None
    buckets: frozenset[int] | None = None
    levels: frozenset[int] | None = None

    def check(self, schema: PaimonSchema) -> None:
        """Check that the filter's names are partition keys."""
        schema.check_partition_keys(self.partition or ())

    def may_hold(self, manifest: ManifestMeta, fields: Sequence[PaimonField], *, path: str | None = None) -> bool:
        """Return whether a manifest can have entries of wanted files.

        Args:
            fields: the partition keys.
            path: the manifest list, for the errors.
        """
        if not _may_be_in(self.buckets, manifest.min_bucket, manifest.max_bucket):
            return False
        if not _may_be_in(self.levels, manifest.min_level, manifest.max_level):
            return False
        return not self.partition or self._may_have_partition(manifest.partition_stats, fields, path)

    def _may_have_partition(self, stats: SimpleStats | None, fields: Sequence[PaimonField], path: str | None) -> bool:
        if stats is None or not row_arity(stats.min_values, where="_PARTITION_STATS._MIN_VALUES", path=path):
            return True  # a writer without statistics writes rows without fields
        types = [field.type for field in fields]
        lows = decode_row(stats.min_values, types, where="_PARTITION_STATS._MIN_VALUES", path=path)
        highs = decode_row(stats.max_values, types, where="_PARTITION_STATS._MAX_VALUES", path=path)
        counts = stats.null_counts or ()
        for index, field in enumerate(fields):
            if field.name not in (self.partition or {}):
                continue
            value = (self.partition or {})[field.name]
            nulls = counts[index] if index < len(counts) else None
            if value is None:
                if nulls == 0:
                    return False
            elif not _is_between(lows[index], value, highs[index]):
                return False
        return True

    def takes(self, partition: Sequence[Any], keys: Sequence[str]) -> bool:
        """Return whether the files of a partition are wanted."""
        wanted = self.partition or {}
        pairs = zip(keys, partition, strict=True)
        return all(name not in wanted or _is_equal(wanted[name], value) for name, value in pairs)


def _may_be_in(wanted: frozenset[int] | None, low: int | None, high: int | None) -> bool:
    if wanted is None or low is None or high is None or low > high:
        return True
    return any(low <= number <= high for number in wanted)


def _is_equal(wanted: Any, value: Any) -> bool:
    return bool(exact(wanted) == exact(value))


def exact(value: Any) -> Any:
    """Return a value that is equal for equal partitions only: -0.0 is not 0.0, NaN is NaN."""
    if isinstance(value, float):
        return ("NaN",) if math.isnan(value) else struct.pack("<d", value)
    return value


def _is_between(low: Any, value: Any, high: Any) -> bool:
    if low is None or high is None or isinstance(value, float):
        return True
    try:
        return bool(low <= value <= high)
    except TypeError as error:
        raise InvalidInputError(f"{value!r} is no value of a partition key with values like {low!r}") from error


def read_manifest_list(data: bytes, *, path: str | None = None, is_limited: bool = False) -> tuple[ManifestMeta, ...]:
    """Return the manifests that a manifest list names, in its order; arguments as of `read_records`."""
    records = read_records(data, path=path, is_limited=is_limited)
    return tuple(_manifest(Fields(record, f"[{index}]", path)) for index, record in enumerate(records))


def _manifest(item: Fields) -> ManifestMeta:
    check_version(item, VERSION, "manifest list")
    return ManifestMeta(
        file_name=item.str("_FILE_NAME"),
        file_size_bytes=item.int("_FILE_SIZE"),
        added_files=item.int("_NUM_ADDED_FILES"),
        deleted_files=item.int("_NUM_DELETED_FILES"),
        partition_stats=_stats(item),
        schema_id=item.int("_SCHEMA_ID"),
        **{name.lower().lstrip("_"): item.opt_int(name) for name in _RANGES},
    )


_RANGES = ("_MIN_BUCKET", "_MAX_BUCKET", "_MIN_LEVEL", "_MAX_LEVEL", "_MIN_ROW_ID", "_MAX_ROW_ID")


def _stats(item: Fields) -> SimpleStats | None:
    stats = item.opt_child("_PARTITION_STATS")
    if stats is None:
        return None
    counts = stats.data.get("_NULL_COUNTS")
    if counts is not None and not all(count is None or type(count) is int for count in counts):
        stats.fail("_NULL_COUNTS", "unexpected value (expected int)")
    return SimpleStats(
        min_values=bytes_of(stats, "_MIN_VALUES"),
        max_values=bytes_of(stats, "_MAX_VALUES"),
        null_counts=None if counts is None else tuple(counts),
    )


def bytes_of(item: Fields, key: str) -> bytes:
    """Return a value of a record, which must be bytes."""
    value = item.raw(key)
    if not isinstance(value, bytes):
        item.fail(key, f"unexpected {type(value).__name__} (expected bytes)")
    return value


def check_version(item: Fields, expected: int, what: str) -> None:
    """Check the `_VERSION` of a record; 1 is from before Paimon, and its tables must be created again."""
    version = item.int("_VERSION")
    if version != expected:
        raise UnsupportedError(f"unexpected version {version} of the {what} (known: {expected}) of {item.path}")
