"""Which type has a new column? One answer, whatever door it comes through and whatever format says it, at any depth."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.data.cast.new_columns import with_new_columns
from airflow_iceberg.data.write.variant_footer import annotated
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.arrow.types import EXTENSION_KEY, VARIANT
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.sources.avro_schema import arrow_schema as avro_columns
from airflow_iceberg.jobs.spark.types import arrow_schema as spark_columns
from airflow_iceberg.table import Table
from tests.format.test_valid_variant import EMPTY
from tests.support.append_steps import commit_append, plan_append
from tests.support.builders import new_catalog, new_table

V3 = {"format-version": "3"}
PLAIN = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def marked(name: str, kind: pa.DataType, extension: bytes) -> pa.Field:
    return pa.field(name, kind, metadata={EXTENSION_KEY: extension})


class Opaque(pa.ExtensionType):
    """A type of somebody else, stored as texts."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "somebody.else")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


ARROW: dict[str, tuple[pa.Field, str]] = {
    "uuid": (pa.field("c", pa.uuid()), "uuid"),
    "uuid by its mark": (marked("c", pa.binary(16), b"arrow.uuid"), "uuid"),
    "sixteen bytes": (pa.field("c", pa.binary(16)), "fixed[16]"),
    "another mark": (marked("c", pa.binary(8), b"arrow.uuid"), "fixed[8]"),
    "variant": (marked("c", PLAIN, VARIANT), "variant"),
    "variant by its other name": (marked("c", PLAIN, b"parquet.variant"), "variant"),
    "json": (pa.field("c", pa.json_()), "string"),
    "a type of others": (pa.field("c", Opaque()), "string"),
    "dictionary": (pa.field("c", pa.dictionary(pa.int8(), pa.string())), "string"),
    "runs": (pa.field("c", pa.run_end_encoded(pa.int32(), pa.int64())), "long"),
    "runs of a dictionary": (
        pa.field("c", pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.float32()))),
        "float",
    ),
    "view": (pa.field("c", pa.string_view()), "string"),
    "large": (pa.field("c", pa.large_binary()), "binary"),
    "nanoseconds": (pa.field("c", pa.timestamp("ns")), "timestamp_ns"),
    "instants": (pa.field("c", pa.timestamp("ms", "Europe/Berlin")), "timestamptz"),
    "byte": (pa.field("c", pa.uint8()), "int"),
    "half": (pa.field("c", pa.float16()), "float"),
    "nothing": (pa.field("c", pa.null()), "unknown"),
}
NESTED: dict[str, tuple[Callable[[pa.Field], pa.DataType], str]] = {
    "top": (lambda child: child.type, "c"),
    "struct": (lambda child: pa.struct([child.with_name("x")]), "c.x"),
    "list": (lambda child: pa.list_(child), "c.element"),
    "large list": (lambda child: pa.large_list(child), "c.element"),
    "map": (lambda child: pa.map_(pa.string(), child), "c.value"),
    "deep": (lambda child: pa.list_(pa.struct([pa.field("x", pa.map_(pa.string(), child))])), "c.element.x.value"),
}


def type_of(schema: Schema, name: str) -> str:
    return str(schema.find_field(name).type)


@pytest.mark.parametrize("nesting", NESTED)
@pytest.mark.parametrize("kind", ARROW)
class TestArrow:
    """`add_columns`, `union_by_name`, and `Table.create` of an Arrow schema."""

    def test_each_door(self, tmp_path, kind, nesting):
        child, expected = ARROW[kind]
        around, name = NESTED[nesting]
        field = pa.field("c", around(child), metadata=child.metadata if nesting == "top" else None)
        schema = pa.schema([field])
        assert type_of(schema_from_shorthand(schema), name) == expected
        grown = with_new_columns(Schema(), [schema], last_column_id=0, specs=(), format_version=3)
        assert type_of(grown, name) == expected
        if nesting != "deep":
            return
        made = Table.create(new_catalog(tmp_path), "db.made", schema=schema, properties=V3)
        assert type_of(made.schema(), name) == expected
        (tmp_path / "b").mkdir()
        table = new_table(tmp_path / "b", properties=V3)
        table.alter([{"union_by_name": schema}])
        assert type_of(table.schema(), name) == expected


