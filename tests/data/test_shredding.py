"""Shredded variants: columns of their own are put back into the value."""

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.cast.rows import check_columns
from airflow_iceberg.data.variant_shredding import read_variant
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    UnknownType,
    VariantType,
)
from airflow_iceberg.format.values.valid_variant import check_variant
from airflow_iceberg.format.values.variant import encode_array, encode_object, encode_primitive
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.storage.stores.fsspec_io import FsspecFileIO
from tests.support.builders import add_file, job_work, new_table
from tests.support.data_files import read_file
from tests.support.sampling import SEED, sampled
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


class TestColumnsOfOthers:
    """Columns that no variant should have give the values that they have, or our own errors."""

    @pytest.mark.parametrize(
        ("kind", "value", "header"),
        [
            (pa.uint8(), 255, 4),
            (pa.uint16(), 65_535, 5),
            (pa.uint32(), 2**32 - 1, 6),
            (pa.uint64(), 2**63 - 1, 6),
            (pa.uint64(), 2**64 - 1, 10),
            (pa.uint8(), 0, 4),
        ],
    )
    def test_integers_without_a_sign(self, kind, value, header):
        """There are none in variants: they are of the next wider type, which has them all."""
        ((_, data),) = values_from_array(
            VariantType(), read_variant(column(kind, [{"value": None, "typed_value": value}]))
        )
        check_variant(NAMES, data)
        assert (plain(decode(NAMES, data)), data[0] >> 2) == (value, header)

    NO_GROUP = pa.struct([("other", pa.int32())])

    @pytest.mark.parametrize(
        ("typed", "message"),
        [
            (pa.list_(pa.int64()), "unexpected type int64 of an element of a variant"),
            (pa.list_(NO_GROUP), "unexpected type struct<other: int32> of an element of a variant"),
            (pa.list_(pa.struct([])), "of an element of a variant"),
            (pa.struct([("a", pa.int64())]), "unexpected type int64 of field 'a' of a variant"),
            (pa.struct([("a", NO_GROUP)]), "of field 'a' of a variant"),
            (pa.struct([("a", group(pa.int64())), ("a", group(pa.int64()))]), "two columns for a field"),
            (pa.list_(pa.struct([("value", pa.int8())])), "unexpected type int8 of the value"),
            (pa.map_(pa.string(), pa.int8()), "has a column of type map"),
            (pa.list_(group(pa.time64("ns"))), r"has a column of type time64\[ns\]"),
        ],
    )
    def test_columns_that_are_no_values(self, typed, message):
        kind = pa.struct([pa.field("metadata", pa.binary()), *group(typed).fields])
        for rows in ([], [None], [{"metadata": NAMES, "value": TEXT, "typed_value": None}]):
            with pytest.raises((FormatError, UnsupportedError), match=message):
                read_variant(pa.array(rows, kind) if typed.num_fields != 2 else pa.nulls(1, kind))
        with pytest.raises(InvalidInputError, match=f"cannot become variant: .*{message}"):
            check_columns(pa.schema({"v": kind}), schema_from_shorthand({"v": "variant"}), source="rows")

    @pytest.mark.parametrize(
        "kind",
        [
            pa.struct([("value", pa.binary())]),
            pa.struct([("metadata", pa.binary())]),
            pa.struct([("metadata", pa.int32()), ("value", pa.binary())]),
            pa.struct([("metadata", pa.binary()), ("value", pa.int32())]),
            pa.struct([("metadata", pa.binary()), ("metadata", pa.binary()), ("value", pa.binary())]),
            pa.int32(),
        ],
        ids=str,
    )
    def test_what_is_no_variant(self, kind):
        with pytest.raises(FormatError, match="unexpected type"):
            read_variant(pa.nulls(1, kind))

    def test_very_many_levels(self):
        typed = pa.int64()
        for _ in range(60):
            typed = pa.list_(group(typed))
        with pytest.raises(UnsupportedError, match="more than 50 levels"):
            read(typed, [])

    def test_a_text_that_is_no_utf_8(self):
        typed = pa.array([b"\xff"]).view(pa.string())
        array = pa.StructArray.from_arrays([pa.array([NAMES]), typed], names=["metadata", "typed_value"])
        with pytest.raises(FormatError, match="a value of a variant is none of type string"):
            read_variant(array)

    def test_what_lies_below_a_null_is_no_value(self):
        typed = pa.array([b"\xff", b"a"]).view(pa.string())
        parts = [pa.array([NAMES, NAMES]), pa.array([b"?", None]), typed]
        mask = pa.array([True, False])
        array = pa.StructArray.from_arrays(parts, names=["metadata", "value", "typed_value"], mask=mask)
        assert [item and plain(decode(*item)) for item in values_from_array(VariantType(), read_variant(array))] == [
            None,
            "a",
        ]

    def test_a_field_twice_among_those_without_columns(self):
        twice = bytearray(encode_object(IDS, {"b": LONG, "c": TEXT}))
        twice[3] = twice[2]
        typed = {"a": {"value": None, "typed_value": 1}}
        with pytest.raises(FormatError, match="an object in a variant has a field twice"):
            read(pa.struct([("a", group(pa.int64()))]), [{"value": bytes(twice), "typed_value": typed}])

    def test_a_field_that_metadata_do_not_name(self):
        kind = pa.struct([("z", group(pa.int64()))])
        with pytest.raises(FormatError, match="field 'z' of a variant is not in its metadata"):
            read(kind, [{"value": None, "typed_value": {"z": {"value": None, "typed_value": 1}}}])

    def test_without_a_column_of_other_values(self):
        """Where all values have the type of their column, `value` may be missing."""
        kind = pa.struct(
            [("metadata", pa.binary()), ("typed_value", pa.list_(pa.struct([("typed_value", pa.int64())])))]
        )
        rows = [{"metadata": NAMES, "typed_value": [{"typed_value": 1}, {"typed_value": None}]}, None]
        found = values_from_array(VariantType(), read_variant(pa.array(rows, kind)))
        assert [item and plain(decode(*item)) for item in found] == [[1, None], None]


