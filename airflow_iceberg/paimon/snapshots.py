"""Snapshots, tags and statistics files as values.

Here: the JSON documents. Not here: which files there are (`table`), and what manifests hold (`manifests`).
"""

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
COMMIT_KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A snapshot: one commit, and what it made of the table.

    Attributes:
        id: counted from 1; used again after a rollback, so that `identity` is needed to tell two apart.
        uuid: only newer writers give one.
        base_manifest_list, delta_manifest_list: what was there before, and what the commit changed.
        index_manifest: all index files, whatever commit they are from.
        commit_identifier: 9223372036854775807 for every batch commit; it identifies nothing.
        total_record_count: rows in all live files, deleted and superseded ones included; None in the oldest files.
        time_ms: when it was committed, milliseconds since the epoch.
        watermark: milliseconds since the epoch; None where there is none.
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
        """What tells this snapshot from all others of the table, those with the same id included."""
        return self.uuid or f"{self.commit_user}/{self.commit_identifier}/{self.time_ms}/{self.delta_manifest_list}"

    @classmethod
    def from_json(cls, data: bytes, *, path: str | None = None) -> Snapshot:
        """Read a snapshot file; keys that are not known are kept quiet about.

        Raises:
            FormatError: no JSON, or something in it is missing or of another type.
            UnsupportedError: the format is newer than this package.
        """
        return _snapshot(Fields(load_json(data, path), "", path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tag:
    """A name for a snapshot, which keeps it and its files from being expired.

    Attributes:
        create_time: as it stands in the file, in the writer's zone; None where it does not.
        retained_seconds: how long the tag is kept from then on; None for ever.
    """

    name: str
    snapshot: Snapshot
    create_time: dt.datetime | None = None
    retained_seconds: float | None = None

    @classmethod
    def from_json(cls, name: str, data: bytes, *, path: str | None = None) -> Tag:
        """Read a tag file: a snapshot with two more keys."""
        item = Fields(load_json(data, path), "", path)
        return cls(
            name=name,
            snapshot=_snapshot(item),
            create_time=_time(item),
            retained_seconds=_seconds(item),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistics:
    """What an ANALYZE found.

    Attributes:
        merged_record_count: rows that a reader sees.
        columns: by name, as they stand in the file: distinct count, min, max, null count, average and greatest length.
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
        watermark=_watermark(item),
        statistics=item.opt_str("statistics"),
        next_row_id=item.opt_int("nextRowId"),
        writer_version=item.opt_str("writerVersion"),
        operation=item.opt_str("operation"),
        properties=item.str_map("properties") if "properties" in item else None,
    )


def _watermark(item: Fields) -> int | None:
    """Return the watermark; Java's smallest number stands for none."""
    value = item.opt_int("watermark")
    return None if value == -(2**63) else value


def _time(item: Fields) -> dt.datetime | None:
    """Return the time a tag was made: Java writes numbers from year to nanosecond, others ISO 8601."""
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
    return _duration(item, str(value))


_DURATION = re.compile(r"PT?(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")


def _duration(item: Fields, text: str) -> float:
    match = _DURATION.fullmatch(text.upper())
    if match is None:
        item.fail("tagTimeRetained", f"unexpected duration {text!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
