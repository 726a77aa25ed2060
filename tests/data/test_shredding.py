"""Shredded variants: columns of their own are put back into the value."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.variant_shredding import read_variant
from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import ListType, LongType, NestedField, StringType, VariantType
from airflow_iceberg.format.values.variant import encode_object, encode_primitive
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support.builders import add_file, job_work, new_table
from tests.support.data_files import read_file
from tests.support.variants import Primitive, decode, encode_names, plain

NAMES = encode_names(["a", "b", "c"])
IDS = {"a": 0, "b": 1, "c": 2}
TEXT = encode_primitive(StringType(), "text")
LONG = encode_primitive(LongType(), 7)


def group(typed: pa.DataType | None) -> pa.DataType:
    fields = [pa.field("value", pa.binary())]
    return pa.struct(fields if typed is None else [*fields, pa.field("typed_value", typed)])


def column(typed: pa.DataType | None, rows: list[Any]) -> pa.Array:
    kind = pa.struct([pa.field("metadata", pa.binary()), *group(typed).fields])
    return pa.array([None if row is None else {"metadata": NAMES, **row} for row in rows], kind)


def read(typed: pa.DataType | None, rows: list[Any]) -> list[Any]:
    found = read_variant(column(typed, rows))
    values = values_from_array(VariantType(), found)
    return [None if value is None else plain(decode(*value)) for value in values]


class TestValuesThatAreNotShredded:
    """They are taken as they are."""

    def test_without_a_typed_column(self):
        assert read(None, [{"value": TEXT}, None, {"value": b"\x00"}]) == ["text", None, None]

    def test_beside_a_typed_column_of_another_type(self):
        rows = [{"value": TEXT, "typed_value": None}, {"value": None, "typed_value": 3}, None]
        assert read(pa.int64(), rows) == ["text", 3, None]

    def test_the_slice_of_a_column(self):
        rows = [{"value": TEXT, "typed_value": None}, {"value": None, "typed_value": 3}]
        sliced = read_variant(column(pa.int64(), rows).slice(1))
        assert [decode(*value) for value in values_from_array(VariantType(), sliced)] == [Primitive(LongType(), 3)]


class TestPrimitiveValues:
    """The type of the column is the type of the value."""

    @pytest.mark.parametrize(
        ("kind", "value", "header"),
        [
            (pa.bool_(), True, 1),
            (pa.int8(), -3, 3),
            (pa.int16(), 300, 4),
            (pa.int32(), 70_000, 5),
            (pa.int64(), 2**40, 6),
            (pa.float64(), 1.5, 7),
            (pa.decimal128(9, 2), Decimal("1.50"), 8),
            (pa.decimal128(18, 2), Decimal("-1.50"), 9),
            (pa.decimal128(38, 2), Decimal("1.50"), 10),
            (pa.date32(), 19_000, 11),
            (pa.timestamp("us", "UTC"), 5, 12),
            (pa.timestamp("us"), 5, 13),
            (pa.float32(), 1.5, 14),
            (pa.binary(), b"\x00", 15),
            (pa.string(), "x" * 64, 16),
            (pa.time64("us"), 5, 17),
            (pa.timestamp("ns", "UTC"), 5, 18),
            (pa.timestamp("ns"), 5, 19),
            (pa.binary(16), b"\x01" * 16, 20),
        ],
    )
    def test_each_type(self, kind, value, header):
        found = read_variant(column(kind, [{"value": None, "typed_value": value}]))
        ((_, data),) = values_from_array(VariantType(), found)
        assert data[0] >> 2 == header
        node = decode(NAMES, data)
        assert isinstance(node, Primitive)
        assert node.value == (value if header != 20 else node.value)

    def test_a_type_that_no_variant_has_is_refused(self):
        with pytest.raises(UnsupportedError, match="has a column of type duration"):
            read(pa.duration("us"), [{"value": None, "typed_value": 1}])

    def test_two_values_are_an_error(self):
        with pytest.raises(FormatError, match="stored twice"):
            read(pa.int64(), [{"value": TEXT, "typed_value": 1}])


class TestObjects:
    """Fields with columns and the others make one object."""

    KIND = pa.struct([pa.field("a", group(pa.int64())), pa.field("b", group(pa.string()))])

    @pytest.mark.parametrize(
        ("rest", "a", "b", "expected"),
        [
            (None, (None, 1), (None, "x"), {"a": 1, "b": "x"}),
            (None, (None, None), (b"\x00", None), {"b": None}),
            (encode_object(IDS, {"c": LONG}), (TEXT, None), (None, "x"), {"a": "text", "b": "x", "c": 7}),
        ],
        ids=["all fields have columns", "a field of which nothing is set is missing", "fields without columns"],
    )
    def test_fields(self, rest, a, b, expected):
        typed = {name: dict(zip(("value", "typed_value"), pair)) for name, pair in (("a", a), ("b", b))}
        assert read(self.KIND, [{"value": rest, "typed_value": typed}]) == [expected]

    def test_what_is_no_object_comes_from_the_value(self):
        assert read(self.KIND, [{"value": TEXT, "typed_value": None}]) == ["text"]

    def test_a_field_in_both_is_an_error(self):
        typed = {"a": {"value": None, "typed_value": 1}, "b": {"value": None, "typed_value": None}}
        with pytest.raises(FormatError, match="field 'a' of a variant is stored twice"):
            read(self.KIND, [{"value": encode_object(IDS, {"a": LONG}), "typed_value": typed}])


class TestArrays:
    """Each item is a pair of columns again."""

    def test_items(self):
        kind = pa.list_(pa.field("element", group(pa.int64())))
        items = [{"value": None, "typed_value": 1}, {"value": TEXT, "typed_value": None}]
        rows = [{"value": None, "typed_value": items}, {"value": TEXT, "typed_value": None}]
        assert read(kind, [*rows, {"value": None, "typed_value": []}]) == [[1, "text"], "text", []]


class TestInAFile:
    """Shredded and plain files of one table give the same values, nested ones too."""

    def test_rows_of_a_parquet_file(self, tmp_path):
        kind = pa.struct([pa.field("metadata", pa.binary()), *group(TestObjects.KIND).fields])
        typed = {"a": {"value": None, "typed_value": 1}, "b": {"value": None, "typed_value": None}}
        rows = [
            {"metadata": NAMES, "value": None, "typed_value": typed},
            None,
            {"metadata": NAMES, "value": TEXT, "typed_value": None},
        ]
        fields = [
            pa.field("v", kind, metadata={"PARQUET:field_id": "1"}),
            pa.field(
                "l", pa.list_(pa.field("element", kind, metadata={"PARQUET:field_id": "3"})),
                metadata={"PARQUET:field_id": "2"},
            ),
        ]  # fmt: skip
        table = pa.table([pa.array(rows, kind), pa.array([rows, None, []], fields[1].type)], schema=pa.schema(fields))
        pq.write_table(table, tmp_path / "f", row_group_size=2)
        file = DataFile(file_path=str(tmp_path / "f"), file_format="parquet", record_count=3, file_size_in_bytes=1)
        variant = VariantType()
        listed = ListType(element_id=3, element=variant, element_required=False)
        schema = Schema((NestedField(id=1, name="v", type=variant), NestedField(id=2, name="l", type=listed)))
        batches = list(read_file(FsspecFileIO(), file, schema=schema))
        found = [row for batch in batches for row in batch.to_pylist()]
        expected = [{"a": 1}, None, "text"]
        assert [value_of(row["v"]) for row in found] == expected
        assert [row["l"] and [value_of(item) for item in row["l"]] for row in found] == [expected, None, []]


ROWS_WITH_NULLS = [
    None,
    {"metadata": NAMES, "value": b"\x00", "typed_value": None},
    {"metadata": NAMES, "value": None, "typed_value": None},
    {
        "metadata": NAMES,
        "value": None,
        "typed_value": {"a": {"value": None, "typed_value": 1}, "b": {"value": b"\x00", "typed_value": None}},
    },
    None,
]


class TestNullsInAFileThatIsRewritten:
    """Nulls of the row, of the variant and of a field come through a copy-on-write delete and a compaction."""

    @pytest.fixture(params=[(True, True), (True, False), (False, False)], ids=["shredded", "optional", "plain"])
    def table(self, request, tmp_path):
        is_shredded, is_required = request.param
        parts = [pa.field("metadata", pa.binary(), nullable=not is_required)]
        parts += group(TestObjects.KIND).fields if is_shredded else [pa.field("value", pa.binary())]
        columns = {"id": pa.int64(), "v": pa.struct(parts)}
        fields = [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for number, (name, kind) in enumerate(columns.items(), 1)
        ]
        rows = (
            ROWS_WITH_NULLS
            if is_shredded
            else [row and {"metadata": NAMES, "value": row["value"]} for row in ROWS_WITH_NULLS]
        )
        file = tmp_path / "theirs.parquet"
        pq.write_table(pa.table([pa.array(range(5)), pa.array(rows, fields[1].type)], schema=pa.schema(fields)), file)
        table = new_table(tmp_path, schema={"id": "long", "v": "variant"}, properties={"format-version": "3"})
        add_file(table, file, record_count=5)
        return table

    def read(self, table):
        rows = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
        return {row["id"]: row["v"] and plain(decode(row["v"]["metadata"], row["v"]["value"])) for row in rows}

    def test_a_copy_on_write_delete(self, table):
        before = self.read(table)
        nulls = table.scan("v is null").to_arrow().num_rows
        result = delete(job_work(table), DeleteRequest(predicate="id = 4", mode="copy-on-write"))
        assert result.deleted_records == 1
        assert self.read(table) == {number: before[number] for number in range(4)}
        assert table.scan("v is null").to_arrow().num_rows == nulls - 1 == 1

    @pytest.mark.parametrize("strategy", ["binpack", "sort", "zorder"])
    def test_a_compaction(self, table, strategy):
        before = self.read(table)
        sort_by = () if strategy == "binpack" else ("id",)
        request = CompactRequest(strategy=strategy, sort_by=sort_by, options={"rewrite-all": True})
        assert compact(job_work(table), request).outcome == "committed"
        assert self.read(table) == before


def value_of(row: Any) -> Any:
    return None if row is None else plain(decode(row["metadata"], row["value"]))
