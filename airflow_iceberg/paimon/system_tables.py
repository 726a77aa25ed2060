"""What a Paimon table holds, as Arrow tables: one method for each question.

Here: the columns of the answers. Not here: reading (`files`). Times are in UTC; a file's `creation_time` is the wall
clock of its writer, in a zone that nobody wrote down.
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
        import pyarrow as pa

        rows = [
            {
                "snapshot_id": item.id,
                "schema_id": item.schema_id,
                "commit_user": item.commit_user,
                "commit_identifier": item.commit_identifier,
                "commit_kind": item.commit_kind,
                "operation": item.operation,
                "commit_time": item.time_ms,
                "base_manifest_list": item.base_manifest_list,
                "delta_manifest_list": item.delta_manifest_list,
                "changelog_manifest_list": item.changelog_manifest_list,
                "index_manifest": item.index_manifest,
                "statistics": item.statistics,
                "total_record_count": item.total_record_count,
                "delta_record_count": item.delta_record_count,
                "changelog_record_count": item.changelog_record_count,
                "watermark": item.watermark,
                "next_row_id": item.next_row_id,
                "identity": item.identity,
                "writer_version": item.writer_version,
            }
            for item in self._table.snapshots()
        ]
        return _table(
            rows, _SNAPSHOT_COLUMNS, {**dict.fromkeys(_SNAPSHOT_TEXTS, pa.string()), "commit_time": _instant()}
        )

    def schemas(self) -> pa.Table:
        """Return all schemas, oldest first; the types of fields are in Paimon's words."""
        import pyarrow as pa

        field = pa.struct([("id", pa.int32()), ("name", pa.string()), ("type", pa.string()), ("comment", pa.string())])
        rows = [
            {
                "schema_id": item.id,
                "fields": [
                    {"id": column.id, "name": column.name, "type": str(column.type), "comment": column.description}
                    for column in item.fields
                ],
                "partition_keys": item.partition_keys,
                "primary_keys": item.primary_keys,
                "options": list(item.options.items()),
                "comment": item.comment,
                "update_time": item.time_ms,
            }
            for item in self._table.schemas()
        ]
        names = pa.list_(pa.string())
        types = {
            "schema_id": pa.int64(),
            "fields": pa.list_(field),
            "partition_keys": names,
            "primary_keys": names,
            "options": pa.map_(pa.string(), pa.string()),
            "comment": pa.string(),
            "update_time": _instant(),
        }
        return _table(rows, tuple(types), types)

    def tags(self) -> pa.Table:
        """Return all tags, sorted by name."""
        import pyarrow as pa

        rows = [
            {
                "tag_name": tag.name,
                "snapshot_id": tag.snapshot.id,
                "schema_id": tag.snapshot.schema_id,
                "commit_time": tag.snapshot.time_ms,
                "record_count": tag.snapshot.total_record_count,
                "create_time": None if tag.create_time is None else tag.create_time.replace(tzinfo=None),
                "retained_seconds": tag.retained_seconds,
                "identity": tag.snapshot.identity,
            }
            for tag in self._table.tags()
        ]
        types = {
            "tag_name": pa.string(),
            "commit_time": _instant(),
            "create_time": pa.timestamp("us"),
            "retained_seconds": pa.float64(),
            "identity": pa.string(),
        }
        columns = "tag_name snapshot_id schema_id commit_time record_count create_time retained_seconds identity"
        return _table(rows, columns.split(), types)

    def branches(self) -> pa.Table:
        """Return all branches but `main`, sorted by name, with the range of their snapshots."""
        import pyarrow as pa

        rows = []
        for name in self._table.branches():
            branch = self._table.branch(name)
            ids = branch.snapshot_ids()
            rows.append(
                {
                    "branch_name": name,
                    "earliest_snapshot_id": ids[0] if ids else None,
                    "latest_snapshot_id": ids[-1] if ids else None,
                    "schema_id": branch.schema().id,
                }
            )
        columns = ("branch_name", "earliest_snapshot_id", "latest_snapshot_id", "schema_id")
        return _table(rows, columns, {"branch_name": pa.string()})

    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the manifests of a snapshot: those it found (base), wrote (delta) and those of its changelog."""
        import pyarrow as pa

        snapshot = self._snapshot(snapshot_id)
        rows: list[dict[str, Any]] = []
        if snapshot is not None:
            fields = self._table.schema(snapshot.schema_id).partition_fields
            for kind in ("base", "delta", "changelog"):
                rows += [_manifest_row(kind, item, fields) for item in self._table.manifests(snapshot, kind)]
        texts = dict.fromkeys(("list", "file_name"), pa.string())
        bounds = dict.fromkeys(("min_partition", "max_partition"), _texts())
        return _table(rows, _MANIFEST_COLUMNS, {**texts, **bounds})

    def files(self, snapshot_id: int | None = None, wanted: FileFilter = _ANY, *, stats: bool = True) -> pa.Table:
        """Return the live files of a snapshot.

        Args:
            wanted: which of them.
            stats: with the bounds and null counts of columns, as text; leaving them out saves most of the time.
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
        import pyarrow as pa

        snapshot = self._snapshot(snapshot_id)
        found = () if snapshot is None else self._table.index_files(snapshot)
        rows = [
            {
                "partition": self._partition_texts(item.partition),
                "bucket": item.bucket,
                "index_type": item.index_type,
                "file_path": self._table.index_file_location(item),
                "file_size_in_bytes": item.file_size_bytes,
                "row_count": item.row_count,
            }
            for item in found
        ]
        texts = dict.fromkeys(("index_type", "file_path"), pa.string())
        columns = ("partition", "bucket", "index_type", "file_path", "file_size_in_bytes", "row_count")
        return _table(rows, columns, {**texts, "partition": _texts(), "bucket": pa.int32()})

    def deletion_vectors(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the deletion vectors of a snapshot; each of them is read, and counted."""
        import pyarrow as pa

        snapshot = self._snapshot(snapshot_id)
        found = () if snapshot is None else self._table.deletion_vectors(snapshot)
        rows = [
            {
                "partition": self._partition_texts(item.index.partition),
                "bucket": item.index.bucket,
                "data_file": item.vector.data_file,
                "index_file": item.index.file_name,
                "offset": item.vector.offset,
                "length": item.vector.length,
                "cardinality": positions.cardinality,
            }
            for item, positions in self._table.read_vectors(found)
        ]
        texts = dict.fromkeys(("data_file", "index_file"), pa.string())
        columns = ("partition", "bucket", "data_file", "index_file", "offset", "length", "cardinality")
        return _table(rows, columns, {**texts, "partition": _texts(), "bucket": pa.int32()})

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
        import pyarrow as pa

        if not entries.partition_fields:
            return {}
        encoded = entries.columns["partition"].combine_chunks().dictionary_encode()
        type_ = pa.struct([(field.name, arrow_type(field.type)) for field in entries.partition_fields])
        names = [field.name for field in entries.partition_fields]
        values = [dict(zip(names, entries.partitions[blob], strict=True)) for blob in encoded.dictionary.to_pylist()]
        return {"partition": pa.array(values, type_).take(encoded.indices)}

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
            type_ = pa.struct([(field.name, arrow_type(field.type)) for field in entries.partition_fields])
            names = [field.name for field in entries.partition_fields]
            values = [dict(zip(names, first[code], strict=True)) for code in sums["code"].to_pylist()]
            result = {"partition": pa.array(values, type_), **result}
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


_SNAPSHOT_TEXTS = (
    *("commit_user", "commit_kind", "operation", "base_manifest_list", "delta_manifest_list"),
    *("changelog_manifest_list", "index_manifest", "statistics", "identity", "writer_version"),
)
_SNAPSHOT_COLUMNS = (
    *("snapshot_id", "schema_id", "commit_user", "commit_identifier", "commit_kind", "operation", "commit_time"),
    *("base_manifest_list", "delta_manifest_list", "changelog_manifest_list", "index_manifest", "statistics"),
    *("total_record_count", "delta_record_count", "changelog_record_count", "watermark", "next_row_id"),
    *("identity", "writer_version"),
)
_RANGES = ("min_bucket", "max_bucket", "min_level", "max_level", "min_row_id", "max_row_id")
_MANIFEST_COLUMNS = (
    *("list", "file_name", "file_size_in_bytes", "added_files", "deleted_files", "schema_id"),
    *("min_partition", "max_partition", *_RANGES),
)
# What the columns of entries are called here: Paimon's own words for them in its system tables.
_FILE_COLUMNS = {
    **{"schema_id": "schema_id", "level": "level", "row_count": "record_count", "file_size": "file_size_in_bytes"},
    **{name: name for name in ("total_buckets", "min_sequence_number", "max_sequence_number", "creation_time")},
    **{name: name for name in ("delete_row_count", "file_source", "first_row_id", "write_cols", "extra_files")},
}


def _manifest_row(kind: str, item: ManifestMeta, fields: Sequence[PaimonField]) -> dict[str, Any]:
    return {
        "list": kind,
        "file_name": item.file_name,
        "file_size_in_bytes": item.file_size_bytes,
        "added_files": item.added_files,
        "deleted_files": item.deleted_files,
        "schema_id": item.schema_id,
        "min_partition": _partition_bound(item, "min_values", fields),
        "max_partition": _partition_bound(item, "max_values", fields),
        **{name: getattr(item, name) for name in _RANGES},
    }


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


def _table(rows: list[dict[str, Any]], names: Iterable[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table; columns without a type are whole numbers."""
    import pyarrow as pa

    schema = pa.schema([(name, types.get(name, pa.int64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def _instant() -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("ms", tz="UTC")


def _texts() -> pa.DataType:
    import pyarrow as pa

    return pa.map_(pa.string(), pa.string())
