"""Iceberg types and values as Arrow's, and back."""

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values, type_to_arrow, value_to_scalar, values_from_array
from airflow_iceberg.format.schemas.arrow import schema_from_arrow, schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from tests.support import strategies
from tests.support.sampling import examples
from tests.support.strategies import is_canonical_equal


class TestTypesToArrow:
    """Each Iceberg type has one Arrow type."""

    @pytest.mark.parametrize(("type_", "expected"), [
        (t.BooleanType(), pa.bool_()), (t.IntegerType(), pa.int32()), (t.LongType(), pa.int64()),
        (t.FloatType(), pa.float32()), (t.DoubleType(), pa.float64()), (t.DateType(), pa.date32()),
        (t.TimeType(), pa.time64("us")), (t.TimestampType(), pa.timestamp("us")),
        (t.TimestamptzType(), pa.timestamp("us", tz="UTC")), (t.TimestampNsType(), pa.timestamp("ns")),
        (t.TimestamptzNsType(), pa.timestamp("ns", tz="UTC")), (t.StringType(), pa.string()),
        (t.UUIDType(), pa.binary(16)), (t.FixedType(3), pa.binary(3)), (t.BinaryType(), pa.binary()),
        (t.DecimalType(9, 2), pa.decimal128(9, 2)), (t.GeometryType(), pa.binary()), (t.UnknownType(), pa.null()),
    ], ids=str)  # fmt: skip
    def test_primitive_types(self, type_, expected):
        assert type_to_arrow(type_) == expected

    def test_a_variant_is_its_two_binaries(self):
        pair = [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
        assert type_to_arrow(t.VariantType()) == pa.struct(pair)
        values = [(b"\x01\x00\x00", b"\x00"), None]
        assert values_from_array(t.VariantType(), array_from_values(t.VariantType(), values)) == values

    def test_field_ids_stand_at_every_depth(self):
        schema = schema_from_shorthand(
            {"l": "list<struct<a: int not null>>", "m": "map<string, list<int>>", "s": "struct<x: long>"}
        )
        found = {}

        def collect(field: pa.Field) -> None:
            found[int(field.metadata[b"PARQUET:field_id"])] = (field.name, field.nullable)
            kind = field.type
            if pa.types.is_map(kind):
                collect(kind.key_field)
                collect(kind.item_field)
            elif pa.types.is_list(kind):
                collect(kind.value_field)
            elif pa.types.is_struct(kind):
                for index in range(kind.num_fields):
                    collect(kind.field(index))

        for field in schema_to_arrow(schema):
            collect(field)
        assert found == {child.id: (child.name, not child.required) for child in t.walk_fields(schema.fields)}

    def test_without_field_ids_there_is_no_metadata(self):
        arrow = schema_to_arrow(schema_from_shorthand({"a": "list<int>"}), with_field_ids=False)
        assert arrow.field("a").metadata is None
        assert arrow.field("a").type.value_field.metadata is None


class TestTypesFromArrow:
    """The least Iceberg type that holds every value of an Arrow type."""

    @pytest.mark.parametrize(("arrow_type", "expected"), [
        (pa.int8(), t.IntegerType()), (pa.uint16(), t.IntegerType()), (pa.uint32(), t.LongType()),
        (pa.float16(), t.FloatType()), (pa.large_string(), t.StringType()), (pa.string_view(), t.StringType()),
        (pa.large_binary(), t.BinaryType()), (pa.dictionary(pa.int32(), pa.string()), t.StringType()),
        (pa.date64(), t.DateType()), (pa.time32("ms"), t.TimeType()), (pa.timestamp("s"), t.TimestampType()),
        (pa.timestamp("ms", tz="Europe/Berlin"), t.TimestamptzType()), (pa.timestamp("ns"), t.TimestampNsType()),
        (pa.timestamp("ns", tz="UTC"), t.TimestamptzNsType()), (pa.binary(16), t.FixedType(16)),
        (pa.uuid(), t.UUIDType()), (pa.decimal256(38, 4), t.DecimalType(38, 4)), (pa.null(), t.UnknownType()),
    ], ids=str)  # fmt: skip
    def test_primitive_types(self, arrow_type, expected):
        assert schema_from_arrow(pa.schema([("c", arrow_type)])).find_field("c").type == expected

    @pytest.mark.parametrize(
        "arrow_type",
        [pa.uint64(), pa.time64("ns"), pa.duration("s"), pa.decimal256(39, 0), pa.decimal128(3, -2)],
        ids=str,
    )
    def test_what_iceberg_cannot_hold_names_the_column(self, arrow_type):
        schema = pa.schema([("s", pa.struct([("c", arrow_type)]))])
        with pytest.raises(InvalidInputError) as caught:
            schema_from_arrow(schema)
        assert str(caught.value) == f"column 's.c': Iceberg has no type for Arrow's {arrow_type}"

    def test_all_kinds_of_lists_are_lists(self):
        for arrow_type in (pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 3)):
            schema = schema_from_arrow(pa.schema([("l", arrow_type)]))
            assert schema.find_field("l.element").type == t.IntegerType()

    def test_field_ids_are_kept_when_all_are_there(self):
        schema = Schema((t.NestedField(id=17, name="a", type=t.LongType(), doc="words"),))
        assert schema_from_arrow(schema_to_arrow(schema)) == schema

    def test_field_ids_that_are_known_only_in_part_are_all_given_afresh(self):
        with_id = pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": b"17"})
        schema = schema_from_arrow(pa.schema([with_id, pa.field("b", pa.int64())]))
        assert schema.names == {"a": 1, "b": 2}

    @pytest.mark.costly
    @given(strategies.schemas())
    def test_there_and_back_only_the_uuid_becomes_16_bytes(self, schema):
        back = schema_from_arrow(schema_to_arrow(schema))
        assert back.names == schema.names
        for field_id, child in back.fields_by_id.items():
            before = schema.fields_by_id[field_id]
            assert child.required == before.required
            if isinstance(before.type, t.UUIDType):
                assert child.type == t.FixedType(16)
            elif isinstance(before.type, t.PrimitiveType):
                assert child.type == before.type
            else:
                assert type(child.type) is type(before.type)


