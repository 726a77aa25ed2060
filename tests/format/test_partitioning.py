"""Partition specs: JSON, types, paths, shorthand, and rows by partition."""

import math
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format.arrow.types import array_from_values, values_from_array
from airflow_iceberg.format.partitions.grouping import group_by_partition
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, spec_from_shorthand
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms import transform as tr
from airflow_iceberg.format.types import DateType, DecimalType, IntegerType, NestedField, StringType, UnknownType
from airflow_iceberg.format.values.bytes import canonical_key
from tests.support import strategies
from tests.support.sampling import examples

UNPARTITIONED = PartitionSpec()
SCHEMA = schema_from_shorthand({
    "id": "long not null", "ts": "timestamptz", "s": "string", "price": "decimal(9, 2)", "d": "double",
    "address": "struct<country: string, pos: struct<x: int>>", "tags": "list<string>",
})  # fmt: skip


def partition_field(source_id=1, field_id=1000, name="x", transform=None, **more):
    return PartitionField(
        source_id=source_id, field_id=field_id, name=name, transform=transform or tr.IdentityTransform(), **more
    )


class TestJson:
    """A spec is an object with an id and its fields."""

    JSON: ClassVar[Mapping[str, Any]] = {
        "spec-id": 3,
        "fields": [
            {"name": "ts_day", "transform": "day", "source-id": 2, "field-id": 1000},
            {"name": "id_bucket", "transform": "bucket[16]", "source-id": 1, "field-id": 1001},
        ],
    }

    def test_it_is_written_as_it_was_read_in_the_order_of_java(self):
        spec = PartitionSpec.from_dict(self.JSON)
        assert spec.to_dict() == self.JSON
        assert [list(item) for item in spec.fields_to_list()] == [["name", "transform", "source-id", "field-id"]] * 2
        assert spec.fields[1] == partition_field(1, 1001, "id_bucket", tr.BucketTransform(16))

    def test_field_ids_are_in_all_fields_or_in_none(self):
        fields = [{key: value for key, value in item.items() if key != "field-id"} for item in self.JSON["fields"]]
        spec = PartitionSpec.from_fields(fields, spec_id=7)
        assert (spec.spec_id, [child.field_id for child in spec.fields]) == (7, [1000, 1001])
        first, second = self.JSON["fields"]
        without = {key: value for key, value in second.items() if key != "field-id"}
        with pytest.raises(FormatError, match=r"field-id is missing in 1 of 2 fields in 'partition-spec' of f\.json"):
            PartitionSpec.from_fields([first, without], path="f.json")

    @pytest.mark.parametrize(
        ("transform", "sources", "source_ids"),
        [("zorder(4)", {"source-id": 1}, None), ("bucket[4]", {"source-ids": [1, 2]}, (1, 2))],
    )
    def test_unknown_transforms_and_those_of_several_columns_are_kept(self, transform, sources, source_ids):
        field = {"name": "z", "transform": transform, **sources, "field-id": 1000}
        spec = PartitionSpec.from_fields([field])
        assert (spec.fields[0].transform, spec.fields[0].source_ids) == (tr.UnknownTransform(transform), source_ids)
        assert spec.fields_to_list() == [field]

    def test_a_single_id_in_source_ids_is_a_source_id(self):
        spec = PartitionSpec.from_fields([{"name": "b", "transform": "day", "source-ids": [2], "field-id": 1000}])
        assert spec.fields_to_list() == [{"name": "b", "transform": "day", "source-id": 2, "field-id": 1000}]

    def test_what_is_malformed_names_the_place(self):
        with pytest.raises(FormatError) as caught:
            PartitionSpec.from_dict({"spec-id": 0, "fields": [{"name": "a"}]}, path="f", where="partition-specs[1]")
        assert str(caught.value) == "missing field 'partition-specs[1].fields[0].source-id' of f"
        with pytest.raises(FormatError, match=r"invalid transform 'bucket\[0\]'"):
            PartitionSpec.from_fields([{"name": "a", "transform": "bucket[0]", "source-id": 1}])