class TestUnknown:
    """A column of nulls becomes whatever the first values are, from version 3 on."""

    @pytest.mark.parametrize("kind", [kind for kind in ARROW if kind != "nothing"])
    @pytest.mark.parametrize("nesting", ["top", "struct", "list", "map"])
    def test_each_type(self, kind, nesting):
        child, expected = ARROW[kind]
        around, _ = NESTED[nesting]
        field = pa.field("c", around(child), metadata=child.metadata if nesting == "top" else None)
        schema = schema_from_shorthand({"id": "long", "c": "unknown"})
        found = with_new_columns(schema, [pa.schema([field])], last_column_id=2, specs=(), format_version=3)
        assert [item.id for item in found.fields] == [1, 2]
        assert type_of(found, NESTED[nesting][1]) == expected

    def test_rows(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "u": "unknown", "w": "unknown"}, properties=V3)
        table.append(pa.table({"id": [1], "u": pa.nulls(1), "w": pa.nulls(1)}))
        value = {"metadata": EMPTY, "value": b"\x0c\x07"}
        fields = [pa.field("id", pa.int64()), marked("u", PLAIN, VARIANT), pa.field("w", pa.list_(pa.int32()))]
        rows = pa.table([pa.array([2]), pa.array([value], PLAIN), pa.array([[3]])], schema=pa.schema(fields))
        table.append(rows, schema_evolution="add_columns")
        assert [type_of(table.schema(), name) for name in ("u", "w")] == ["variant", "list<int>"]
        found = table.scan().to_arrow().sort_by("id").to_pylist()
        assert found == [{"id": 1, "u": None, "w": None}, {"id": 2, "u": value, "w": [3]}]


def loaded(table: Table, path: Path) -> Table:
    """Append a file with new columns, as a job does."""
    plan = plan_append(table, Source.from_files(str(path)), schema_evolution="add_columns")
    result = run_local(plan, table.io, threads=1)
    result.raise_for_error()
    commit_append(table, plan, result)
    return table.refresh()


def in_all_places(kind: pa.DataType, value: Any) -> pa.Table:
    stored = pa.array([value], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    inner = pa.ExtensionArray.from_storage(kind, stored) if isinstance(kind, pa.BaseExtensionType) else stored
    columns = {
        "t": inner,
        "s": pa.StructArray.from_arrays([inner], names=["x"]),
        "l": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner),
        "m": pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), inner),
    }
    return pa.table({"id": pa.array([1], pa.int64()), **columns})


PLACES = ("t", "s.x", "l.element", "m.value")


def check(table: Table, expected: str, value: Any) -> None:
    assert [type_of(table.schema(), place) for place in PLACES] == [expected] * 4
    (row,) = table.scan().to_arrow().to_pylist()
    assert [row["t"], row["s"]["x"], row["l"][0], dict(row["m"])["k"]] == [value] * 4