TYPED = [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.binary()]


@pytest.mark.generated
class TestGeneratedValues:
    """Values that are shredded by any columns are put together again."""

    def test_every_value_by_every_columns(self):
        chance = random.Random(f"shredding {SEED}")
        for _ in range(sampled(400)):
            typed = self.columns(chance, 0)
            values = [self.value(chance, 0) for _ in range(5)]
            rows = [{"metadata": NAMES, **self.shred(value, typed)} for value in values]
            found = read_variant(column(typed, rows))
            for (metadata, data), value in zip(values_from_array(VariantType(), found), values, strict=True):
                check_variant(metadata, data)
                assert plain(decode(metadata, data)) == value

    def columns(self, chance: random.Random, level: int) -> pa.DataType:
        kind = chance.choice(["object", "array", "plain"]) if level < 3 else "plain"
        if kind == "object":
            names = chance.sample(["a", "b", "c"], chance.randint(1, 3))
            return pa.struct([(name, group(self.columns(chance, level + 1))) for name in names])
        return pa.list_(group(self.columns(chance, level + 1))) if kind == "array" else chance.choice(TYPED)

    def value(self, chance: random.Random, level: int) -> Any:
        kind = chance.choice(["object", "array", "plain"]) if level < 3 else "plain"
        if kind == "object":
            names = chance.sample(["a", "b", "c"], chance.randint(0, 3))
            return {name: self.value(chance, level + 1) for name in names}
        if kind == "array":
            return [self.value(chance, level + 1) for _ in range(chance.randint(0, 3))]
        return chance.choice([None, True, 7, -1, 1.5, "text", "Ä" * 70, b"\x00"])

    def shred(self, value: Any, typed: pa.DataType) -> dict[str, Any]:
        """Return value and typed_value of a value, by the rules of Parquet's Variant Shredding."""
        if isinstance(value, dict) and pa.types.is_struct(typed):
            fields = {
                field.name: self.shred(value[field.name], field.type.field("typed_value").type)
                if field.name in value
                else {"value": None, "typed_value": None}
                for field in typed
            }
            rest = {name: item for name, item in value.items() if name not in fields}
            return {"value": self.encoded(rest) if rest else None, "typed_value": fields}
        if isinstance(value, list) and pa.types.is_list(typed):
            inner = typed.value_type.field("typed_value").type
            return {"value": None, "typed_value": [self.shred(item, inner) for item in value]}
        if KINDS.get(typed) is type(value):
            return {"value": None, "typed_value": value}
        return {"value": self.encoded(value), "typed_value": None}

    def encoded(self, value: Any) -> bytes:
        if isinstance(value, dict):
            return encode_object(IDS, {name: self.encoded(item) for name, item in value.items()})
        if isinstance(value, list):
            return encode_array([self.encoded(item) for item in value])
        return encode_primitive(OF_PYTHON[type(value)], value)


OF_PYTHON: dict[type, IcebergType] = {
    **{type(None): UnknownType(), bool: BooleanType(), int: LongType()},
    **{float: DoubleType(), str: StringType(), bytes: BinaryType()},
}
KINDS = dict(zip(TYPED, (int, str, float, bool, bytes), strict=True))


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