class TestLegality:
    """Names and field ids are unique in a spec."""

    @pytest.mark.parametrize(("fields", "message"), [
        ((partition_field(1, 1000), partition_field(2, 1001)), "partition name 'x' is used twice in spec 0"),
        ((partition_field(1, 1000, "a"), partition_field(2, 1000, "b")), "partition field id 1000 is used twice"),
        ((partition_field(name=""),), "a partition name is empty"),
    ])  # fmt: skip
    def test_names_and_ids(self, fields, message):
        with pytest.raises(InvalidInputError, match=message):
            PartitionSpec(0, fields)

    def test_only_void_fields_are_no_partitioning_and_ids_make_no_difference(self):
        assert UNPARTITIONED.is_unpartitioned
        assert PartitionSpec(1, (partition_field(transform=tr.VoidTransform()),)).is_unpartitioned
        assert not PartitionSpec(1, (partition_field(),)).is_unpartitioned
        spec = PartitionSpec(0, (partition_field(field_id=1000),))
        assert spec.same_fields(PartitionSpec(4, (partition_field(field_id=1009),)))
        assert not spec.same_fields(PartitionSpec(0, (partition_field(name="y"),)))


class TestPartitionType:
    """The tuple has one optional field per partition field, with the ids and names of the spec."""

    def test_the_types_are_those_of_the_transforms(self):
        spec = spec_from_shorthand(["day(ts)", "bucket(4, id)", "s", "void(price)"], SCHEMA)
        assert spec.partition_type(SCHEMA).fields == (
            NestedField(id=1000, name="ts_day", type=DateType()),
            NestedField(id=1001, name="id_bucket", type=IntegerType()),
            NestedField(id=1002, name="s", type=StringType()),
            NestedField(id=1003, name="price_null", type=SCHEMA.find_field("price").type),
        )

    def test_of_a_dropped_column_only_the_transforms_with_one_result_type_keep_it(self):
        fields = (
            partition_field(99, 1000, "a", tr.DayTransform()),
            partition_field(99, 1001, "b", tr.BucketTransform(4)),
            partition_field(99, 1002, "c", tr.IdentityTransform()),
            partition_field(99, 1003, "d", tr.UnknownTransform("z")),
        )
        types = [child.type for child in PartitionSpec(1, fields).partition_type(SCHEMA).fields]
        assert types == [DateType(), IntegerType(), UnknownType(), StringType()]


class TestPartitionPath:
    """Paths are made of human strings, URL-encoded as in Java."""

    def test_each_field_is_a_folder(self):
        spec = spec_from_shorthand(["day(ts)", "bucket(16, id)"], SCHEMA)
        assert spec.partition_path((17486, 3), SCHEMA) == "ts_day=2017-11-16/id_bucket=3"

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(None, "s=null"), ("a/b c=d%", "s=a%2Fb+c%3Dd%25"), ("*-._~", "s=*-._%7E"), ("é", "s=%C3%A9"), ("", "s=")],
    )
    def test_strings_are_encoded(self, value, expected):
        assert spec_from_shorthand(["s"], SCHEMA).partition_path((value,), SCHEMA) == expected

    def test_names_are_encoded_too(self):
        spec = spec_from_shorthand(["id as `my id/x`"], SCHEMA)
        assert spec.partition_path((1,), SCHEMA) == "my+id%2Fx=1"

    @pytest.mark.parametrize(("term", "value", "expected"), [
        ("year(ts)", -1, "ts_year=1969"), ("month(ts)", -1, "ts_month=1969-12"),
        ("hour(ts)", -1, "ts_hour=1969-12-31-23"), ("ts", 0, "ts=1970-01-01T00%3A00%3A00%2B00%3A00"),
        ("price", Decimal("1.50"), "price=1.50"), ("d", -0.0, "d=-0.0"), ("void(id)", None, "id_null=null"),
    ])  # fmt: skip
    def test_other_types(self, term, value, expected):
        assert spec_from_shorthand([term], SCHEMA).partition_path((value,), SCHEMA) == expected


