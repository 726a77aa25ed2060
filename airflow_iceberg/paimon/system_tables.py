"""The system tables of a Paimon table, as Arrow tables.

Times are in UTC, except a file's `creation_time`: the local time of its writer, in an unknown zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.paimon.binary_row import decode_row, row_arity
from airflow_iceberg.paimon.data_manifests import FileEntries
from airflow_iceberg.paimon.manifest_lists import FileFilter, ManifestMeta
from airflow_iceberg.paimon.paths import cast_text
from airflow_iceberg.paimon.types import PaimonField, PaimonType

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_iceberg.paimon.files import PaimonFiles
    from airflow_iceberg.paimon.snapshots import Snapshot
    from airflow_iceberg.paimon.stats import ColumnStats

_ANY = FileFilter()


class PaimonInspection:
    """Answers about one branch of a table.

    A `snapshot_id` of None is the latest snapshot; a table without snapshots gives tables without rows.
    """

    def __init__(self, table: PaimonFiles) -> None:
        self._table = table

    def snapshots(self) -> pa.Table:
        """Return all snapshots that have not expired, oldest first."""
        names = {"snapshot_id": "id", "commit_time": "time_ms"}
        return _table(
            _SNAPSHOTS,
            ([getattr(item, names.get(name, name)) for name in _SNAPSHOTS] for item in self._table.snapshots()),
        )

    def schemas(self) -> pa.Table:
        """Return all schemas, oldest first; the types of fields are in Paimon's words."""
        rows = []
        for item in self._table.schemas():
            fields = [
                {"id": column.id, "name": column.name, "type": str(column.type), "comment": column.description}
                for column in item.fields
            ]
            options = list(item.options.items())
            rows.append((item.id, fields, item.partition_keys, item.primary_keys, options, item.comment, item.time_ms))
        return _table(_SCHEMAS, rows)

    def tags(self) -> pa.Table:
        """Return all tags, sorted by name."""
        rows = []
        for tag in self._table.tags():
            item, created = tag.snapshot, tag.create_time
            created = None if created is None else created.replace(tzinfo=None)
            counts = (item.id, item.schema_id, item.time_ms, item.total_record_count)
            rows.append((tag.name, *counts, created, tag.retained_seconds, item.identity))
        return _table(_TAGS, rows)

    def branches(self) -> pa.Table:
        """Return all branches but `main`, sorted by name, with the range of their snapshots."""
        rows = []
        for name in self._table.branches():
            branch = self._table.branch(name)
            ids = branch.snapshot_ids() or (None,)
            rows.append((name, ids[0], ids[-1], branch.schema().id))
        return _table(_BRANCHES, rows)

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the manifests of a snapshot: those it found (base), wrote (delta) and those of its changelog."""
        snapshot = self._snapshot(snapshot_id)
        rows: list[tuple[Any, ...]] = []
        if snapshot is not None:
            fields = self._table.schema(snapshot.schema_id).partition_fields
            for kind in ("base", "delta", "changelog"):
                rows += [_manifest_row(kind, item, fields) for item in self._table.manifests(snapshot, kind)]
        return _table(_MANIFESTS, rows)

    def files(self, snapshot_id: int | None = None, wanted: FileFilter = _ANY, *, stats: bool = True) -> pa.Table:
        """Return the live files of a snapshot.

        Args:
            wanted: the filter of the files.
            stats: whether the result has the bounds and null counts of columns, as text; they take most of the time.
        """
        import pyarrow as pa

        snapshot = self._snapshot(snapshot_id)
        entries = self._live(snapshot, wanted)
        columns = entries.columns
        result = {
            **self._partition_column(entries),
            "bucket": columns["bucket"],
            "file_path": pa.array([self._table.data_file_location(entry) for entry in entries], pa.string()),
            **{ours: columns[name] for name, ours in _FILE_COLUMNS.items()},
        }
        if stats:
            result |= self._stats_columns(entries)
        return pa.table(result)

    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the partitions of a snapshot with the sums of their live files."""
        return self._sums(self._live(self._snapshot(snapshot_id)), ())

    def buckets(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the buckets of a snapshot with the sums of their live files."""
        return self._sums(self._live(self._snapshot(snapshot_id)), ("bucket",))

    def index_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the index files of a snapshot, global indexes too."""
        snapshot = self._snapshot(snapshot_id)
        rows = [
            (
                *(self._partition_texts(item.partition), item.bucket, item.index_type),
                *(self._table.index_file_location(item), item.file_size_bytes, item.row_count),
            )
            for item in (() if snapshot is None else self._table.index_files(snapshot))
        ]
        return _table(_INDEX_FILES, rows)

    def deletion_vectors(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the deletion vectors of a snapshot; each of them is read, and counted."""
        snapshot = self._snapshot(snapshot_id)
        found = () if snapshot is None else self._table.deletion_vectors(snapshot)
        rows = [
            (
                *(self._partition_texts(item.index.partition), item.index.bucket, item.vector.data_file),
                *(item.index.file_name, item.vector.offset, item.vector.length, positions.cardinality),
            )
            for item, positions in self._table.read_vectors(found)
        ]
        return _table(_DELETION_VECTORS, rows)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        return self._table.latest_snapshot() if snapshot_id is None else self._table.snapshot(snapshot_id)

    def _live(self, snapshot: Snapshot | None, wanted: FileFilter = _ANY) -> FileEntries:
        if snapshot is None:
            return FileEntries.concat((), self._table.schema().partition_fields)
        return self._table.live_files(snapshot, wanted)

    def _partition_texts(self, partition: Sequence[Any]) -> list[tuple[str, str | None]]:
        return _named_texts(self._table.schema().partition_fields, partition)

    def _partition_column(self, entries: FileEntries) -> dict[str, pa.Array]:
        """Return the partition of each file in a column; an unpartitioned table has no such column."""
        if not entries.partition_fields:
            return {}
        encoded = entries.columns["partition"].combine_chunks().dictionary_encode()
        values = [entries.partitions[blob] for blob in encoded.dictionary.to_pylist()]
        return {"partition": _structs(entries.partition_fields, values).take(encoded.indices)}

    def _stats_columns(self, entries: FileEntries) -> dict[str, pa.Array]:
        import pyarrow as pa

        columns: dict[str, list[Any]] = {"null_counts": [], "min_values": [], "max_values": []}
        for entry, stats in zip(entries, self._table.stats(entries), strict=True):
            types = {field.name: field.type for field in self._table.schema(entry.schema_id).fields}
            columns["null_counts"].append([(name, item.null_count) for name, item in stats.items()])
            columns["min_values"].append(_bounds(stats, types, "min"))
            columns["max_values"].append(_bounds(stats, types, "max"))
        counts = pa.map_(pa.string(), pa.int64())
        return {
            name: pa.array(values, counts if name == "null_counts" else _texts()) for name, values in columns.items()
        }

    def _sums(self, entries: FileEntries, keys: tuple[str, ...]) -> pa.Table:
        import pyarrow as pa

        # Bytes of one partition differ between writers: group by what they mean.
        numbers: dict[Any, int] = {}
        codes = {blob: numbers.setdefault(repr(values), len(numbers)) for blob, values in entries.partitions.items()}
        first = {code: entries.partitions[blob] for blob, code in codes.items()}
        encoded = entries.columns["partition"].combine_chunks().dictionary_encode()
        by_blob = pa.array([codes[blob] for blob in encoded.dictionary.to_pylist()], pa.int64())
        source = entries.columns.select([*keys, "row_count", "file_size", "creation_time"])
        source = source.append_column("code", by_blob.take(encoded.indices))
        sums = source.group_by(["code", *keys], use_threads=False).aggregate(
            [("row_count", "sum"), ("row_count", "count"), ("file_size", "sum"), ("creation_time", "max")]
        )
        result = {key: sums[key] for key in keys}
        if entries.partition_fields:
            values = [first[code] for code in sums["code"].to_pylist()]
            result = {"partition": _structs(entries.partition_fields, values), **result}
        return pa.table(
            {
                **result,
                "record_count": sums["row_count_sum"],
                "file_count": sums["row_count_count"],
                "file_size_in_bytes": sums["file_size_sum"],
                "last_creation_time": sums["creation_time_max"],
            }
        )


def arrow_type(type_: PaimonType) -> pa.DataType:
    """Return the Arrow type of values of an atomic type; of others, which partitions don't have, binary."""
    import pyarrow as pa

    if type_.root == "DECIMAL":
        return pa.decimal128(type_.precision, type_.scale)
    if type_.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        zone = "UTC" if type_.root == "TIMESTAMP_LTZ" else None
        return pa.timestamp("ns" if type_.precision > 6 else "us", tz=zone)
    names = {"BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64"}
    names |= {"FLOAT": "float", "DOUBLE": "double", "CHAR": "string", "VARCHAR": "string"}
    names |= {"DATE": "date32", "TIME": "time64[us]"}
    return pa.type_for_alias(names.get(type_.root, "binary"))


# Columns of the answers, with their types.
_SNAPSHOTS = {
    **{"snapshot_id": "int64", "schema_id": "int64", "commit_user": "string", "commit_identifier": "int64"},
    **{"commit_kind": "string", "operation": "string", "commit_time": "instant", "base_manifest_list": "string"},
    **{"delta_manifest_list": "string", "changelog_manifest_list": "string", "index_manifest": "string"},
    **{"statistics": "string", "total_record_count": "int64", "delta_record_count": "int64"},
    **{"changelog_record_count": "int64", "watermark": "int64", "next_row_id": "int64", "identity": "string"},
    **{"writer_version": "string"},
}
_SCHEMAS = {
    **{"schema_id": "int64", "fields": "fields", "partition_keys": "names", "primary_keys": "names"},
    **{"options": "texts", "comment": "string", "update_time": "instant"},
}
_TAGS = {
    **{"tag_name": "string", "snapshot_id": "int64", "schema_id": "int64", "commit_time": "instant"},
    **{"record_count": "int64", "create_time": "timestamp[us]", "retained_seconds": "float64", "identity": "string"},
}
_BRANCHES = {
    "branch_name": "string",
    **dict.fromkeys(("earliest_snapshot_id", "latest_snapshot_id", "schema_id"), "int64"),
}
_RANGES = ("min_bucket", "max_bucket", "min_level", "max_level", "min_row_id", "max_row_id")
_MANIFESTS = {
    **{"list": "string", "file_name": "string", "file_size_in_bytes": "int64", "added_files": "int64"},
    **{"deleted_files": "int64", "schema_id": "int64", "min_partition": "texts", "max_partition": "texts"},
    **dict.fromkeys(_RANGES, "int64"),
}
_INDEX_FILES = {
    **{"partition": "texts", "bucket": "int32", "index_type": "string", "file_path": "string"},
    **{"file_size_in_bytes": "int64", "row_count": "int64"},
}
_DELETION_VECTORS = {
    **{"partition": "texts", "bucket": "int32", "data_file": "string", "index_file": "string"},
    **{"offset": "int64", "length": "int64", "cardinality": "int64"},
}
# What the columns of entries are called here: Paimon's own words for them in its system tables.
_FILE_COLUMNS = {
    **{"schema_id": "schema_id", "level": "level", "row_count": "record_count", "file_size": "file_size_in_bytes"},
    **{name: name for name in ("total_buckets", "min_sequence_number", "max_sequence_number", "creation_time")},
    **{name: name for name in ("delete_row_count", "file_source", "first_row_id", "write_cols", "extra_files")},
}


def _manifest_row(kind: str, item: ManifestMeta, fields: Sequence[PaimonField]) -> tuple[Any, ...]:
    return (
        *(kind, item.file_name, item.file_size_bytes, item.added_files, item.deleted_files, item.schema_id),
        *(_partition_bound(item, name, fields) for name in ("min_values", "max_values")),
        *(getattr(item, name) for name in _RANGES),
    )


def _partition_bound(item: ManifestMeta, name: str, fields: Sequence[PaimonField]) -> list[tuple[str, str | None]]:
    if item.partition_stats is None or not fields:
        return []
    blob = getattr(item.partition_stats, name)
    if not row_arity(blob, path=item.file_name):
        return []
    return _named_texts(fields, decode_row(blob, [field.type for field in fields], path=item.file_name))


def _named_texts(fields: Sequence[PaimonField], values: Sequence[Any]) -> list[tuple[str, str | None]]:
    pairs = zip(fields, values, strict=True)
    return [(field.name, None if value is None else cast_text(value, field.type)) for field, value in pairs]


def _bounds(stats: Mapping[str, ColumnStats], types: Mapping[str, PaimonType], name: str) -> list[tuple[str, str]]:
    found = ((column, getattr(item, name)) for column, item in stats.items())
    return [(column, _text(value, types.get(column))) for column, value in found if value is not None]


def _text(value: Any, type_: PaimonType | None) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value) if type_ is None else cast_text(value, type_)


def _structs(fields: Sequence[PaimonField], partitions: Iterable[Sequence[Any]]) -> pa.Array:
    import pyarrow as pa

    names = [field.name for field in fields]
    type_ = pa.struct([(field.name, arrow_type(field.type)) for field in fields])
    return pa.array([dict(zip(names, values, strict=True)) for values in partitions], type_)


def _table(columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> pa.Table:
    import pyarrow as pa

    text = pa.string()
    types = {
        "instant": pa.timestamp("ms", tz="UTC"),
        "names": pa.list_(text),
        "texts": _texts(),
        "fields": pa.list_(pa.struct([("id", pa.int32()), ("name", text), ("type", text), ("comment", text)])),
    }
    schema = pa.schema([(name, types.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()])
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)


def _texts() -> pa.DataType:
    import pyarrow as pa

    return pa.map_(pa.string(), pa.string())
