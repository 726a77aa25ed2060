"""pypaimon and paimon-rust as the second opinion: a program that runs in `.venv-paimon` and nothing else imports.

    python paimon_peer.py write ROOT               makes the tables of `TABLES` in ROOT/warehouse/db.db
    python paimon_peer.py describe ROOT            what pypaimon reads of each table there, as tests/golden spells it
    python paimon_peer.py rust ROOT                what paimon-rust says of each table there
    python paimon_peer.py append WAREHOUSE ID…     appends rows to db.orders, made if it is not there

Answers are JSON on standard output: by table what was read, or the text of what the reader raised.
"""

import datetime as dt
import decimal
import json
import math
import sys
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.deletionvectors.deletion_vector import DeletionVector
from pypaimon.index.dynamic_bucket import _iter_hashes
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.source.deletion_file import DeletionFile

FULL = {"metadata.stats-mode": "full"}


def catalog_of(warehouse):
    catalog = CatalogFactory.create({"warehouse": f"file://{warehouse}"})
    catalog.create_database("db", True)
    return catalog


# --- writing ----------------------------------------------------------------------------------------------------------


def commit(table, data, *, overwrite=None):
    builder = table.new_batch_write_builder()
    builder = builder if overwrite is None else builder.overwrite(overwrite)
    write, end = builder.new_write(), builder.new_commit()
    write.write_arrow(data)
    end.commit(write.prepare_commit())
    write.close()
    end.close()


def made(catalog, name, schema, **options):
    keys = {key: options.pop(key) for key in ("partition_keys", "primary_keys") if key in options}
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    catalog.create_table(f"db.{name}", Schema.from_pyarrow_schema(schema, options={**FULL, **given}, **keys), False)
    return catalog.get_table(f"db.{name}")


def rows(schema, **columns):
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names}, schema=schema)


PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
BY_DAY = pa.schema([("id", pa.int64()), ("dt", pa.date32()), ("region", pa.string())])
TYPES = pa.schema(
    [
        *(("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64())),
        *(("f", pa.float32()), ("d", pa.float64()), ("dec", pa.decimal128(9, 2)), ("wide", pa.decimal128(38, 10))),
        *(("s", pa.string()), ("bin", pa.binary()), ("day", pa.date32()), ("clock", pa.time32("ms"))),
        *(("ms", pa.timestamp("ms")), ("us", pa.timestamp("us")), ("utc", pa.timestamp("us", tz="UTC"))),
        *(("list", pa.list_(pa.int32())), ("map", pa.map_(pa.string(), pa.int32()))),
        ("row", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def write_append(catalog):
    table = made(catalog, "append", PLAIN)
    for start in (0, 10, 20):
        commit(table, rows(PLAIN, id=[*range(start, start + 5), None], name=["x" * start] * 5 + [None]))
    commit(table, rows(PLAIN, id=[7], name=["seven"]), overwrite={})
    commit(table, rows(PLAIN, id=[8], name=["é%/=:"]))


def write_no_stats(catalog):
    table = made(catalog, "no_stats", PLAIN, metadata_stats__mode="none")
    commit(table, rows(PLAIN, id=[1], name=["a"]))


def write_partitioned(catalog):
    table = made(catalog, "partitioned", BY_DAY, partition_keys=["dt", "region"])
    days = [dt.date(2026, 11, 20), dt.date(1969, 12, 31), None, dt.date(2026, 11, 20)]
    commit(table, rows(BY_DAY, id=[1, 2, 3, 4], dt=days, region=["eu", "a/b=c d%é", None, " "]))
    commit(table, rows(BY_DAY, id=[5], dt=[days[0]], region=["eu"]), overwrite={"dt": "2026-11-20", "region": "eu"})


def write_primary_key(catalog):
    table = made(catalog, "primary_key", KEYED, primary_keys=["id"], bucket="2")
    for start in (0, 3):
        commit(table, rows(KEYED, id=list(range(start, start + 6)), name=[f"n{start}"] * 6))


def write_dynamic_bucket(catalog):
    table = made(catalog, "dynamic_bucket", KEYED, primary_keys=["id"], bucket="-1")
    for start in (0, 50):
        commit(table, rows(KEYED, id=list(range(start, start + 60)), name=["n"] * 60))


def write_changelog(catalog):
    table = made(catalog, "changelog", KEYED, primary_keys=["id"], bucket="1", changelog__producer="input")
    for start in (0, 2):
        commit(table, rows(KEYED, id=[start, start + 1], name=["n", "m"]))


def write_evolved(catalog):
    table = made(catalog, "evolved", PLAIN)
    commit(table, rows(PLAIN, id=[1, 2], name=["a", None]))
    small = pa.schema([("id", pa.int64()), ("title", pa.string()), ("n", pa.int32())])
    catalog.alter_table("db.evolved", [SchemaChange.rename_column("name", "title")], False)
    catalog.alter_table("db.evolved", [SchemaChange.add_column("n", _type("INT"))], False)
    commit(catalog.get_table("db.evolved"), rows(small, id=[3], title=["c"], n=[-5]))
    catalog.alter_table("db.evolved", [SchemaChange.update_column_type("n", _type("BIGINT"))], False)
    wide = pa.schema([("id", pa.int64()), ("title", pa.string()), ("n", pa.int64())])
    commit(catalog.get_table("db.evolved"), rows(wide, id=[4], title=["d"], n=[2**40]))
    catalog.alter_table("db.evolved", [SchemaChange.drop_column("title")], False)
    last = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    commit(catalog.get_table("db.evolved"), rows(last, id=[5], n=[None]))


def _type(name):
    from pypaimon.schema.data_types import AtomicType

    return AtomicType(name)


def write_types(catalog):
    table = made(catalog, "types", TYPES)
    moment = dt.datetime(2026, 11, 21, 1, 2, 3, 456789)  # noqa: DTZ001  # a wall clock
    first = {
        **{"b": True, "i8": -128, "i16": 32767, "i32": -(2**31), "i64": 2**63 - 1, "f": 1.5, "d": -0.0},
        **{"dec": decimal.Decimal("1234567.89"), "wide": decimal.Decimal("-1234567890123456789012345678.0123456789")},
        **{"s": "äöü" * 5, "bin": b"\x00\xff" * 6, "day": dt.date(1, 1, 1), "clock": dt.time(23, 59, 59, 999000)},
        **{"ms": moment.replace(microsecond=456000), "us": moment, "utc": moment.replace(tzinfo=dt.UTC)},
        **{"list": [1, None], "map": [("k", 1)], "row": {"x": 1, "y": None}},
    }
    before = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
    second = {**first, "us": before, "utc": before.replace(tzinfo=dt.UTC), "s": "", "bin": b"", "d": math.inf}
    commit(table, pa.Table.from_pylist([first, second, dict.fromkeys(TYPES.names)], schema=TYPES))
    commit(table, pa.Table.from_pylist([dict.fromkeys(TYPES.names)], schema=TYPES))


def write_deletion_vectors(catalog):
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
    catalog.create_table("db.deletion_vectors", Schema.from_pyarrow_schema(PLAIN, options={**FULL, **options}), False)
    table = catalog.get_table("db.deletion_vectors")
    commit(table, rows(PLAIN, id=list(range(100)), name=["n"] * 100))
    for row_ids in ([0, 5, 99], [1]):
        builder = table.new_batch_write_builder()
        messages = builder.new_update().delete_by_row_id(row_ids)
        end = builder.new_commit()
        end.commit(messages)
        end.close()


def write_refs(catalog):
    table = made(catalog, "refs", PLAIN)
    for number in range(1, 5):
        commit(table, rows(PLAIN, id=[number], name=["n"]))
    table.create_tag("three", 3)
    table.create_tag("one", 1)
    table.branch_manager().create_branch("b1", "one")
    table.rollback_to(3)
    commit(table, rows(PLAIN, id=[44], name=["another fourth"]))


TABLES = {name.removeprefix("write_"): function for name, function in globals().items() if name.startswith("write_")}


# --- describing -------------------------------------------------------------------------------------------------------


def describe(path):
    table = FileStoreTable.from_path(f"file://{path}")
    snapshots = table.snapshot_manager()
    latest = snapshots.get_latest_snapshot()
    found = [snapshots.get_snapshot_by_id(n) for n in range(1, latest.id + 1)] if latest else []
    branches = table.branch_manager().branches()
    schemas = sorted(path.glob("schema/schema-*"), key=lambda item: int(item.name.rpartition("-")[2]))
    return {
        "schemas": [json.loads(item.read_text()) for item in schemas],
        "tags": {name: table.tag_manager().get(name).id for name in table.list_tags()},
        "branches": {name: branch_ids(path, name) for name in branches},
        "snapshots": [snapshot_of(table, item) for item in found if item is not None],
    }


def branch_ids(path, name):
    folder = path / "branch" / f"branch-{name}" / "snapshot"
    return sorted(int(item.name.rpartition("-")[2]) for item in folder.glob("snapshot-*"))


def snapshot_of(table, snapshot):
    lists, manifests = ManifestListManager(table), ManifestFileManager(table)
    kinds = {kind: getattr(lists, f"read_{kind}")(snapshot) for kind in ("base", "delta", "changelog")}
    both = [*kinds["base"], *kinds["delta"]]
    delta = [entry for item in kinds["delta"] for entry in manifests.read(item.file_name, drop_stats=False)]
    return {
        "id": snapshot.id,
        "schema_id": snapshot.schema_id,
        "commit_kind": snapshot.commit_kind,
        "time_millis": snapshot.time_millis,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
        "index_manifest": snapshot.index_manifest,
        "changelog_manifest_list": snapshot.changelog_manifest_list,
        "live_files": [file_of(table, entry) for entry in manifests.read_entries_parallel(both, drop_stats=False)],
        "delta": [delta_of(table, entry) for entry in delta],
        "manifests": {kind: len(items) for kind, items in kinds.items()},
        "index_files": [index_of(table, entry) for entry in indexes(table, snapshot)],
    }


def indexes(table, snapshot):
    return IndexManifestFile(table).read(snapshot.index_manifest) if snapshot.index_manifest else []


def path_of(table, entry):
    if entry.file.external_path:
        return entry.file.external_path.rpartition("/warehouse/")[2]
    factory = table.path_factory()
    for canonical in (True, False):
        folder = factory.bucket_path(tuple(entry.partition.values), entry.bucket, canonical_partition=canonical)
        path = f"{folder}/{entry.file.file_name}".removeprefix("file://").removeprefix("file:")
        if canonical and Path(path).exists():
            break
    return path.rpartition("/warehouse/")[2]


def delta_of(table, entry):
    kind = ("ADD", "DELETE")[entry.kind]
    return {"kind": kind, "path": path_of(table, entry), "level": entry.file.level, "row_count": entry.file.row_count}


def file_of(table, entry):
    file = entry.file
    names = ("level", "row_count", "file_size", "schema_id", "min_sequence_number", "max_sequence_number")
    more = ("delete_row_count", "file_source", "value_stats_cols", "write_cols", "first_row_id")
    return {
        "path": path_of(table, entry),
        "file_name": file.file_name,
        "partition": {field.name: plain(value) for field, value in zip(*partition_of(table, entry), strict=True)},
        "bucket": entry.bucket,
        "total_buckets": entry.total_buckets,
        **{name: getattr(file, name) for name in names + more},
        "external_path": file.external_path is not None,
        "extra_files": list(file.extra_files or ()),
        "stats": stats_of(file.value_stats),
    }


def partition_of(table, entry):
    return table.partition_keys_fields, entry.partition.values


def stats_of(stats):
    low, high = stats.min_values, stats.max_values
    fields = [field.name for field in low.fields]
    if not fields:
        return {}
    counts = list(stats.null_counts or ())
    return {
        name: {
            "min": plain(low.get_field(number)),
            "max": plain(high.get_field(number)),
            "null_count": counts[number] if number < len(counts) else None,
        }
        for number, name in enumerate(fields)
    }


def index_of(table, entry):
    file = entry.index_file
    result = {
        "kind": entry.kind,
        "index_type": file.index_type,
        "file_name": file.file_name,
        "file_size": file.file_size,
        "row_count": file.row_count,
        "bucket": entry.bucket,
        "partition": {field.name: plain(value) for field, value in zip(*partition_of(table, entry), strict=True)},
    }
    if file.index_type == "HASH":
        result["hashes"] = list(_iter_hashes(table, entry))
    if file.dv_ranges:
        path = table.path_factory().bucket_index_path(tuple(entry.partition.values), entry.bucket, file, table.file_io)
        result["deletion_vectors"] = {
            name: {
                **{"offset": item.offset, "length": item.length, "cardinality": item.cardinality},
                "positions": positions(table, DeletionFile(path, item.offset, item.length, item.cardinality)),
            }
            for name, item in file.dv_ranges.items()
        }
    return result


def positions(table, deletion_file):
    return sorted(DeletionVector.read(table.file_io, deletion_file).bit_map())


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, (bytes, bytearray)):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if hasattr(value, "to_local_date_time"):
        return value.to_local_date_time().isoformat(timespec="microseconds")
    return str(value) if isinstance(value, decimal.Decimal) else value


# --- paimon-rust ------------------------------------------------------------------------------------------------------


def describe_rust(path):
    from pypaimon_rust.datafusion import PaimonCatalog

    table = PaimonCatalog({"warehouse": str(path.parents[1])}).get_table(f"db.{path.name}")
    return {
        "snapshots": {item.id(): [item.commit_kind(), item.commit_time_ms()] for item in table.list_snapshots()},
        "tags": {item.name(): item.snapshot_id() for item in table.list_tags()},
        "partitions": [[item.record_count(), item.file_count(), item.total_size_bytes()]
                       for item in table.partition_stats()],
        "fields": [[field.id(), field.name()] for field in table.schema().fields()],
    }  # fmt: skip


def attempt(function, path):
    try:
        return function(path)
    except BaseException as error:  # a panic of Rust's is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def append(warehouse, ids):
    catalog = catalog_of(warehouse)
    schema = pa.schema([("id", pa.int64()), ("dt", pa.date32())])
    catalog.create_table(
        "db.orders", Schema.from_pyarrow_schema(schema, partition_keys=["dt"], options=dict(FULL)), True
    )
    commit(catalog.get_table("db.orders"), rows(schema, id=ids, dt=[dt.date(2026, 1, 1)] * len(ids)))


def main(command, root, *more):
    if command == "append":
        return append(root, [int(text) for text in more])
    if command == "write":
        catalog = catalog_of(Path(root) / "warehouse")
        for function in TABLES.values():
            function(catalog)
        return None
    function = {"describe": describe, "rust": describe_rust}[command]
    folders = sorted(Path(root).glob("warehouse/db.db/*"))
    return json.dump({path.name: attempt(function, path) for path in folders}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
