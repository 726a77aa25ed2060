"""Avro data files as they are written: rows, types by the specification, statistics, blocks, sizes."""

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_iceberg.data.cast.rows import conform
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values, values_from_array
from airflow_iceberg.format.avro.container import BlockWriter, read_blocks, read_header, write_long
from airflow_iceberg.format.avro.rows import encode_rows
from airflow_iceberg.format.avro.schemas import record_schema
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.data.test_metrics import arrow
from tests.support import strategies
from tests.support.data_files import read_file
from tests.support.sampling import examples

IO = FsspecFileIO()
AVRO = {"write.format.default": "avro"}


def write(folder: Path, schema: Schema, parts: Sequence[pa.Table], **properties: str) -> list[DataFile]:
    """Write tables into files below a folder; each part is encoded on its own."""
    options = WriteOptions.from_properties({**AVRO, **properties}, schema)
    writer = PartitionedWriter(
        IO, schema=schema, spec=PartitionSpec(), options=options, data_location=f"file://{folder}", file_prefix="t"
    )
    for part in parts:
        writer.write(part)
        for inner in writer._writers.values():
            inner.flush()
    return list(writer.close())


def content(file: DataFile) -> bytes:
    return IO.read(file.file_path)


def avro_schema(file: DataFile) -> Any:
    return json.loads(read_header(content(file)).metadata["avro.schema"])


def back(file: DataFile, schema: Schema) -> list[Any]:
    found = pa.Table.from_batches(
        list(read_file(IO, file, schema=schema)), schema=schema_to_arrow(schema, with_field_ids=False)
    )
    if not found.num_rows:
        return []
    return values_from_array(schema.as_struct(), pa.concat_arrays(found.to_struct_array().chunks))


class TestAnyRowsComeBack:
    """Whatever the types, at every depth: the rows that are read are those that were written."""

    @pytest.mark.services
    @examples(150)
    @given(data=st.data(), codec=st.sampled_from(["gzip", "zstd", "snappy", "uncompressed"]))
    def test_any_schema(self, tmp_path_factory, data, codec):
        schema = data.draw(strategies.schemas())
        rows = [row for row in data.draw(strategies.columns(schema.as_struct(), max_size=6)) if row is not None]
        tables = [arrow(schema, rows), arrow(schema, rows[1:]).slice(1)]
        files = write(tmp_path_factory.mktemp("any"), schema, tables, **{"write.avro.compression-codec": codec})
        expected = [*rows, *rows[2:]]
        assert [file.record_count for file in files] == ([len(expected)] if expected else [])
        assert repr([row for file in files for row in back(file, schema)]) == repr(expected)
        if files:
            self.fastavro_reads_it(files[0], len(expected))

    @staticmethod
    def fastavro_reads_it(file: DataFile, count: int) -> None:
        """Another reader takes the container, the schema and the values."""
        schema = _without_logical_types(avro_schema(file))  # whose values Python's dates cannot hold
        header = read_header(content(file))
        for rows, block in read_blocks(content(file), header):
            stream = io.BytesIO(write_long(rows) + block + b"\0")
            records = fastavro.schemaless_reader(
                stream, fastavro.parse_schema({"type": "array", "items": schema}), None
            )
            assert (len(records), stream.read()) == (rows, b"")
            count -= rows
        assert count == 0

    def test_slices_and_nulls_that_hide_values(self, tmp_path):
        """Null lists and structs may have values below them, and slices begin in the middle of a bitmap."""
        schema = schema_from_shorthand(
            {"l": "list<string>", "s": "struct<a: int not null, b: list<int>>", "f": "boolean"}
        )
        kinds = schema_to_arrow(schema)
        texts = pa.ListArray.from_arrays(
            pa.array([0, 2, 3, 5, 5], pa.int32()), pa.array(list("abcde")), mask=pa.array([False, True, False, True])
        )
        inner = pa.ListArray.from_arrays(pa.array([0, 1, 2, 4, 4], pa.int32()), pa.array([1, 2, 3, 4], pa.int32()))
        structs = pa.StructArray.from_arrays(
            [pa.array([1, None, 3, 4], pa.int32()), inner],
            fields=list(kinds.field("s").type),
            mask=pa.array([False, True, False, False]),
        )
        flags = pa.array([True, None, False, True])
        columns = [texts.cast(kinds.field("l").type), structs, flags]
        table = pa.Table.from_arrays(columns, schema=kinds)
        for start in range(4):
            (file,) = write(tmp_path, schema, [table.slice(start, 3)])
            assert back(file, schema) == [
                (None if row["l"] is None else tuple(row["l"]), _struct(row["s"]), row["f"])
                for row in table.slice(start, 3).to_pylist()
            ]

    def test_a_required_column_with_a_null_is_refused(self):
        schema = schema_from_shorthand({"a": "int not null"})
        with pytest.raises(InvalidInputError, match="column 'a' is required, and has a null"):
            encode_rows(schema.as_struct(), [pa.array([1, None], pa.int32())], 2)

    def test_dictionaries_are_written_plain(self, tmp_path):
        schema = schema_from_shorthand({"a": "string"})
        words = pa.array(["x", "y", None, "x"]).dictionary_encode()
        (file,) = write(tmp_path, schema, [pa.Table.from_arrays([words], names=["a"]).cast(_dictionary_of(schema))])
        assert back(file, schema) == [("x",), ("y",), (None,), ("x",)]


