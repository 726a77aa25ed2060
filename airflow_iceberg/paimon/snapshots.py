"""Snapshots, tags and statistics files: the JSON documents as values."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.paimon.schema import load_json

NEWEST_VERSION = 3
_NO_WATERMARK = -(2**63)
COMMIT_KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A snapshot: the state of the table after one commit.

    Attributes:
        id: the number of the snapshot, from 1. It is used again after a rollback; `identity` is not.
        uuid: a unique id, from newer writers only.
        base_manifest_list, delta_manifest_list: the files before the commit, and the files that it changed.
        index_manifest: all index files of the table.
        commit_identifier: 9223372036854775807 for every batch commit; it identifies nothing.
        total_record_count: the rows in all live files, with deleted and superseded rows; None in the oldest files.
        time_ms: the time of the commit, in milliseconds since the epoch.
        watermark: the watermark, in milliseconds since the epoch; None if there is none.
    """

    version: int
    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_ms: int
    uuid: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    total_record_count: int | None = None
    delta_record_count: int | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    next_row_id: int | None = None
    writer_version: str | None = None
    operation: str | None = None
    properties: Mapping[str, str] | None = None

    @property
    def identity(self) -> str:
        """A text that is unique in the table, other than the id."""
        return self.uuid or f"{self.commit_user}/{self.commit_identifier}/{self.time_ms}/{self.delta_manifest_list}"

    @classmethod
    def from_json(cls, data: bytes, *, path: str | None = None) -> Snapshot:
        """Read a snapshot file; unknown keys are ignored.

        Raises:
            FormatError: the file is no JSON document, or an entry is missing or of another type.
            UnsupportedError: the version of the format is unknown.
        """
        return _snapshot(Fields(load_json(data, path), "", path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tag:
    """A name of a snapshot, which keeps the snapshot and its files.

    Attributes:
        create_time: the time of the tag, in the writer's zone; None if unknown.
        retained_seconds: the time for which the tag is kept from then on; None for ever.
    """

    name: str
    snapshot: Snapshot
    create_time: dt.datetime | None = None
    retained_seconds: float | None = None

    @classmethod
    def from_json(cls, name: str, data: bytes, *, path: str | None = None) -> Tag:
        """Read a tag file: a snapshot with two more keys."""
        item = Fields(load_json(data, path), "", path)
        return cls(name=name, snapshot=_snapshot(item), create_time=_time(item), retained_seconds=_seconds(item))


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistics:
    """The result of an ANALYZE.

    Attributes:
        merged_record_count: the number of rows that a reader sees.
        columns: the statistics of columns, by name: distinct count, min, max, null count, average and greatest length.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None
    merged_record_size: int | None
    columns: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_json(cls, data: bytes, *, path: str | None = None) -> Statistics:
        """Read a statistics file."""
        item = Fields(load_json(data, path), "", path)
        columns = item.opt_child("colStats")
        return cls(
            snapshot_id=item.int("snapshotId"),
            schema_id=item.int("schemaId"),
            merged_record_count=item.opt_int("mergedRecordCount"),
            merged_record_size=item.opt_int("mergedRecordSize"),
            columns={} if columns is None else {name: columns.mapping(name) for name in columns.data},
        )


def _snapshot(item: Fields) -> Snapshot:
    version = item.opt_int("version") or 1
    if version > NEWEST_VERSION:
        raise UnsupportedError(f"version {version} of a snapshot (known: 1 to {NEWEST_VERSION}) of {item.path}")
    if item.int("id") < 1:
        item.fail("id", f"unexpected snapshot id {item.int('id')} (expected 1 or more)")
    return Snapshot(
        version=version,
        id=item.int("id"),
        schema_id=item.int("schemaId"),
        base_manifest_list=item.str("baseManifestList"),
        delta_manifest_list=item.str("deltaManifestList"),
        commit_user=item.str("commitUser"),
        commit_identifier=item.int("commitIdentifier"),
        commit_kind=item.str("commitKind"),
        time_ms=item.int("timeMillis"),
        uuid=item.opt_str("uuid"),
        base_manifest_list_size=item.opt_int("baseManifestListSize"),
        delta_manifest_list_size=item.opt_int("deltaManifestListSize"),
        changelog_manifest_list=item.opt_str("changelogManifestList"),
        changelog_manifest_list_size=item.opt_int("changelogManifestListSize"),
        index_manifest=item.opt_str("indexManifest"),
        total_record_count=item.opt_int("totalRecordCount"),
        delta_record_count=item.opt_int("deltaRecordCount"),
        changelog_record_count=item.opt_int("changelogRecordCount"),
        watermark=None if item.opt_int("watermark") == _NO_WATERMARK else item.opt_int("watermark"),
        statistics=item.opt_str("statistics"),
        next_row_id=item.opt_int("nextRowId"),
        writer_version=item.opt_str("writerVersion"),
        operation=item.opt_str("operation"),
        properties=item.str_map("properties") if "properties" in item else None,
    )


def _time(item: Fields) -> dt.datetime | None:
    """Return the time of a tag: Java writes numbers from year to nanosecond, others ISO 8601."""
    if "tagCreateTime" not in item:
        return None
    value = item.raw("tagCreateTime")
    try:
        if isinstance(value, str):
            return dt.datetime.fromisoformat(value)
        year, month, day, hour, minute, second, nanos = [*value, 0, 0, 0, 0, 0, 0, 0][:7]
        return dt.datetime(year, month, day, hour, minute, second, nanos // 1000)  # noqa: DTZ001  # a wall clock
    except (TypeError, ValueError, OverflowError):
        item.fail("tagCreateTime", f"unexpected time {value!r}")


def _seconds(item: Fields) -> float | None:
    """Return how long a tag is kept: a number of seconds, or a duration like PT1H30M."""
    if "tagTimeRetained" not in item:
        return None
    value = item.raw("tagTimeRetained")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(str(value).upper())
    if match is None:
        item.fail("tagTimeRetained", f"unexpected duration {str(value)!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_DURATION = re.compile(r"PT?(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")
