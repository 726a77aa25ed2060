"""A table's metadata as Arrow tables, with the names and columns of Iceberg's metadata tables.

Timestamps are UTC in milliseconds. Partition values come in one struct over all partition specs, by field id, as in
Iceberg: a field that a file's spec does not have is null. Nothing here opens a data file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_iceberg.commit.snapshot_writer import read_entries, read_manifests
from airflow_iceberg.errors import FormatError, NotFoundError
from airflow_iceberg.spec.manifests import DataFile, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.spec.metadata import TableMetadata
from airflow_iceberg.spec.snapshots import Snapshot
from airflow_iceberg.spec.types import NestedField, StructType
from airflow_iceberg.spec.values import from_bytes
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Inspection:
    """Looks into one state of a table."""

    metadata: TableMetadata
    io: FileIO

    def snapshots(self) -> pa.Table:
        """One row a snapshot: committed_at, snapshot_id, parent_id, operation, manifest_list, summary."""
        import pyarrow as pa

        rows = [
            {
                "committed_at": snapshot.timestamp_ms,
                "snapshot_id": snapshot.snapshot_id,
                "parent_id": snapshot.parent_snapshot_id,
                "operation": snapshot.operation,
                "manifest_list": snapshot.manifest_list,
                "summary": list(snapshot.summary.items()),
            }
            for snapshot in self.metadata.snapshots
        ]
        return _table(
            rows,
            committed_at=_instant(),
            snapshot_id=pa.int64(),
            parent_id=pa.int64(),
            operation=pa.string(),
            manifest_list=pa.string(),
            summary=pa.map_(pa.string(), pa.string()),
        )

    def history(self) -> pa.Table:
        """One row each time the main branch moved: made_current_at, snapshot_id, parent_id, is_current_ancestor."""
        import pyarrow as pa

        head = self.metadata.current_snapshot()
        ancestors = {s.snapshot_id for s in self.metadata.ancestors(head.snapshot_id)} if head else set()
        rows = []
        for timestamp_ms, snapshot_id in self.metadata.snapshot_log:
            snapshot = self.metadata.snapshot(snapshot_id)
            rows.append(
                {
                    "made_current_at": timestamp_ms,
                    "snapshot_id": snapshot_id,
                    "parent_id": None if snapshot is None else snapshot.parent_snapshot_id,
                    "is_current_ancestor": snapshot_id in ancestors,
                }
            )
        return _table(
            rows,
            made_current_at=_instant(),
            snapshot_id=pa.int64(),
            parent_id=pa.int64(),
            is_current_ancestor=pa.bool_(),
        )

    def refs(self) -> pa.Table:
        """One row a branch or tag, with its retention settings in milliseconds."""
        import pyarrow as pa

        rows = [
            {
                "name": name,
                "type": ref.type.upper(),
                "snapshot_id": ref.snapshot_id,
                "max_reference_age_in_ms": ref.max_ref_age_ms,
                "min_snapshots_to_keep": ref.min_snapshots_to_keep,
                "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
            }
            for name, ref in self.metadata.refs.items()
        ]
        return _table(
            rows,
            name=pa.string(),
            type=pa.string(),
            snapshot_id=pa.int64(),
            max_reference_age_in_ms=pa.int64(),
            min_snapshots_to_keep=pa.int32(),
            max_snapshot_age_in_ms=pa.int64(),
        )

    def metadata_log(self) -> pa.Table:
        """One row a metadata file that the table remembers; the current one, which cannot list itself, is left out."""
        import pyarrow as pa

        rows = [
            {"timestamp": timestamp_ms, "file": location, **self._latest(timestamp_ms)}
            for timestamp_ms, location in self.metadata.metadata_log
        ]
        return _table(
            rows,
            timestamp=_instant(),
            file=pa.string(),
            latest_snapshot_id=pa.int64(),
            latest_schema_id=pa.int32(),
            latest_sequence_number=pa.int64(),
        )

    def _latest(self, timestamp_ms: int) -> dict[str, int | None]:
        snapshot = self.metadata.snapshot_as_of(timestamp_ms)
        return {
            "latest_snapshot_id": None if snapshot is None else snapshot.snapshot_id,
            "latest_schema_id": None if snapshot is None else snapshot.schema_id,
            "latest_sequence_number": None if snapshot is None else snapshot.sequence_number,
        }

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a manifest of the current, or the named, snapshot; summaries in readable form."""
        import pyarrow as pa

        summary = pa.struct(
            [
                ("contains_null", pa.bool_()),
                ("contains_nan", pa.bool_()),
                ("lower_bound", pa.string()),
                ("upper_bound", pa.string()),
            ]
        )
        counts = {
            f"{kind}_{what}_files_count": pa.int32()
            for what in ("data", "delete")
            for kind in ("added", "existing", "deleted")
        }
        return _table(
            [self._manifest_row(manifest) for manifest in self._manifests(snapshot_id)],
            content=pa.int32(),
            path=pa.string(),
            length=pa.int64(),
            partition_spec_id=pa.int32(),
            sequence_number=pa.int64(),
            added_snapshot_id=pa.int64(),
            **counts,
            partition_summaries=pa.list_(summary),
        )

    def _manifest_row(self, manifest: ManifestFile) -> dict[str, Any]:
        what, other = ("data", "delete") if manifest.content is ManifestContent.DATA else ("delete", "data")
        return {
            "content": manifest.content.value,
            "path": manifest.manifest_path,
            "length": manifest.manifest_length,
            "partition_spec_id": manifest.partition_spec_id,
            "sequence_number": manifest.sequence_number,
            "added_snapshot_id": manifest.added_snapshot_id,
            f"added_{what}_files_count": manifest.added_files_count,
            f"existing_{what}_files_count": manifest.existing_files_count,
            f"deleted_{what}_files_count": manifest.deleted_files_count,
            **{f"{kind}_{other}_files_count": 0 for kind in ("added", "existing", "deleted")},
            "partition_summaries": list(self._summaries(manifest)),
        }

    def _summaries(self, manifest: ManifestFile) -> Iterator[dict[str, Any]]:
        spec = self.metadata.spec(manifest.partition_spec_id)
        schema = self.metadata.schema_of_spec(spec.spec_id)
        types = spec.partition_type(schema)
        for summary, part, field in zip(manifest.partitions or (), spec.fields, types.fields, strict=False):
            source = schema.fields_by_id.get(part.source_id)

            def readable(
                bound: bytes | None, part: Any = part, field: NestedField = field, source: Any = source
            ) -> str | None:
                if bound is None:
                    return None
                value = from_bytes(field.type, bound)
                return str(value) if source is None else str(part.transform.to_human_string(value, source.type))

            yield {
                "contains_null": summary.contains_null,
                "contains_nan": summary.contains_nan,
                "lower_bound": readable(summary.lower_bound),
                "upper_bound": readable(summary.upper_bound),
            }

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a live file, delete files included (content 0 data, 1 position deletes, 2 equality deletes)."""
        rows = [self._file_row(entry.data_file) for entry in self._entries(snapshot_id) if entry.is_live]
        return _table(rows, **self._file_columns())

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """One row an entry of a manifest, deleted ones included (status 0 existing, 1 added, 2 deleted)."""
        import pyarrow as pa

        rows = [
            {
                "status": entry.status.value,
                "snapshot_id": entry.snapshot_id,
                "sequence_number": entry.sequence_number,
                "file_sequence_number": entry.file_sequence_number,
                "data_file": self._file_row(entry.data_file),
            }
            for entry in self._entries(snapshot_id)
        ]
        return _table(
            rows,
            status=pa.int32(),
            snapshot_id=pa.int64(),
            sequence_number=pa.int64(),
            file_sequence_number=pa.int64(),
            data_file=pa.struct(list(self._file_columns().items())),
        )

    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a partition of a spec: files, rows and bytes in it, and which snapshot touched it last."""
        import pyarrow as pa

        groups: dict[tuple[int, tuple[Any, ...]], dict[str, Any]] = {}
        for entry in self._entries(snapshot_id):
            if entry.is_live:
                self._count_in(groups, entry)
        columns = {
            "partition": self._partition_arrow(),
            "spec_id": pa.int32(),
            "record_count": pa.int64(),
            "file_count": pa.int32(),
            "total_data_file_size_in_bytes": pa.int64(),
            "position_delete_record_count": pa.int64(),
            "position_delete_file_count": pa.int32(),
            "equality_delete_record_count": pa.int64(),
            "equality_delete_file_count": pa.int32(),
            "last_updated_at": _instant(),
            "last_updated_snapshot_id": pa.int64(),
        }
        if not self._partition_struct().fields:
            del columns["partition"]
        return _table(list(groups.values()), **columns)

    def _count_in(self, groups: dict[tuple[int, tuple[Any, ...]], dict[str, Any]], entry: ManifestEntry) -> None:
        file = entry.data_file
        key = (file.spec_id, tuple(repr(value) for value in file.partition))
        row = groups.setdefault(
            key,
            {
                "partition": self._partition_row(file),
                "spec_id": file.spec_id,
                "record_count": 0,
                "file_count": 0,
                "total_data_file_size_in_bytes": 0,
                **{name: 0 for records, files in _DELETE_COUNTS for name in (records, files)},
                "last_updated_at": None,
                "last_updated_snapshot_id": None,
            },
        )
        records, files = (("record_count", "file_count"), *_DELETE_COUNTS)[file.content.value]
        row[records] += file.record_count
        row[files] += 1
        row["total_data_file_size_in_bytes"] += file.file_size_in_bytes if file.content.value == 0 else 0
        snapshot = None if entry.snapshot_id is None else self.metadata.snapshot(entry.snapshot_id)
        if snapshot is not None and snapshot.timestamp_ms >= (row["last_updated_at"] or 0):
            row["last_updated_at"] = snapshot.timestamp_ms
            row["last_updated_snapshot_id"] = snapshot.snapshot_id

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        if snapshot_id is None:
            return self.metadata.current_snapshot()
        snapshot = self.metadata.snapshot(snapshot_id)
        if snapshot is None:
            raise NotFoundError(f"snapshot {snapshot_id} is not in {self.metadata.location}; it may have been expired")
        return snapshot

    def _manifests(self, snapshot_id: int | None) -> tuple[ManifestFile, ...]:
        snapshot = self._snapshot(snapshot_id)
        return () if snapshot is None else read_manifests(self.io, snapshot)

    def _entries(self, snapshot_id: int | None) -> Iterator[ManifestEntry]:
        for manifest in self._manifests(snapshot_id):
            yield from read_entries(self.io, manifest)

    def _file_columns(self) -> dict[str, pa.DataType]:
        import pyarrow as pa

        counts, bounds = pa.map_(pa.int32(), pa.int64()), pa.map_(pa.int32(), pa.binary())
        columns = {
            "content": pa.int32(),
            "file_path": pa.string(),
            "file_format": pa.string(),
            "spec_id": pa.int32(),
            "partition": self._partition_arrow(),
            "record_count": pa.int64(),
            "file_size_in_bytes": pa.int64(),
            "column_sizes": counts,
            "value_counts": counts,
            "null_value_counts": counts,
            "nan_value_counts": counts,
            "lower_bounds": bounds,
            "upper_bounds": bounds,
            "key_metadata": pa.binary(),
            "split_offsets": pa.list_(pa.int64()),
            "equality_ids": pa.list_(pa.int32()),
            "sort_order_id": pa.int32(),
            "first_row_id": pa.int64(),
            "referenced_data_file": pa.string(),
            "content_offset": pa.int64(),
            "content_size_in_bytes": pa.int64(),
        }
        if not self._partition_struct().fields:
            del columns["partition"]
        return columns

    def _file_row(self, file: DataFile) -> dict[str, Any]:
        maps = {
            name: None if (counts := getattr(file, name)) is None else list(counts.items())
            for name in (
                "column_sizes",
                "value_counts",
                "null_value_counts",
                "nan_value_counts",
                "lower_bounds",
                "upper_bounds",
            )
        }
        return {
            "content": file.content.value,
            "file_path": file.file_path,
            "file_format": file.file_format.upper(),
            "spec_id": file.spec_id,
            "partition": self._partition_row(file),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            **maps,
            "key_metadata": file.key_metadata,
            "split_offsets": file.split_offsets,
            "equality_ids": file.equality_ids,
            "sort_order_id": file.sort_order_id,
            "first_row_id": file.first_row_id,
            "referenced_data_file": file.referenced_data_file,
            "content_offset": file.content_offset,
            "content_size_in_bytes": file.content_size_in_bytes,
        }

    def _partition_struct(self) -> StructType:
        """The fields of all specs by id; a later spec's name and type win, as in Iceberg's own metadata tables."""
        fields: dict[int, NestedField] = {}
        for spec in self.metadata.partition_specs:
            for field in spec.partition_type(self.metadata.schema_of_spec(spec.spec_id)).fields:
                fields[field.id] = field
        return StructType(fields=tuple(fields[key] for key in sorted(fields)))

    def _partition_arrow(self) -> pa.DataType:
        from airflow_iceberg.spec.arrow import type_to_arrow

        return type_to_arrow(self._partition_struct())

    def _partition_row(self, file: DataFile) -> dict[str, Any]:
        types = self.metadata.spec(file.spec_id).partition_type(self.metadata.schema_of_spec(file.spec_id))
        values = {
            field.id: value.bytes if isinstance(value, uuid.UUID) else value
            for field, value in zip(types.fields, file.partition, strict=True)
        }
        return {field.name: values.get(field.id) for field in self._partition_struct().fields}


# By file content 1 (position deletes) and 2 (equality deletes): the columns that count their rows and files.
_DELETE_COUNTS = (
    ("position_delete_record_count", "position_delete_file_count"),
    ("equality_delete_record_count", "equality_delete_file_count"),
)


def _table(rows: list[dict[str, Any]], **columns: pa.DataType) -> pa.Table:
    import pyarrow as pa

    try:
        return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))
    except (UnicodeEncodeError, OverflowError, pa.ArrowException) as error:
        raise FormatError(f"a value in the table's metadata cannot be shown ({error})") from error


def _instant() -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("ms", tz="UTC")
