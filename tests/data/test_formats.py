"""Data files in ORC and Avro, and the columns that tell where a row lies and where it came from."""

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.data.read import lazy_bytes
from airflow_iceberg.errors import FormatError, NotFoundError, UnsupportedError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format import types as t
from airflow_iceberg.format.avro.container import read_blocks, read_header, write_container
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata_columns import METADATA_COLUMNS
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support.data_files import name_mapping, read_file, write_data_file

IO = FsspecFileIO()
TABLE = schema_from_shorthand({"id": "long", "name": "string", "st": "struct<x: double>", "l": "list<long>"})
ROWS = [{"id": n, "name": f"n{n}", "st": None if n % 2 else {"x": n / 2}, "l": [n] * (n % 3)} for n in range(100)]
FORMATS = ["parquet", "orc", "avro"]
MILLIS = pa.scalar(7000, pa.timestamp("us"))


def read(file: DataFile, schema: Schema, **options: Any) -> list[Any]:
    return [row for batch in read_file(IO, file, schema=schema, **options) for row in batch.to_pylist()]


def described(path: Path, file_format: str, count: int = 1, **facts: Any) -> DataFile:
    return DataFile(file_path=str(path), file_format=file_format, record_count=count, file_size_in_bytes=1, **facts)


def field(field_id: int, name: str, kind: t.IcebergType, **more: Any) -> t.NestedField:
    return t.NestedField(id=field_id, name=name, type=kind, **more)


def flat(folder: Path, file_format: str, count: int = 100) -> DataFile:
    schema = TABLE.select(["id", "name", "st"])
    rows = [{name: row[name] for name in ("id", "name", "st")} for row in ROWS[:count]]
    return write_data_file(folder / f"data.{file_format}", file_format, schema, rows)


@pytest.mark.parametrize("file_format", FORMATS)
class TestColumnsAreFoundById:
    """What is read is decided by field id in every format, whatever the names and the order."""

    def test_all_columns(self, tmp_path, file_format):
        wanted = TABLE.select(["id", "name", "st"])
        expected = [{name: row[name] for name in ("id", "name", "st")} for row in ROWS]
        assert read(flat(tmp_path, file_format), wanted, batch_size=7) == expected

    def test_renamed_moved_promoted_and_added_ones(self, tmp_path, file_format):
        old = Schema((field(1, "a", t.IntegerType()), field(2, "b", t.StringType())))
        file = write_data_file(tmp_path / "f", file_format, old, [{"a": 1, "b": "x"}])
        wanted = Schema(
            (field(2, "a", t.StringType()), field(1, "c", t.LongType()), field(9, "d", t.LongType(), initial_default=5))
        )
        assert read(file, wanted) == [{"a": "x", "c": 1, "d": 5}]

    def test_fields_of_structs(self, tmp_path, file_format):
        struct = TABLE.find_field("st")
        inner = t.StructType(fields=(field(77, "new", t.LongType()), replace(struct.type.fields[0], name="y")))
        wanted = Schema((replace(struct, name="s", type=inner),))
        expected = [{"s": {"new": None, "y": 0.0}}, {"s": None}, {"s": {"new": None, "y": 1.0}}]
        assert read(flat(tmp_path, file_format, 3), wanted) == expected

    def test_rows_are_filtered(self, tmp_path, file_format):
        row_filter = parse_filter("id > 97 or name = 'n3'", TABLE)
        found = read(flat(tmp_path, file_format), TABLE.select(["name"]), table_schema=TABLE, row_filter=row_filter)
        assert found == [{"name": "n3"}, {"name": "n98"}, {"name": "n99"}]

    def test_no_column_at_all(self, tmp_path, file_format):
        batches = list(read_file(IO, flat(tmp_path, file_format), schema=Schema(), batch_size=30))
        assert sum(batch.num_rows for batch in batches) == 100
        assert max(batch.num_rows for batch in batches) <= 30
        row_filter = parse_filter("id > 97", TABLE)
        found = read(flat(tmp_path, file_format), Schema(), table_schema=TABLE, row_filter=row_filter)
        assert found == [{}, {}]

    def test_a_file_in_memory(self, tmp_path, file_format):
        file = flat(tmp_path, file_format, 2)
        filesystem, path = IO.filesystem(f"memory://formats/{file_format}")
        filesystem.pipe_file(path, Path(file.file_path).read_bytes())
        moved = replace(file, file_path=f"memory://formats/{file_format}")
        assert read(moved, TABLE.select(["id"])) == [{"id": 0}, {"id": 1}]

    @pytest.mark.parametrize("content", [b"", b"ORC", b"Obj\x01", b"no data file at all"])
    def test_foreign_bytes_are_refused(self, tmp_path, file_format, content):
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(FormatError):
            read(described(tmp_path / "f", file_format), TABLE)

    def test_a_file_that_is_gone(self, file_format):
        with pytest.raises(NotFoundError, match="data file /nowhere does not exist, although the table lists it"):
            read(described(Path("/nowhere"), file_format), TABLE)