class TestShorthand:
    """Specs as people write them."""

    @pytest.mark.parametrize(("term", "name", "transform", "column"), [
        ("day(ts)", "ts_day", "day", "ts"), ("days(ts)", "ts_day", "day", "ts"),
        ("months(ts)", "ts_month", "month", "ts"), ("years(ts)", "ts_year", "year", "ts"),
        ("hours(ts)", "ts_hour", "hour", "ts"), ("bucket(16, id)", "id_bucket", "bucket[16]", "id"),
        ("bucket(id, 16)", "id_bucket", "bucket[16]", "id"), ("bucket[16](id)", "id_bucket", "bucket[16]", "id"),
        ("BUCKET( 16 ,id )", "id_bucket", "bucket[16]", "id"), ("truncate(4, s)", "s_trunc", "truncate[4]", "s"),
        ("identity(s)", "s", "identity", "s"), ("s", "s", "identity", "s"), ("void(s)", "s_null", "void", "s"),
        ("day(ts) as tag", "tag", "day", "ts"), ("s AS land", "land", "identity", "s"),
        ("address.country", "address.country", "identity", "address.country"),
        ("bucket(4, address.pos.x)", "address.pos.x_bucket", "bucket[4]", "address.pos.x"),
        ("`s`", "s", "identity", "s"),
    ])  # fmt: skip
    def test_terms_and_the_names_that_java_gives(self, term, name, transform, column):
        (found,) = spec_from_shorthand([term], SCHEMA).fields
        assert (found.name, str(found.transform), found.source_id) == (name, transform, SCHEMA.names[column])

    def test_field_ids_count_from_1000_or_the_highest_that_is_there(self):
        spec = spec_from_shorthand(["day(ts)", "bucket(16, id)"], SCHEMA, spec_id=2)
        assert (spec.spec_id, [child.field_id for child in spec.fields]) == (2, [1000, 1001])
        ready = partition_field(1, 1005, "id_x", tr.BucketTransform(4))
        spec = spec_from_shorthand([ready, "day(ts)"], SCHEMA)
        assert spec.fields[0] is ready
        assert spec.fields[1].field_id == 1006

    def test_columns_with_odd_names_are_found(self):
        schema = schema_from_shorthand({"day(x)": "int", "a as b": "int", "c.d": "string"})
        spec = spec_from_shorthand(["day(x)", "a as b", "truncate(2, c.d)"], schema)
        assert [child.name for child in spec.fields] == ["day(x)", "a as b", "c.d_trunc"]

    @pytest.mark.parametrize(("terms", "message"), [
        (["zorder(id)"], "unknown transform 'zorder' in 'zorder(id)' (allowed: identity, bucket(N, column)"),
        (["bucket(id)"], "expected a number and a column in 'bucket(id)', like bucket(16, id)"),
        (["bucket(0, id)"], "invalid transform 'bucket[0]'"),
        (["bucket(4, d)"], "partition 'd_bucket': transform bucket[4] is not defined for column 'd' (double)"),
        (["hour(s)"], "transform hour is not defined for column 's' (string)"),
        (["address"], "partition 'address': transform identity is not defined for column 'address' (struct<"),
        (["tags.element"], "partition 'tags.element': column 'tags.element' is inside the list<string>"),
        (["day(ts) as id"], "partition name 'id' is the name of another column; add 'as <name>'"),
        (["s as id"], "partition name 'id' is the name of another column"),
        (["bucket(4, id)", "bucket(8, id)"], "partition name 'id_bucket' is used twice"),
        (["day(ts)", "hour(ts)"], "partition 'ts_hour' is redundant: 'ts_day' is of the same column"),
        (["s", "identity(s) as t"], "partition 't' is redundant: 's' is of the same column"),
        ([""], "expected a partition term like 'day(ts)', got ''"),
        ("day(ts)", "expected a list of partition terms, got the text 'day(ts)'"),
    ])  # fmt: skip
    def test_what_cannot_be_is_refused(self, terms, message):
        with pytest.raises(InvalidInputError) as caught:
            spec_from_shorthand(terms, SCHEMA)
        assert message in str(caught.value)

    def test_an_unknown_column_lists_the_columns(self):
        with pytest.raises(NotFoundError, match=r"no column 'nope' \(columns: id, ts, s, price"):
            spec_from_shorthand(["day(nope)"], SCHEMA)

    def test_different_buckets_of_one_column_are_fine_with_names(self):
        spec = spec_from_shorthand(["bucket(4, id)", "bucket(8, id) as id_eight"], SCHEMA)
        assert len(spec.fields) == 2