class TestValues:
    """Canonical values survive the way through Arrow."""

    @pytest.mark.costly
    @examples(100)
    @given(st.data())
    def test_columns_of_every_type(self, data):
        type_ = data.draw(strategies.types(depth=2))
        values = data.draw(strategies.columns(type_, max_size=6))
        column = array_from_values(type_, values)
        assert column.type == type_to_arrow(type_)
        assert_same(values_from_array(type_, column), values)
        assert_same(values_from_array(type_, column[1:]), values[1:])
        assert_same(values_from_array(type_, pa.chunked_array([column[:1], column[1:]])), values)

    @pytest.mark.costly
    @examples(100)
    @given(st.data())
    def test_scalars_of_every_type(self, data):
        type_ = data.draw(strategies.types(depth=1))
        value = data.draw(st.one_of(st.none(), strategies.values(type_)))
        scalar = value_to_scalar(type_, value)
        assert scalar.type == type_to_arrow(type_)
        assert_same(values_from_array(type_, pa.repeat(scalar, 1)), [value])

    def test_another_unit_is_cast_and_a_null_struct_is_not_a_struct_of_nulls(self):
        assert values_from_array(t.TimestampType(), pa.array([1], pa.timestamp("ms"))) == [1000]
        assert values_from_array(t.LongType(), pa.array([1], pa.int32())) == [1]
        type_ = schema_from_shorthand({"s": "struct<a: int>"}).find_field("s").type
        assert values_from_array(type_, pa.array([None, {"a": None}], type_to_arrow(type_))) == [None, (None,)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(map(is_canonical_equal, found, expected)), (found, expected)


class TestImports:
    """The core can be imported where there is no pyarrow, and quickly."""

    @pytest.mark.costly
    def test_no_module_of_this_part_imports_pyarrow_or_numpy(self):
        modules = ["schemas.shorthand", "values.bytes", "transforms.transform", "partitions.spec", "metadata.updates"]
        code = "import sys\n" + "".join(f"import airflow_iceberg.format.{name}\n" for name in modules)
        code += "print(sorted({'pyarrow', 'numpy', 'mmh3', 'airflow'} & set(sys.modules)))"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == "[]"