class TestOrc:
    """ORC has fewer types than Iceberg: times are longs, uuids and fixed are binaries."""

    def written(self, folder: Path, table: pa.Table, *ids: int) -> DataFile:
        fields = [item.with_metadata({"iceberg.id": str(number)}) for item, number in zip(table.schema, ids)]
        orc.write_table(table.cast(pa.schema(fields)), folder / "t.orc")
        return described(folder / "t.orc", "orc", len(table))

    def test_types_that_orc_does_not_have(self, tmp_path):
        table = pa.table({"t": [1, None], "u": [b"\x01" * 16, None], "f": [b"ab", None]})
        wanted = Schema((field(1, "t", t.TimeType()), field(2, "u", t.UUIDType()), field(3, "f", t.FixedType(2))))
        assert read(self.written(tmp_path, table, 1, 2, 3), wanted) == [
            {"t": dt.time(0, 0, 0, 1), "u": b"\x01" * 16, "f": b"ab"},
            {"t": None, "u": None, "f": None},
        ]

    def test_a_fixed_of_another_length_is_an_error(self, tmp_path):
        file = self.written(tmp_path, pa.table({"f": [b"abc"]}), 1)
        with pytest.raises(FormatError, match="has a value that does not fit fixed"):
            read(file, Schema((field(1, "f", t.FixedType(2)),)))

    def test_timestamps_beyond_nanoseconds_are_refused_and_other_columns_read(self, tmp_path):
        table = pa.table({"ts": pa.array([253_370_764_800_000_000], pa.timestamp("us")), "id": [1]})
        file = self.written(tmp_path, table, 1, 2)
        with pytest.raises(UnsupportedError, match="has timestamps that cannot be read"):
            read(file, Schema((field(1, "ts", t.TimestampType()), field(2, "id", t.LongType()))))
        assert read(file, Schema((field(2, "id", t.LongType()),))) == [{"id": 1}]

    def test_files_without_ids_are_read_by_name_mapping(self, tmp_path):
        orc.write_table(pa.table({"name": ["x"], "st": [{"x": 1.5}], "more": [1]}), tmp_path / "p.orc")
        file = described(tmp_path / "p.orc", "orc")
        wanted = TABLE.select(["id", "name", "st"])
        expected = [{"id": None, "name": "x", "st": {"x": 1.5}}]
        assert read(file, wanted, name_mapping=name_mapping(TABLE)) == expected
        with pytest.raises(UnsupportedError, match="has no field ids"):
            read(file, wanted)

    def test_a_column_with_a_dot_in_its_name(self, tmp_path):
        file = self.written(tmp_path, pa.table({"a.b": [1], "a": [{"b": 2}]}), 1, 2)
        assert read(file, Schema((field(1, "c", t.LongType()),))) == [{"c": 1}]