def naive_groups(table, spec, schema):
    """Group row by row with the scalar transforms: the rule that the columns must follow."""
    groups = {}
    columns = []
    for child in spec.fields:
        path = [schema.fields_by_id[child.source_id], *schema.ancestors(child.source_id)][::-1]
        values = values_from_array(path[0].type, table.column(path[0].name))
        for outer, inner in pairwise(path):
            place = outer.type.fields.index(inner)
            values = [None if value is None else value[place] for value in values]
        columns.append([child.transform.apply(value, path[-1].type) for value in values])
    for row, key in enumerate(zip(*columns, strict=True)):
        groups.setdefault(canonical_key(key), []).append(row)
    return groups


def leaves_precision(table, spec, schema):
    """Tell whether truncation makes a decimal of more digits than its type has."""
    for child, column in zip(spec.fields, table.columns, strict=True):
        type_ = schema.fields_by_id[child.source_id].type
        if isinstance(type_, DecimalType) and isinstance(child.transform, tr.TruncateTransform):
            results = [child.transform.apply(value, type_) for value in values_from_array(type_, column)]
            limit = Decimal(10) ** (type_.precision - type_.scale)
            if any(result is not None and result.copy_abs() >= limit for result in results):
                return True
    return False


def check_groups(table, spec, schema):
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    found = [
        (canonical_key(key), rows.column("row").to_pylist()) for key, rows in group_by_partition(numbered, spec, schema)
    ]
    assert found == list(naive_groups(table, spec, schema).items())