def _dictionary_of(schema: Schema) -> pa.Schema:
    return pa.schema([item.with_type(pa.dictionary(pa.int32(), item.type)) for item in schema_to_arrow(schema)])


def _struct(value: Any) -> Any:
    return None if value is None else (value["a"], None if value["b"] is None else tuple(value["b"]))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("items", "values", "type"):
        if isinstance(kept.get(key), dict | list):
            kept[key] = _without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [_without_logical_types(child) for child in kept["fields"]]
    return kept


class TestTypes:
    """Each type is stored as Appendix A says, with the ids of fields, elements, keys and values."""

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("boolean", "boolean"),
            ("int", "int"),
            ("long", "long"),
            ("float", "float"),
            ("double", "double"),
            ("string", "string"),
            ("binary", "bytes"),
            ("date", {"type": "int", "logicalType": "date"}),
            ("time", {"type": "long", "logicalType": "time-micros"}),
            ("timestamp", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}),
            ("timestamptz", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}),
            ("timestamp_ns", {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}),
            ("timestamptz_ns", {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True}),
            ("uuid", {"type": "fixed", "size": 16, "logicalType": "uuid", "name": "uuid_fixed"}),
            ("fixed[3]", {"type": "fixed", "size": 3, "name": "fixed_3"}),
            (
                "decimal(9, 2)",
                {
                    "type": "fixed",
                    "size": 4,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 2,
                    "name": "decimal_9_2",
                },
            ),
            ("list<int not null>", {"type": "array", "items": "int", "element-id": 2}),
            ("map<string, int>", {"type": "map", "values": ["null", "int"], "key-id": 2, "value-id": 3}),
            (
                "map<int, string>",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "k2_v3",
                        "fields": [
                            {"name": "key", "type": "int", "field-id": 2},
                            {"name": "value", "type": ["null", "string"], "default": None, "field-id": 3},
                        ],
                    },
                    "logicalType": "map",
                },
            ),
            (
                "variant",
                {
                    "type": "record",
                    "logicalType": "variant",
                    "name": "r1",
                    "fields": [{"name": "metadata", "type": "bytes"}, {"name": "value", "type": "bytes"}],
                },
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_of_one_column(self, kind, expected):
        (found,) = record_schema(schema_from_shorthand({"c": kind}))["fields"]
        assert found == {"name": "c", "type": ["null", expected], "default": None, "field-id": 1}
        (found,) = record_schema(schema_from_shorthand({"c": f"{kind} not null"}))["fields"]
        assert found == {"name": "c", "type": expected, "field-id": 1}

    def test_names_that_avro_does_not_allow(self, tmp_path):
        schema = schema_from_shorthand({"a b": "int", "a_x20b": "int", "1st": "struct<`x-y`: int>", "é": "int"})
        (file,) = write(tmp_path, schema, [arrow(schema, [(1, 2, (3,), 4)])])
        fields = avro_schema(file)["fields"]
        assert [item["name"] for item in fields] == ["a_x20b", "a_x20b_2", "_1st", "_xE9"]
        assert [item.get("iceberg-field-name") for item in fields] == ["a b", "a_x20b", "1st", "é"]
        assert back(file, schema) == [(1, 2, (3,), 4)]
        assert list(fastavro.reader(io.BytesIO(content(file)))) == [
            {"a_x20b": 1, "a_x20b_2": 2, "_1st": {"x_x2Dy": 3}, "_xE9": 4}
        ]

    def test_a_type_is_named_once(self):
        kinds = {
            "a": "fixed[3]",
            "b": "list<fixed[3]>",
            "c": "decimal(9, 2)",
            "d": "decimal(9, 2)",
            "e": "uuid",
            "f": "uuid",
        }
        written = record_schema(schema_from_shorthand(kinds))
        fastavro.parse_schema(written)  # a second definition would be an error
        assert written["fields"][3]["type"] == ["null", "decimal_9_2"]

    def test_the_header_has_the_schema_of_iceberg_and_the_codec(self, tmp_path):
        schema = schema_from_shorthand({"a": "int"})
        (file,) = write(tmp_path, schema, [arrow(schema, [(1,)])])
        header = read_header(content(file))
        assert header.codec == "deflate"  # what Iceberg calls gzip
        assert Schema.from_dict(json.loads(header.metadata["iceberg.schema"])) == schema

    def test_unknown_columns_are_left_out_and_geometry_is_refused(self, tmp_path):
        schema = schema_from_shorthand({"a": "int", "u": "unknown"})
        (file,) = write(tmp_path, schema, [arrow(schema, [(1, None)])])
        assert [item["name"] for item in avro_schema(file)["fields"]] == ["a"]
        assert back(file, schema) == [(1, None)]
        with pytest.raises(UnsupportedError, match="column 'g' is of type geometry"):
            write(tmp_path, schema_from_shorthand({"g": "geometry"}), [])
        with pytest.raises(UnsupportedError, match="table without columns cannot be written to avro"):
            write(tmp_path, Schema(), [])


class TestStatistics:
    """They are those of a Parquet file with the same rows, without what only a columnar file has."""

    MODES = ("none", "counts", "truncate(3)", "truncate(16)", "full")

    @pytest.mark.services
    @examples(150)
    @given(data=st.data(), mode=st.sampled_from(MODES))
    def test_they_equal_those_of_parquet(self, tmp_path_factory, data, mode):
        schema = data.draw(strategies.schemas())
        assume(t.FixedType(0) not in [found.type for found in schema.fields_by_id.values()])
        rows = [row for row in data.draw(strategies.columns(schema.as_struct(), max_size=8)) if row is not None]
        assume(rows)
        parts = [arrow(schema, rows[:3]), arrow(schema, rows[3:])]
        modes = {"write.metadata.metrics.default": mode}
        folder = tmp_path_factory.mktemp("metrics")
        (ours,) = write(folder, schema, parts, **modes)
        (theirs,) = write(folder, schema, parts, **modes, **{"write.format.default": "parquet"})
        for name in ("record_count", "value_counts", "null_value_counts", "nan_value_counts"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert (ours.lower_bounds, ours.upper_bounds) == (theirs.lower_bounds, theirs.upper_bounds)
        assert (ours.split_offsets, ours.column_sizes) == (None, {})

    def test_texts_that_are_too_long_for_a_footer(self, tmp_path):
        schema = schema_from_shorthand({"a": "string", "b": "binary"})
        rows = [("b" * 9000, b"\xff" * 9000), ("a" * 9000, b"\x00"), (None, None)]
        modes = {"write.metadata.metrics.default": "full"}
        (ours,) = write(tmp_path, schema, [arrow(schema, rows)], **modes)
        (theirs,) = write(tmp_path, schema, [arrow(schema, rows)], **modes, **{"write.format.default": "parquet"})
        assert (ours.lower_bounds, ours.upper_bounds) == (theirs.lower_bounds, theirs.upper_bounds)

    def test_values_that_are_not_numbers_and_zeros(self, tmp_path):
        schema = schema_from_shorthand({"a": "double", "b": "float", "c": "double"})
        nan = float("nan")
        (file,) = write(tmp_path, schema, [arrow(schema, [(0.0, nan, -0.0), (-0.0, nan, nan), (None, nan, 0.0)])])
        assert file.nan_value_counts == {1: 0, 2: 3, 3: 1}
        assert 2 not in file.lower_bounds
        assert file.lower_bounds[1] == np.float64(-0.0).tobytes()
        assert file.upper_bounds[1] == np.float64(0.0).tobytes()


class TestFiles:
    """Rows are flushed in blocks; a file ends at the target size."""

    SCHEMA = schema_from_shorthand({"id": "long", "text": "string"})

    def rows(self, count: int, first: int = 0) -> pa.Table:
        noise = np.random.default_rng(first).integers(0, 1 << 62, count)
        table = pa.table({"id": np.arange(first, first + count), "text": [f"{number:x}" for number in noise]})
        return conform(table, self.SCHEMA, source="a")

    def test_blocks_have_the_size_of_java(self, tmp_path):
        (file,) = write(tmp_path, self.SCHEMA, [self.rows(20_000)])
        data = content(file)
        blocks = list(read_blocks(data, read_header(data)))
        assert sum(count for count, _ in blocks) == 20_000
        assert all(62_000 < len(block) < 66_000 for _, block in blocks[:-1])

    @pytest.mark.services
    def test_files_of_the_target_size(self, tmp_path):
        target = 1 << 18
        files = write(
            tmp_path,
            self.SCHEMA,
            [self.rows(100_000, start) for start in (0, 100_000)],
            **{"write.target-file-size-bytes": str(target)},
        )
        assert all(0.7 * target < file.file_size_in_bytes < 1.3 * target for file in files[:-2])
        assert sum(file.record_count for file in files) == 200_000
        assert all(file.file_size_in_bytes == len(content(file)) for file in files)
        assert [number for file in files for number, _ in back(file, self.SCHEMA)] == list(range(200_000))

    @pytest.mark.parametrize(
        ("codec", "stored"), [("zstd", "zstandard"), ("snappy", "snappy"), ("uncompressed", "null")]
    )
    def test_codecs(self, tmp_path, codec, stored):
        (file,) = write(tmp_path, self.SCHEMA, [self.rows(9)], **{"write.avro.compression-codec": codec})
        assert read_header(content(file)).codec == stored
        assert len(back(file, self.SCHEMA)) == 9

    @pytest.mark.parametrize("codec", ["gzip", "zstd"])
    def test_levels(self, tmp_path, codec):
        sizes = []
        for level in ("1", "9"):
            properties = {"write.avro.compression-codec": codec, "write.avro.compression-level": level}
            (file,) = write(tmp_path, self.SCHEMA, [self.rows(9_000)], **properties)
            sizes.append(file.file_size_in_bytes)
        assert sizes[0] != sizes[1]
        with pytest.raises(InvalidInputError, match=f"compression-level is '99', and {codec} has levels"):
            write(tmp_path, self.SCHEMA, [], **properties | {"write.avro.compression-level": "99"})

    @pytest.mark.costly
    def test_rows_that_shrink_too_well_to_be_read_again_are_refused(self):
        blocks = BlockWriter({}, codec="deflate", name="x")
        with pytest.raises(UnsupportedError, match=r"1 rows of 40000000 bytes shrink to .* choose another codec"):
            blocks.block(1, bytes(40_000_000))
        assert len(BlockWriter({}, codec="null", name="x").block(1, bytes(40_000_000))) > 40_000_000

    @pytest.mark.costly
    def test_a_table_of_wide_rows_is_encoded_in_portions(self, tmp_path):
        schema = schema_from_shorthand({"b": "binary", "d": "decimal(38, 3)"})
        rows = [(bytes([number]) * 3_000_000, Decimal(number)) for number in range(5)]
        (file,) = write(tmp_path, schema, [arrow(schema, rows)])
        assert back(file, schema) == rows
        assert len(list(read_blocks(content(file), read_header(content(file))))) == 5


def test_values_are_those_of_the_array() -> None:
    """A map with text keys is a map of Avro, any other one an array of records: the same bytes."""
    schema = schema_from_shorthand({"m": "map<string, int>"})
    column = array_from_values(schema.fields[0].type, [{"a": 1, "b": None}, {}, None])
    rows = encode_rows(schema.as_struct(), [column], 3).to_pylist()
    assert rows == [b"\x02" + b"\x04" + b"\x02a\x02\x02" + b"\x02b\x00" + b"\x00", b"\x02\x00", b"\x00"]