class TestAvro:
    """Logical types are applied to what Avro stores; no Python object of a date or time is in between."""

    def written(self, folder: Path, fields: list[Any], rows: list[Any], **options: Any) -> DataFile:
        record = {"type": "record", "name": "table", "fields": fields}
        with (folder / "t.avro").open("wb") as handle:
            fastavro.writer(handle, record, rows, **options)
        return described(folder / "t.avro", "avro", len(rows))

    @pytest.mark.parametrize(
        ("stored", "kind", "value", "expected"),
        [
            ({"type": "int", "logicalType": "date"}, t.DateType(), -1_000_000, pa.scalar(-1_000_000, pa.date32())),
            ({"type": "long", "logicalType": "timestamp-micros"}, t.TimestampType(), -(2**60), None),
            ({"type": "long", "logicalType": "timestamp-micros"}, t.TimestamptzType(), 2**60, None),
            ({"type": "long", "logicalType": "timestamp-millis"}, t.TimestampType(), 7, MILLIS),
            ({"type": "long", "logicalType": "timestamp-nanos"}, t.TimestampNsType(), 5, None),
            ({"type": "long", "logicalType": "time-micros"}, t.TimeType(), 5, pa.scalar(5, pa.time64("us"))),
            (
                {"type": "fixed", "size": 3, "name": "d", "logicalType": "decimal", "precision": 5, "scale": 2},
                t.DecimalType(9, 2), b"\xff\xff\x85", pa.scalar(Decimal("-1.23"), pa.decimal128(9, 2)),
            ),
            (
                {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
                t.DecimalType(5, 2), b"\x7b", pa.scalar(Decimal("1.23"), pa.decimal128(5, 2)),
            ),
            (
                {"type": "fixed", "size": 16, "name": "u", "logicalType": "uuid"},
                t.UUIDType(), b"\x01" * 16, pa.scalar(b"\x01" * 16, pa.binary(16)),
            ),
            ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, t.StringType(), "B", pa.scalar("B")),
        ],
    )  # fmt: skip
    def test_logical_types(self, tmp_path, stored, kind, value, expected):
        plain = {key: item for key, item in stored.items() if key not in ("logicalType", "precision", "scale")}
        file = self.written(tmp_path, [{"name": "c", "type": ["null", plain], "field-id": 1}], [{"c": value}])
        # Written without the logical type, which fastavro would want Python objects for; then put into the header.
        path = Path(file.file_path)
        record = {
            "type": "record", "name": "table", "fields": [{"name": "c", "type": ["null", stored], "field-id": 1}]
        }  # fmt: skip
        data = path.read_bytes()
        blocks = list(read_blocks(data, read_header(data)))
        path.write_bytes(write_container({"avro.schema": json.dumps(record)}, blocks, codec="null"))
        (batch,) = read_file(IO, file, schema=Schema((field(1, "c", kind),)))
        arrow = batch.column(0)
        assert arrow.type == schema_to_arrow(Schema((field(1, "c", kind),))).field(0).type
        assert arrow[0] == (expected if expected is not None else pa.scalar(value, arrow.type))

    def test_nested_values(self, tmp_path):
        entry = {
            "type": "record", "name": "k", "fields": [
                {"name": "key", "type": "long", "field-id": 3}, {"name": "value", "type": "string", "field-id": 4},
            ],
        }  # fmt: skip
        fields = [
            {"name": "m", "type": {"type": "array", "items": entry, "logicalType": "map"}, "field-id": 1},
            {"name": "s", "type": {"type": "map", "values": "long", "key-id": 5, "value-id": 6}, "field-id": 2},
            {"name": "l", "type": {"type": "array", "items": ["null", "long"], "element-id": 8}, "field-id": 7},
        ]
        rows = [{"m": [{"key": 1, "value": "x"}], "s": {"a": 1}, "l": [1, None]}, {"m": [], "s": {}, "l": []}]
        wanted = Schema(schema_from_shorthand({"m": "map<long, string>", "s": "map<string, long>"}).fields)
        ids = {"m": 1, "s": 2, "m.key": 3, "m.value": 4, "s.key": 5, "s.value": 6}
        assert {wanted.names[name] for name in ids} == set(ids.values())
        found = read(self.written(tmp_path, fields, rows), wanted)
        assert found == [{"m": [(1, "x")], "s": [("a", 1)]}, {"m": [], "s": []}]

    @pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
    def test_codecs(self, tmp_path, codec):
        fields = [{"name": "id", "type": "long", "field-id": 1}]
        rows = [{"id": n} for n in range(1000)]
        file = self.written(tmp_path, fields, rows, codec=codec, sync_interval=500)
        assert read(file, TABLE.select(["id"]), batch_size=100) == rows

    def test_blocks_larger_than_what_is_read_at_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(lazy_bytes, "_CHUNK", 64)
        fields = [{"name": "id", "type": "long", "field-id": 1}, {"name": "name", "type": "string", "field-id": 2}]
        rows = [{"id": n, "name": "x" * (n % 90)} for n in range(300)]
        file = self.written(tmp_path, fields, rows, sync_interval=1000)
        assert read(file, TABLE.select(["id", "name"])) == rows

    def test_a_union_of_types_is_refused(self, tmp_path):
        file = self.written(tmp_path, [{"name": "id", "type": ["long", "string"], "field-id": 1}], [{"id": 1}])
        with pytest.raises(UnsupportedError, match="an Avro union of 2 types"):
            read(file, TABLE.select(["id"]))

    @pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "f", "size": 0}])
    def test_a_list_of_items_without_bytes_is_refused(self, tmp_path, items):
        """Five bytes could claim billions of them."""
        fields = [
            {"name": "id", "type": "long", "field-id": 1},
            {"name": "x", "type": {"type": "array", "items": items}, "field-id": 9},
        ]
        file = self.written(tmp_path, fields, [])
        with pytest.raises(FormatError, match=r"items without bytes.* of .*t\.avro"):
            read(file, TABLE.select(["id"]))

    def test_more_records_than_bytes_are_refused(self, tmp_path):
        """Records of columns of unknown type have no bytes, and no block."""
        schema = {"type": "record", "name": "table", "fields": [{"name": "id", "type": "null", "field-id": 1}]}
        path = tmp_path / "t.avro"
        path.write_bytes(write_container({"avro.schema": json.dumps(schema)}, [(10**12, b"\0")], codec="null"))
        with pytest.raises(FormatError, match="a block of 1000000000000 records has 1 bytes"):
            read(described(path, "avro"), TABLE.select(["id"]))

    def test_a_damaged_block_is_an_error(self, tmp_path):
        file = self.written(tmp_path, [{"name": "name", "type": "string", "field-id": 2}], [{"name": "x" * 50}])
        path = Path(file.file_path)
        path.write_bytes(path.read_bytes().replace(b"d" + b"x" * 50, b"\xfe" + b"x" * 50))
        with pytest.raises(FormatError, match="damaged Avro block"):
            read(file, TABLE.select(["name"]))

    def test_a_variant(self, tmp_path):
        kind = {
            "type": "record", "name": "v", "logicalType": "variant",
            "fields": [{"name": "metadata", "type": "bytes"}, {"name": "value", "type": "bytes"}],
        }  # fmt: skip
        rows = [{"v": {"metadata": b"\x01\x00\x00", "value": b"\x00"}}, {"v": None}]
        file = self.written(tmp_path, [{"name": "v", "type": ["null", kind], "field-id": 1}], rows)
        assert read(file, Schema((field(1, "v", t.VariantType()),))) == rows