class TestRowsByPartition:
    """Every partition comes once, in the order of its first row, with its rows in their order."""

    @pytest.mark.costly
    @examples(200)
    @given(st.data())
    def test_for_every_type_and_transform(self, data):
        fields, columns, partition_fields = [], [], []
        size = data.draw(st.integers(1, 15))
        for number in range(1, data.draw(st.integers(1, 3)) + 1):
            transform = data.draw(strategies.transforms())
            type_ = data.draw(strategies.primitive_types().filter(transform.can_transform))
            few = data.draw(st.lists(st.one_of(st.none(), strategies.values(type_)), min_size=1, max_size=4))
            fields.append(NestedField(id=number, name=f"c{number}", type=type_))
            columns.append(array_from_values(type_, [data.draw(st.sampled_from(few)) for _ in range(size)]))
            partition_fields.append(partition_field(number, 999 + number, f"p{number}", transform))
        schema, spec = Schema(tuple(fields)), PartitionSpec(0, tuple(partition_fields))
        table = pa.table(columns, names=[child.name for child in fields])
        cut = data.draw(st.integers(0, size))
        chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
        if leaves_precision(table, spec, schema):
            with pytest.raises(InvalidInputError, match="cannot hold"):
                check_groups(chunked, spec, schema)
        else:
            check_groups(chunked, spec, schema)

    def test_nested_columns_of_null_structs_are_null(self):
        rows = [
            {"address": {"country": "de", "pos": {"x": 1}}},
            {"address": None},
            {"address": {"country": None, "pos": None}},
            {"address": {"country": "de", "pos": {"x": 1}}},
        ]
        table = pa.Table.from_pylist([{"id": 1, **row} for row in rows], schema_to_arrow(SCHEMA))
        check_groups(table, spec_from_shorthand(["address.country", "address.pos.x"], SCHEMA), SCHEMA)
        check_groups(table.slice(1), spec_from_shorthand(["bucket(4, address.country)"], SCHEMA), SCHEMA)

    def test_nan_is_one_partition_and_the_two_zeros_are_two(self):
        values = [math.nan, 0.0, -0.0, float(np.float64(np.nan)), None, 0.0]
        schema = schema_from_shorthand({"d": "double"})
        table = pa.table({"d": pa.array(values, pa.float64(), from_pandas=False)})
        spec = spec_from_shorthand(["d"], schema)
        groups = [(str(key[0]), rows.num_rows) for key, rows in group_by_partition(table, spec, schema)]
        assert groups == [("nan", 2), ("0.0", 2), ("-0.0", 1), ("None", 1)]

    @pytest.mark.services
    def test_many_rows_and_partitions(self):
        rng = np.random.default_rng(5)
        size = 60_000
        table = pa.table(
            {
                "id": pa.array(rng.integers(-(2**62), 2**62, size)),
                "ts": pa.array(rng.integers(-(10**15), 10**15, size), pa.timestamp("us", tz="UTC")),
                "s": pa.array([f"k{number}" for number in rng.integers(0, 500, size)]),
            }
        )
        for terms in (["day(ts)"], ["s"], ["bucket(7, id)", "truncate(2, s)"], ["hour(ts)", "s"], ["id"]):
            check_groups(table, spec_from_shorthand(terms, SCHEMA), SCHEMA)

    def test_rows_that_are_sorted_already_are_not_copied(self):
        table = pa.table({"id": pa.array([1, 2, 3, 4]), "s": pa.array(["b", "b", "a", "a"])})
        groups = list(group_by_partition(table, spec_from_shorthand(["s"], SCHEMA), SCHEMA))
        assert [key for key, _ in groups] == [("b",), ("a",)]
        buffers = [rows.column("id").chunk(0).buffers()[1].address for _, rows in groups]
        assert set(buffers) == {table.column("id").chunk(0).buffers()[1].address}

    def test_an_unpartitioned_table_is_one_partition_and_an_empty_one_none(self):
        table = pa.table({"id": [1, 2]})
        assert list(group_by_partition(table, UNPARTITIONED, SCHEMA)) == [((), table)]
        table = schema_to_arrow(SCHEMA).empty_table()
        assert list(group_by_partition(table, UNPARTITIONED, SCHEMA)) == []
        assert list(group_by_partition(table, spec_from_shorthand(["s"], SCHEMA), SCHEMA)) == []

    def test_void_fields_stay_in_the_tuple_as_null(self):
        spec = spec_from_shorthand(["void(id)", "s"], SCHEMA)
        table = pa.table({"id": [1, 2], "s": ["a", "b"]})
        assert [key for key, _ in group_by_partition(table, spec, SCHEMA)] == [(None, "a"), (None, "b")]

    @pytest.mark.parametrize(("field", "message"), [
        (
            partition_field(1, 1000, "z", tr.UnknownTransform("zorder")),
            "cannot write with partition 'z': unknown tra",
        ),
        (partition_field(99, 1000, "z"), "partition 'z': no column with field id 99"),
    ])  # fmt: skip
    def test_unknown_transforms_and_dropped_columns_cannot_be_written_with(self, field, message):
        with pytest.raises(InvalidInputError, match=message):
            list(group_by_partition(pa.table({"id": [1]}), PartitionSpec(1, (field,)), SCHEMA))

    def test_a_truncated_decimal_that_leaves_its_precision_is_refused(self):
        table = pa.table({"price": pa.array([Decimal("-9999999.99")], pa.decimal128(9, 2))})
        with pytest.raises(InvalidInputError) as caught:
            list(group_by_partition(table, spec_from_shorthand(["truncate(50, price)"], SCHEMA), SCHEMA))
        expected = "partition 'price_trunc': truncate[50] gives -10000000.00, which type decimal(9, 2) cannot hold"
        assert str(caught.value) == expected