class TestParquet:
    """Loads, and tables that are made of files."""

    @pytest.mark.parametrize("store_schema", [True, False])
    def test_uuids(self, tmp_path, store_schema):
        pq.write_table(in_all_places(pa.uuid(), UUID.bytes), tmp_path / "a.parquet", store_schema=store_schema)
        check(loaded(new_table(tmp_path), tmp_path / "a.parquet"), "uuid", UUID.bytes)

    def test_int96(self, tmp_path):
        """Spark and Hive mean instants, at every depth; in a column that is there, what the column says."""
        rows = in_all_places(pa.timestamp("us"), 1_000_000)
        pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
        table = loaded(new_table(tmp_path), tmp_path / "a.parquet")
        assert [type_of(table.schema(), place) for place in PLACES] == ["timestamptz"] * 4
        instant = table.scan().to_arrow()["t"][0].as_py()
        check(table, "timestamptz", instant)
        (tmp_path / "b").mkdir()
        schema = {"id": "long", "t": "timestamp", "s": "struct<x: timestamp>", "l": "list<timestamp>"}
        local = new_table(tmp_path / "b", schema={**schema, "m": "map<string, timestamp>"})
        check(loaded(local, tmp_path / "a.parquet"), "timestamp", instant.replace(tzinfo=None))

    def test_variants(self, tmp_path):
        value = {"metadata": EMPTY, "value": b"\x0c\x07"}
        pq.write_table(in_all_places(PLAIN, value), tmp_path / "a.parquet", store_schema=False)
        paths = [("t",), ("s", "x"), ("l", "list", "element"), ("m", "key_value", "value")]
        (tmp_path / "a.parquet").write_bytes(annotated((tmp_path / "a.parquet").read_bytes(), paths))
        check(loaded(new_table(tmp_path, properties=V3), tmp_path / "a.parquet"), "variant", value)

    @pytest.mark.parametrize("kind", ["uuid", "timestamptz", "variant"])
    def test_a_table_of_files(self, tmp_path, kind):
        source = tmp_path / "old"
        source.mkdir()
        arrow, value = {
            "uuid": (pa.uuid(), UUID.bytes),
            "timestamptz": (pa.timestamp("us"), 5),
            "variant": (PLAIN, {"metadata": EMPTY, "value": b"\x0c\x07"}),
        }[kind]
        path = source / "a.parquet"
        pq.write_table(
            in_all_places(arrow, value), path, store_schema=False, use_deprecated_int96_timestamps=kind == "timestamptz"
        )
        if kind == "variant":
            paths = [("t",), ("s", "x"), ("l", "list", "element"), ("m", "key_value", "value")]
            path.write_bytes(annotated(path.read_bytes(), paths))
        table = Table.snapshot_table(new_catalog(tmp_path), "db.snap", source.as_uri(), properties=V3)
        assert [type_of(table.schema(), place) for place in PLACES] == [kind] * 4
        assert table.scan().count() == 1


class TestOrc:
    """What attributes of Iceberg say, and without them what Iceberg Java takes it for."""

    def file(self, path: Path, kind: pa.DataType, value: Any, **attributes: str) -> Path:
        metadata = {f"iceberg.{name.replace('_', '-')}": text for name, text in attributes.items()}
        item = pa.field("x", kind, metadata=metadata)
        map_ = pa.map_(pa.string(), item.with_name("value"))
        kinds = {"s": pa.struct([item]), "l": pa.list_(item.with_name("element")), "m": map_}
        fields = [pa.field("id", pa.int64()), item.with_name("t")]
        schema = pa.schema([*fields, *(pa.field(name, kind) for name, kind in kinds.items())])
        rows = in_all_places(kind, value)
        columns = [rows.column(0), rows.column(1), *(pa.array(rows[name].to_pylist(), kinds[name]) for name in kinds)]
        orc.write_table(pa.table(columns, schema=schema), path)
        return path

    @pytest.mark.parametrize("zone", [None, "UTC"])
    @pytest.mark.parametrize("unit", [None, "MICROS", "NANOS"])
    @pytest.mark.parametrize("version", ["2", "3"])
    def test_timestamps(self, tmp_path, zone, unit, version):
        attributes = {} if unit is None else {"timestamp_unit": unit}
        path = self.file(tmp_path / "a.orc", pa.timestamp("ns", zone), 1_000_000, **attributes)
        table = new_table(tmp_path, properties={"format-version": version})
        expected = "timestamptz" if zone else "timestamp"
        if unit == "NANOS" and version == "2":
            with pytest.raises(InvalidInputError, match=f"type {expected}_ns .* needs format version 3"):
                loaded(table, path)
            assert len(table.refresh().schema().fields) == 1
            return
        loaded(table, path)
        column = table.refresh().scan().to_arrow()["t"]
        assert column.cast(pa.int64()).to_pylist() == [1_000_000 if unit == "NANOS" else 1000]
        check(table, f"{expected}_ns" if unit == "NANOS" else expected, column[0].as_py())

    def test_a_column_that_is_there_takes_its_unit(self, tmp_path):
        path = self.file(tmp_path / "a.orc", pa.timestamp("ns"), 1_000_001)
        schema = {"id": "long", "t": "timestamp_ns", "s": "struct<x: timestamp_ns>", "l": "list<timestamp_ns>"}
        table = new_table(tmp_path, schema={**schema, "m": "map<string, timestamp_ns>"}, properties=V3)
        loaded(table, path)
        assert table.scan().to_arrow()["t"].cast(pa.int64()).to_pylist() == [1_000_001]
        (tmp_path / "b").mkdir()
        with pytest.raises(InvalidInputError, match=r"column 't', row 1 of .* does not fit timestamp"):
            loaded(new_table(tmp_path / "b", properties=V3), path)

    @pytest.mark.parametrize(
        ("kind", "value", "attributes", "expected", "found"),
        [
            (pa.int64(), 3_600_000_000, {"long_type": "TIME"}, "time", 3_600_000_000),
            (pa.int64(), 3_600_000_000, {"long_type": "LONG"}, "long", 3_600_000_000),
            (pa.binary(), UUID.bytes, {"binary_type": "UUID"}, "uuid", UUID.bytes),
            (pa.binary(), b"abc", {"binary_type": "FIXED", "length": "3"}, "fixed[3]", b"abc"),
            (pa.binary(), b"abc", {"binary_type": "FIXED", "length": "much"}, "binary", b"abc"),
            (pa.binary(), b"abc", {}, "binary", b"abc"),
            (
                PLAIN,
                {"metadata": EMPTY, "value": b"\x0c\x07"},
                {"struct_type": "VARIANT"},
                "variant",
                {"metadata": EMPTY, "value": b"\x0c\x07"},
            ),
        ],
    )
    def test_other_attributes(self, tmp_path, kind, value, attributes, expected, found):
        path = self.file(tmp_path / "a.orc", kind, value, **attributes)
        table = loaded(new_table(tmp_path, properties=V3), path)
        if expected == "time":
            assert table.scan().to_arrow()["t"].cast(pa.int64()).to_pylist() == [found]
            found = table.scan().to_arrow()["t"][0].as_py()
        check(table, expected, found)