class TestMetadataColumns:
    """Where a row lies, and its lineage: what the file says, else what follows from its place."""

    ALL = Schema(tuple(METADATA_COLUMNS.values()))

    def write(self, folder: Path, columns: dict[str, list[Any]], **facts: Any) -> DataFile:
        ids = {"id": 1, "_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
        fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(ids[name])}) for name in columns]
        table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}, pa.schema(fields))
        pq.write_table(table, folder / "f", row_group_size=2)
        return described(folder / "f", "parquet", len(table), **facts)

    def test_positions_go_over_row_groups_and_filters(self, tmp_path):
        file = self.write(tmp_path, {"id": [5, 6, 7, 8]}, spec_id=3)
        wanted = Schema((METADATA_COLUMNS["_pos"], METADATA_COLUMNS["_file"], METADATA_COLUMNS["_spec_id"]))
        row_filter = parse_filter("id >= 8", TABLE)
        found = read(file, wanted, table_schema=TABLE, row_filter=row_filter)
        assert found == [{"_pos": 3, "_file": file.file_path, "_spec_id": 3}]

    @pytest.mark.parametrize(
        ("columns", "first_row_id", "expected"),
        [
            ({"id": [1, 2, 3]}, 100, [(100, 7), (101, 7), (102, 7)]),
            (
                {"id": [1, 2], "_row_id": [9, None], "_last_updated_sequence_number": [None, 3]},
                100,
                [(9, 7), (101, 3)],
            ),
            ({"id": [1]}, None, [(None, None)]),
        ],
        ids=["of its place", "what the file says goes first", "none before v3"],
    )
    def test_lineage(self, tmp_path, columns, first_row_id, expected):
        file = self.write(tmp_path, columns, first_row_id=first_row_id)
        rows = read(file, self.ALL, sequence_number=7)
        assert [(row["_row_id"], row["_last_updated_sequence_number"]) for row in rows] == expected
        assert not any(row["_deleted"] for row in rows)
