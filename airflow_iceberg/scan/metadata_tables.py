"""A table's metadata as Arrow tables, with the names and columns of Iceberg's metadata tables.

Timestamps are UTC in milliseconds. Partition values come in one struct over all partition specs, by field id, as in
Iceberg: a field that a file's spec does not have is null. Nothing here opens a data file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import FormatError, NotFoundError
from airflow_iceberg.format.manifests.arrow import OF_ENTRY, EntryTables
from airflow_iceberg.format.manifests.entries import ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.format.values.bytes import canonical_key, from_bytes
from airflow_iceberg.inventory.manifests import read_columns, read_manifests
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, slots=True)
class Inspection:
    """Looks into one state of a table."""

    metadata: TableMetadata
    io: FileIO
    metadata_location: str | None = None

    def snapshots(self) -> pa.Table:
        """One row a snapshot: committed_at, snapshot_id, parent_id, operation, manifest_list, summary."""
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

    def metadata_log_entries(self) -> pa.Table:
        """`metadata_log` with the current metadata file as the last row, where its location is known."""
        if self.metadata_location is None:
            return self.metadata_log()
        moment = self.metadata.last_updated_ms
        row = {"timestamp": moment, "file": self.metadata_location, **self._latest(moment)}
        return pa.concat_tables([self.metadata_log(), pa.Table.from_pylist([row], schema=self.metadata_log().schema)])

    def _latest(self, timestamp_ms: int) -> dict[str, int | None]:
        snapshot = self.metadata.snapshot_as_of(timestamp_ms)
        return {
            "latest_snapshot_id": None if snapshot is None else snapshot.snapshot_id,
            "latest_schema_id": None if snapshot is None else snapshot.schema_id,
            "latest_sequence_number": None if snapshot is None else snapshot.sequence_number,
        }

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a manifest of the current, or the named, snapshot; summaries in readable form."""
        return self._manifest_table(self._manifests(snapshot_id))

    def _manifest_table(self, manifests: Iterable[ManifestFile]) -> pa.Table:
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
            [self._manifest_row(manifest) for manifest in manifests],
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

    def all_manifests(self) -> pa.Table:
        """The manifests of every snapshot, with the snapshot that lists each: `reference_snapshot_id`."""
        tables = []
        for snapshot in self.metadata.snapshots:
            found = self.manifests(snapshot.snapshot_id)
            ids = pa.array([snapshot.snapshot_id] * found.num_rows, pa.int64())
            tables.append(found.append_column("reference_snapshot_id", ids))
        if not tables:
            return self._manifest_table(()).append_column("reference_snapshot_id", pa.array([], pa.int64()))
        return pa.concat_tables(tables)

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a live file, delete files included (content 0 data, 1 position deletes, 2 equality deletes)."""
        return self._files(self._manifests(snapshot_id))

    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """The live files that hold rows."""
        return self._files(_of(self._manifests(snapshot_id), ManifestContent.DATA))

    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """The live files that hold deletes."""
        return self._files(_of(self._manifests(snapshot_id), ManifestContent.DELETES))

    def all_files(self) -> pa.Table:
        """The files that are live in some snapshot, once for each manifest that says so."""
        return self._files(self._all_manifests())

    def all_data_files(self) -> pa.Table:
        """Those of `all_files` that hold rows."""
        return self._files(_of(self._all_manifests(), ManifestContent.DATA))

    def all_delete_files(self) -> pa.Table:
        """Those of `all_files` that hold deletes."""
        return self._files(_of(self._all_manifests(), ManifestContent.DELETES))

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """One row an entry of a manifest, deleted ones included (status 0 existing, 1 added, 2 deleted)."""
        return self._entry_table(self._manifests(snapshot_id))

    def all_entries(self) -> pa.Table:
        """The entries of every manifest that some snapshot lists."""
        return self._entry_table(self._all_manifests())

    def _files(self, manifests: Iterable[ManifestFile]) -> pa.Table:
        table = self._all_columns(manifests, live_only=True)
        return table.select([*self._tables().file_columns, "readable_metrics"])

    def _entry_table(self, manifests: Iterable[ManifestFile]) -> pa.Table:
        table, file_columns = self._all_columns(manifests, live_only=False), self._tables().file_columns
        fields = [pa.field(name, kind) for name, kind in file_columns.items()]
        batches = table.combine_chunks()
        files = pa.StructArray.from_arrays([_one_chunk(batches, name) for name in file_columns], fields=fields)
        arrays = [*(batches[name] for name in OF_ENTRY), files, batches["readable_metrics"]]
        return pa.Table.from_arrays(arrays, names=[*OF_ENTRY, "data_file", "readable_metrics"])

    def _tables(self) -> EntryTables:
        return EntryTables(self.metadata)

    def _all_columns(self, manifests: Iterable[ManifestFile], *, live_only: bool) -> pa.Table:
        tables = self._tables()
        parts = []
        for part in read_columns(self.io, manifests, lists=True, keys=tables.metric_ids):
            try:
                if isinstance(part, tuple):
                    parts.append(tables.of_entries(part[1], live_only=live_only))
                else:
                    parts.append(tables.of_columns(part, live_only=live_only))
            except (UnicodeEncodeError, OverflowError, pa.ArrowException) as error:
                path = part[0].manifest_path if isinstance(part, tuple) else part.manifests[0].manifest_path
                raise FormatError(
                    f"a value in the entries of a manifest cannot be shown ({error})", path=path
                ) from error
            del part  # before the next ones are decoded
        return pa.concat_tables(parts) if parts else tables.schema.empty_table()

    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a partition of a spec: files, rows and bytes in it, and which snapshot touched it last."""
        groups: dict[Hashable, dict[str, Any]] = {}
        tables = self._tables()
        for spec_id, partition, content, rows, size, changed_by in self._live_files(snapshot_id):
            key = (spec_id, canonical_key(partition))
            if key not in groups:
                groups[key] = _empty_group(spec_id, tables.partition_row(spec_id, partition))
            self._count_in(groups[key], content, rows, size, changed_by)
        columns = {
            "partition": tables.file_columns.get("partition"),
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
        if columns["partition"] is None:
            del columns["partition"]
        return _table(list(groups.values()), **columns)

    def _live_files(self, snapshot_id: int | None) -> Iterator[tuple[int, tuple[Any, ...], int, int, int, int | None]]:
        """Yield spec, partition, content, rows, bytes and the snapshot that brought it, of each live file."""
        for part in read_columns(self.io, self._manifests(snapshot_id)):
            if isinstance(part, tuple):
                for entry in part[1]:
                    if entry.is_live:
                        file = entry.data_file
                        numbers = (file.content.value, file.record_count, file.file_size_in_bytes, entry.snapshot_id)
                        yield file.spec_id, file.partition, *numbers
                continue
            for number, manifest in enumerate(part.manifests):
                rows = slice(*part.rows_of(number))
                columns = (part.content, part.record_count, part.file_size_in_bytes, part.snapshot_id.values)
                found = zip(
                    part.is_live[rows].tolist(), part.partition[rows], *(c[rows].tolist() for c in columns), strict=True
                )
                for is_live, partition, *values in found:
                    if is_live:
                        yield manifest.partition_spec_id, partition, *values

    def _count_in(self, row: dict[str, Any], content: int, rows: int, size: int, changed_by: int | None) -> None:
        records, files = (("record_count", "file_count"), *_DELETE_COUNTS)[content]
        row[records] += rows
        row[files] += 1
        row["total_data_file_size_in_bytes"] += size if content == 0 else 0
        snapshot = None if changed_by is None else self.metadata.snapshot(changed_by)
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

    def _all_manifests(self) -> tuple[ManifestFile, ...]:
        """Return the manifests that some snapshot lists, each once."""
        found: dict[str, ManifestFile] = {}
        for snapshot in self.metadata.snapshots:
            for manifest in read_manifests(self.io, snapshot):
                found.setdefault(manifest.manifest_path, manifest)
        return tuple(found.values())


# By file content 1 (position deletes) and 2 (equality deletes): the columns that count their rows and files.
_DELETE_COUNTS = (
    ("position_delete_record_count", "position_delete_file_count"),
    ("equality_delete_record_count", "equality_delete_file_count"),
)


def _empty_group(spec_id: int, partition: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": partition,
        "spec_id": spec_id,
        "record_count": 0,
        "file_count": 0,
        "total_data_file_size_in_bytes": 0,
        **{name: 0 for records, files in _DELETE_COUNTS for name in (records, files)},
        "last_updated_at": None,
        "last_updated_snapshot_id": None,
    }


def _of(manifests: Iterable[ManifestFile], content: ManifestContent) -> Iterator[ManifestFile]:
    return (manifest for manifest in manifests if manifest.content is content)


def _one_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _table(rows: list[dict[str, Any]], **columns: pa.DataType) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))
    except (UnicodeEncodeError, OverflowError, pa.ArrowException) as error:
        raise FormatError(f"a value in the table's metadata cannot be shown ({error})") from error


def _instant() -> pa.DataType:
    return pa.timestamp("ms", tz="UTC")