class TestAvroAndSpark:
    """Their schemas say uuid and variant at every depth, too."""

    def test_uuids_of_avro(self, tmp_path):
        def one(name: str, kind: Any) -> dict[str, Any]:
            return {"name": name, "type": kind}

        as_text = {"type": "string", "logicalType": "uuid"}
        as_bytes = {"type": "fixed", "name": "u16", "size": 16, "logicalType": "uuid"}
        for number, kind in enumerate((as_text, as_bytes)):
            value: Any = UUID.bytes if kind is as_bytes else UUID
            again = "u16" if kind is as_bytes else kind
            record = {"type": "record", "name": "inner", "fields": [one("x", ["null", again])]}
            columns = [one("id", "long"), one("t", ["null", kind]), one("s", record)]
            columns += [one("l", {"type": "array", "items": again}), one("m", {"type": "map", "values": again})]
            path = tmp_path / f"{number}.avro"
            row = {"id": 1, "t": value, "s": {"x": value}, "l": [value], "m": {"k": value}}
            with path.open("wb") as handle:
                fastavro.writer(handle, {"type": "record", "name": "row", "fields": columns}, [row])
            (tmp_path / str(number)).mkdir()
            check(loaded(new_table(tmp_path / str(number)), path), "uuid", UUID.bytes)

    def test_variants(self, tmp_path):
        parts = [{"name": "metadata", "type": "bytes"}, {"name": "value", "type": "bytes"}]
        variant = {"type": "record", "name": "v", "logicalType": "variant", "fields": parts}
        fields = [
            {"name": "c", "type": ["null", variant]},
            {"name": "l", "type": {"type": "array", "items": {**variant, "name": "w"}}},
        ]
        of_avro = avro_columns({"type": "record", "name": "row", "fields": fields})
        listed = {"type": "array", "elementType": "variant", "containsNull": True}
        columns = [{"name": "c", "type": "variant"}, {"name": "l", "type": listed}]
        of_spark = spark_columns({"type": "struct", "fields": columns})
        for number, found in enumerate((of_avro, of_spark)):
            (tmp_path / str(number)).mkdir()
            made = Table.create(new_catalog(tmp_path / str(number)), "db.t", schema=found, properties=V3)
            grown = with_new_columns(Schema(), [found], last_column_id=0, specs=(), format_version=3)
            for schema in (made.schema(), grown):
                assert [type_of(schema, name) for name in ("c", "l.element")] == ["variant", "variant"]
