"""A table's metadata as Arrow tables, with the names and columns of Iceberg's metadata tables.

Timestamps are UTC in milliseconds. Partition values are in one struct over all partition specs, by field id, as in
Iceberg: a field that a file's spec does not have is null. No data file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import FormatError, NotFoundError, UnsupportedError, advised
from airflow_iceberg.format.manifests.arrow import OF_ENTRY, EntryTables
from airflow_iceberg.format.manifests.entries import EntryStatus, ManifestContent, ManifestFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.types import NestedField, UnknownType
from airflow_iceberg.format.values.bytes import canonical_key, from_bytes
from airflow_iceberg.inventory.limited import IN_WORKER
from airflow_iceberg.inventory.lost_sources import recover_sources
from airflow_iceberg.inventory.manifests import read_columns, read_entries, read_manifests
from airflow_iceberg.scan.counted_files import MOST_PARTITION_BYTES, live_files, partition_bytes
from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, slots=True)
class Inspection:
    """The metadata tables of one state of a table."""

    metadata: TableMetadata
    io: FileIO
    metadata_location: str | None = None

    def snapshots(self) -> pa.Table:
        """One row a snapshot: committed_at, snapshot_id, parent_id, operation, manifest_list, summary."""
        return _table(
            self.metadata.snapshots,
            committed_at=(_INSTANT, lambda snapshot: snapshot.timestamp_ms),
            snapshot_id=(pa.int64(), lambda snapshot: snapshot.snapshot_id),
            parent_id=(pa.int64(), lambda snapshot: snapshot.parent_snapshot_id),
            operation=(pa.string(), lambda snapshot: snapshot.operation),
            manifest_list=(pa.string(), lambda snapshot: snapshot.manifest_list),
            summary=(pa.map_(pa.string(), pa.string()), lambda snapshot: list(snapshot.summary.items())),
        )

    def history(self) -> pa.Table:
        """One row each time the main branch moved: made_current_at, snapshot_id, parent_id, is_current_ancestor."""
        head = self.metadata.current_snapshot()
        ancestors = {s.snapshot_id for s in self.metadata.ancestors(head.snapshot_id)} if head else set()
        log = [(when, number, self.metadata.snapshot(number)) for when, number in self.metadata.snapshot_log]
        return _table(
            log,
            made_current_at=(_INSTANT, lambda row: row[0]),
            snapshot_id=(pa.int64(), lambda row: row[1]),
            parent_id=(pa.int64(), lambda row: None if row[2] is None else row[2].parent_snapshot_id),
            is_current_ancestor=(pa.bool_(), lambda row: row[1] in ancestors),
        )

    def refs(self) -> pa.Table:
        """One row a branch or tag, with its retention settings in milliseconds."""
        return _table(
            self.metadata.refs.items(),
            name=(pa.string(), lambda item: item[0]),
            type=(pa.string(), lambda item: item[1].type.upper()),
            snapshot_id=(pa.int64(), lambda item: item[1].snapshot_id),
            max_reference_age_in_ms=(pa.int64(), lambda item: item[1].max_ref_age_ms),
            min_snapshots_to_keep=(pa.int32(), lambda item: item[1].min_snapshots_to_keep),
            max_snapshot_age_in_ms=(pa.int64(), lambda item: item[1].max_snapshot_age_ms),
        )

    def metadata_log(self) -> pa.Table:
        """One row a metadata file that the table remembers; the current one, which cannot list itself, is left out."""
        return self._log_table(self.metadata.metadata_log)

    def metadata_log_entries(self) -> pa.Table:
        """`metadata_log` with the current metadata file as the last row, where its location is known."""
        current = self.metadata_location
        last = () if current is None else ((self.metadata.last_updated_ms, current),)
        return self._log_table((*self.metadata.metadata_log, *last))

    def _log_table(self, log: Iterable[tuple[int, str]]) -> pa.Table:
        rows = [(when, location, self.metadata.snapshot_as_of(when)) for when, location in log]
        return _table(
            rows,
            timestamp=(_INSTANT, lambda row: row[0]),
            file=(pa.string(), lambda row: row[1]),
            latest_snapshot_id=(pa.int64(), lambda row: None if row[2] is None else row[2].snapshot_id),
            latest_schema_id=(pa.int32(), lambda row: None if row[2] is None else row[2].schema_id),
            latest_sequence_number=(pa.int64(), lambda row: None if row[2] is None else row[2].sequence_number),
        )

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """One row a manifest of the current, or the named, snapshot; summaries in readable form."""
        return self._manifest_table(self._manifests(snapshot_id))

    def _manifest_table(self, manifests: Iterable[ManifestFile]) -> pa.Table:
        counts = {
            f"{kind}_{what}_files_count": (pa.int32(), partial(_count, kind=kind, content=content))
            for what, content in (("data", ManifestContent.DATA), ("delete", ManifestContent.DELETES))
            for kind in ("added", "existing", "deleted")
        }
        return _table(
            manifests,
            content=(pa.int32(), lambda manifest: manifest.content.value),
            path=(pa.string(), lambda manifest: manifest.manifest_path),
            length=(pa.int64(), lambda manifest: manifest.manifest_length),
            partition_spec_id=(pa.int32(), lambda manifest: manifest.partition_spec_id),
            sequence_number=(pa.int64(), lambda manifest: manifest.sequence_number),
            added_snapshot_id=(pa.int64(), lambda manifest: manifest.added_snapshot_id),
            **counts,
            partition_summaries=(pa.list_(_SUMMARY), lambda manifest: list(self._summaries(manifest))),
        )

    def _summaries(self, manifest: ManifestFile) -> Iterator[dict[str, Any]]:
        spec = self.metadata.spec(manifest.partition_spec_id)
        schema = recover_sources(self.io, self.metadata, spec.spec_id).schema_of_spec(spec.spec_id)
        types = spec.partition_type(schema)
        for summary, part, field in zip(manifest.partitions or (), spec.fields, types.fields, strict=False):
            source = schema.fields_by_id.get(part.source_id)

            def readable(
                bound: bytes | None, part: Any = part, field: NestedField = field, source: Any = source
            ) -> str | None:
                if bound is None:
                    return None
                if isinstance(field.type, UnknownType):
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
        return EntryTables(recover_sources(self.io, self.metadata))

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
        kind = tables.file_columns.get("partition")
        columns = _PARTITION_COLUMNS if kind is None else {"partition": kind, **_PARTITION_COLUMNS}
        for spec_id, partition, content, rows, size, changed_by in live_files(self.io, self._manifests(snapshot_id)):
            key = (spec_id, canonical_key(partition))
            if key not in groups:
                groups[key] = {name: None if "last" in name else 0 for name in columns}
                groups[key] |= {"partition": tables.partition_row(spec_id, partition), "spec_id": spec_id}
            self._count_in(groups[key], content, rows, size, changed_by)
        return _table(groups.values(), **{name: (kind, itemgetter(name)) for name, kind in columns.items()})

    def partition_counts(
        self, snapshot_id: int | None = None, *, most: int | None = None
    ) -> tuple[tuple[int, tuple[Any, ...], tuple[int, int, int]], ...]:
        """Return spec id, values, and data files, their rows and rows of position deletes, of each partition.

        Raises:
            UnsupportedError: there are more partitions than `most`, or they take more memory than partitions do.
        """
        which = "the current snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"
        left = MOST_PARTITION_BYTES
        counts: dict[Hashable, list[int]] = {}
        values: dict[Hashable, tuple[int, tuple[Any, ...]]] = {}
        for spec_id, partition, content, rows, _, _ in live_files(self.io, self._manifests(snapshot_id)):
            key = (spec_id, canonical_key(partition))
            if key not in values:
                values[key] = (spec_id, tuple(partition))
                left -= partition_bytes(partition)
            if most is not None and len(values) > most:
                raise _not_counted(f"{which} has more than {most} partitions")
            if most is not None and left < 0:
                what = f"partitions with values of more than {MOST_PARTITION_BYTES} bytes of memory"
                raise _not_counted(f"{which} has {what}")
            found = counts.setdefault(key, [0, 0, 0])
            if content == 0:
                found[0] += 1
            if content < 2:
                found[1 + content] += rows
        # Not by the values, of which 0.0 and -0.0 would be one.
        return tuple((*values[key], (files, rows, deleted)) for key, (files, rows, deleted) in counts.items())

    def touched_partitions(
        self, snapshot_id: int, most_entries: int = 100_000
    ) -> tuple[tuple[int, tuple[Any, ...]], ...] | None:
        """Return the spec ids and values of the partitions in which a snapshot added or removed files, each once.

        Returns:
            None if its own manifests have more entries than allowed, or do not say how many they have, or if the
            partitions take more memory than partitions do.
        """
        own = [each for each in self._manifests(snapshot_id) if each.added_snapshot_id == snapshot_id]
        counts = [manifest.entry_count for manifest in own]
        if None in counts or sum(count or 0 for count in counts) > most_entries:
            return None
        entries = (entry for manifest in own for entry in islice(read_entries(self.io, manifest), most_entries))
        mine = (
            (entry.data_file.spec_id, tuple(entry.data_file.partition))
            for entry in entries
            if entry.status is not EntryStatus.EXISTING and entry.snapshot_id == snapshot_id
        )
        found: dict[Hashable, tuple[int, tuple[Any, ...]]] = {}
        left = MOST_PARTITION_BYTES
        for spec_id, values in mine:
            # Of equal tuples, 0.0 and -0.0 are two partitions, and NaN is one.
            key = (spec_id, canonical_key(values))
            if key not in found:
                found[key] = (spec_id, values)
                left -= partition_bytes(values)
                if left < 0:
                    return None
        return tuple(found.values())

    def added_rows(self, snapshot_id: int) -> int | None:
        """Return the number of rows in the data files that a snapshot added; None if its manifest list does not say."""
        manifests = _of(self._manifests(snapshot_id), ManifestContent.DATA)
        counts = [each.added_rows_count for each in manifests if each.added_snapshot_id == snapshot_id]
        return None if None in counts else sum(count or 0 for count in counts)

    def _count_in(self, row: dict[str, Any], content: int, rows: int, size: int, changed_by: int | None) -> None:
        records, files = _COUNTS[content]
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


_INSTANT = pa.timestamp("ms", tz="UTC")
_SUMMARY = pa.struct(
    {"contains_null": pa.bool_(), "contains_nan": pa.bool_(), "lower_bound": pa.string(), "upper_bound": pa.string()}
)
# By file content (data, position deletes, equality deletes): the columns that count rows and files.
_COUNTS = (
    ("record_count", "file_count"),
    ("position_delete_record_count", "position_delete_file_count"),
    ("equality_delete_record_count", "equality_delete_file_count"),
)
_PARTITION_COLUMNS: dict[str, pa.DataType] = {
    "spec_id": pa.int32(),
    "record_count": pa.int64(),
    "file_count": pa.int32(),
    "total_data_file_size_in_bytes": pa.int64(),
    "position_delete_record_count": pa.int64(),
    "position_delete_file_count": pa.int32(),
    "equality_delete_record_count": pa.int64(),
    "equality_delete_file_count": pa.int32(),
    "last_updated_at": _INSTANT,
    "last_updated_snapshot_id": pa.int64(),
}


def _not_counted(text: str) -> UnsupportedError:
    return advised(UnsupportedError(f"{text}, which are not counted here"), IN_WORKER)


def _of(manifests: Iterable[ManifestFile], content: ManifestContent) -> Iterator[ManifestFile]:
    return (manifest for manifest in manifests if manifest.content is content)


def _one_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _count(manifest: ManifestFile, *, kind: str, content: ManifestContent) -> int | None:
    found: int | None = getattr(manifest, f"{kind}_files_count") if manifest.content is content else 0
    return found


def _table(items: Iterable[Any], **columns: tuple[pa.DataType, Callable[[Any], Any]]) -> pa.Table:
    """Return a table with a row for each item: columns by name, each with its type and its value of an item."""
    rows = list(items)
    try:
        arrays = [pa.array([value(row) for row in rows], kind) for kind, value in columns.values()]
        return pa.Table.from_arrays(arrays, names=list(columns))
    except (UnicodeEncodeError, OverflowError, pa.ArrowException) as error:
        raise FormatError(f"a value in the table's metadata cannot be shown ({error})") from error
