"""Statistics of data files: the modes of the table's properties, and numbers that equal those counted by hand."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_iceberg.data.write.metrics import MetricsConfig, leaf_columns
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import array_from_values
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.properties.metrics_mode import MetricsKind, MetricsMode
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.format.values import bytes as values
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from tests.support import strategies
from tests.support.sampling import examples


def arrow(schema: Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    target = schema_to_arrow(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema.fields)
    arrays = [array_from_values(f.type, list(column)) for f, column in zip(schema.fields, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=target)


def write(schema: Schema, parts: Sequence[Sequence[Any]], **properties: str) -> DataFile:
    """Write parts of canonical values as one row group each, into one file in memory."""
    written = {key.replace("_", "."): value for key, value in properties.items()}
    options = WriteOptions.from_properties(written, schema)
    writer = PartitionedWriter(
        load_file_io(),
        schema=schema,
        spec=PartitionSpec(),
        options=options,
        data_location="memory://metrics/data",
        file_prefix="m",
    )
    for part in parts:
        writer.write(arrow(schema, part))
        for inner in writer._writers.values():
            inner.flush()
    (file,) = writer.close()
    load_file_io().delete([file.file_path])
    return file


class TestModes:
    """Modes are none, counts, truncate(length) and full; the default is truncate(16)."""

    @pytest.mark.parametrize(
        ("text", "kind", "length"),
        [
            ("none", MetricsKind.NONE, None),
            ("Counts", MetricsKind.COUNTS, None),
            ("FULL", MetricsKind.FULL, None),
            ("truncate(5)", MetricsKind.TRUNCATE, 5),
            (" Truncate( 16 ) ", MetricsKind.TRUNCATE, 16),
        ],
    )
    def test_a_mode_is_read_in_any_case(self, text, kind, length):
        assert MetricsMode.parse(text) == MetricsMode(kind, length)

    @pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "all"])
    def test_another_word_is_refused(self, text):
        with pytest.raises(InvalidInputError, match=re.escape(f"unknown metrics mode '{text}'")):
            MetricsMode.parse(text)


class TestConfig:
    """A column's property wins over the promotion of sorted columns, that over the default, that over the first 100."""

    schema = schema_from_shorthand({"a": "long", "b": "string", "p": "struct<x: double, y: string>"})

    def config(self, sort_by: Sequence[str] = (), **properties: str) -> dict[str, str]:
        given = {f"write.metadata.metrics.{key.replace('__', '.')}": text for key, text in properties.items()}
        config = MetricsConfig.from_properties(given, self.schema, sort_order_from_shorthand(sort_by, self.schema))
        modes = {name: config.mode(number) for name, number in self.schema.names.items()}
        return {name: mode.kind.value + (f"({mode.length})" if mode.length else "") for name, mode in modes.items()}

    @pytest.mark.parametrize(("properties", "mode"), [({}, "truncate(16)"), ({"default": "counts"}, "counts")])
    def test_the_default_is_for_all_columns(self, properties, mode):
        assert set(self.config(**properties).values()) == {mode}

    def test_a_column_has_its_own_mode_at_any_depth(self):
        modes = self.config(default="none", column__a="full", column__p__y="truncate(4)")
        assert (modes["a"], modes["p.y"], modes["b"]) == ("full", "truncate(4)", "none")

    @pytest.mark.parametrize(
        ("sort_by", "properties", "mode"),
        [
            ("a", {"default": "none"}, "truncate(16)"),
            ("a", {"default": "full"}, "full"),
            ("bucket(4, a)", {"default": "none"}, "none"),
            ("a", {"default": "none", "column__a": "counts"}, "counts"),
        ],
        ids=["promoted", "a stronger default is kept", "by a hash", "its own mode wins"],
    )
    def test_a_sorted_column(self, sort_by, properties, mode):
        assert self.config([sort_by], **properties)["a"] == mode

    def test_a_mode_that_cannot_be_read_is_logged_and_passed_over(self, caplog):
        assert self.config(column__a="lots")["a"] == "truncate(16)"
        assert "write.metadata.metrics.column.a is ignored: unknown metrics mode 'lots'" in caplog.text

    def test_a_column_that_is_not_there_is_logged(self, caplog):
        self.config(column__gone="full")
        assert "write.metadata.metrics.column.gone names a column that the table does not have" in caplog.text

    def test_from_column_101_on_nothing_is_kept(self):
        wide = schema_from_shorthand({f"c{number}": "int" for number in range(1, 103)})
        config = MetricsConfig.from_properties({}, wide)
        kinds = [config.mode(number).kind for number in (1, 100, 101, 102)]
        assert kinds == [MetricsKind.TRUNCATE, MetricsKind.TRUNCATE, MetricsKind.NONE, MetricsKind.NONE]

    def test_the_limit_of_columns_is_a_property(self):
        config = self.config(**{"max-inferred-column-defaults": "2"})
        assert (config["b"], config["p.x"]) == ("truncate(16)", "none")

    def test_columns_at_the_top_are_counted_before_those_inside_of_others(self):
        columns = {"s": "struct<t: struct<deep: int>, x: int>", "l": "list<int>", "a": "int", "b": "int"}
        schema, found = schema_from_shorthand(columns), []
        for limit in range(1, 6):
            limits = {"write.metadata.metrics.max-inferred-column-defaults": str(limit)}
            config = MetricsConfig.from_properties(limits, schema)
            kept = {name for name, number in schema.names.items() if config.mode(number).kind is MetricsKind.TRUNCATE}
            found.append(kept & {"s.t.deep", "s.x", "l.element", "a", "b"})
        added = [found[0], *(after - before for before, after in itertools.pairwise(found))]
        assert added == [{"a"}, {"b"}, {"s.x"}, {"s.t.deep"}, {"l.element"}]


class TestLeafColumns:
    """A Parquet file has a column for every field without fields, in depth-first order."""

    def test_they_come_in_the_order_of_the_file(self):
        schema = schema_from_shorthand({"p": "struct<x: int, l: list<struct<u: int, v: int>>>", "m": "map<int, int>"})
        found = {".".join(column.path): column.repeated for column in leaf_columns(schema)}
        repeated = ["p.l.element.u", "p.l.element.v", "m.key", "m.value"]
        assert list(found.items()) == [("p.x", False), *((name, True) for name in repeated)]
        assert leaf_columns(schema_from_shorthand({"a": "unknown"})) == ()


def one_column(type_text: str, *parts: Sequence[Any], mode: str = "truncate(16)") -> tuple[Any, ...]:
    """Return counts and bounds of a column whose row groups hold the given values."""
    schema = schema_from_shorthand({"c": type_text})
    file = write(schema, [[(value,) for value in part] for part in parts], write_metadata_metrics_default=mode)
    type_ = schema.fields[0].type
    lower, upper = (file.lower_bounds or {}).get(1), (file.upper_bounds or {}).get(1)
    decoded = [None if bound is None else values.from_bytes(type_, bound) for bound in (lower, upper)]
    return ((file.value_counts or {}).get(1), (file.null_value_counts or {}).get(1), *decoded)


class TestBounds:
    """Bounds take in all values but null and NaN, over all row groups of a file."""

    @pytest.mark.parametrize(
        ("kind", "parts", "expected"),
        [
            ("long", [[5, None], [-3], [None]], (4, 2, -3, 5)),
            ("string", [[None, None]], (2, 2, None, None)),
            ("float", [[math.nan, None]], (2, 1, None, None)),
            ("string", [["a" * 20, "b" * 20]], (2, 0, "a" * 16, "b" * 15 + "c")),
            ("string", [["\U0010ffff" * 17]], (1, 0, "\U0010ffff" * 16, None)),
            ("binary", [[b"\xff" * 17]], (1, 0, b"\xff" * 16, None)),
            ("string", [["z", "é", "\U0001f600", "\uffff"]], (4, 0, "z", "\U0001f600")),
        ],
        ids=["row groups", "nulls", "NaN", "long text", "text to the last", "bytes to the last", "code points"],
    )
    def test_counts_and_bounds(self, kind, parts, expected):
        """Long text is cut and the upper bound raised; one that cannot be raised is left out."""
        assert one_column(kind, *parts) == expected

    def test_nan_is_counted_and_is_no_bound(self):
        schema = schema_from_shorthand({"c": "double"})
        file = write(schema, [[(math.nan,), (1.0,)], [(None,), (math.nan,)]])
        assert (file.value_counts, file.null_value_counts, file.nan_value_counts) == ({1: 4}, {1: 1}, {1: 2})
        assert file.lower_bounds == file.upper_bounds == {1: values.to_bytes(t.DoubleType(), 1.0)}

    @pytest.mark.parametrize("zeros", [(0.0,), (-0.0,), (0.0, -0.0), (-0.0, 0.0)])
    def test_a_zero_takes_in_the_other_zero(self, zeros):
        _, _, lower, upper = one_column("double", zeros)
        assert (math.copysign(1, lower), math.copysign(1, upper)) == (-1, 1)

    @pytest.mark.parametrize("position", [0, 1, 2])
    def test_values_too_long_for_the_footer_have_bounds_all_the_same(self, position):
        parts = [["b", "c"], ["d"], ["e"]]
        parts[position].append("a" + "x" * 5000)
        assert one_column("string", *parts)[2:] == ("a" + "x" * 15, "e")
        parts[position][-1] = "z" * 5000
        assert one_column("string", *parts)[2:] == ("b", "z" * 15 + "{")

    def test_full_keeps_all_counts_no_bounds_and_none_nothing(self):
        assert one_column("string", ["a" * 40], mode="full")[2:] == ("a" * 40, "a" * 40)
        assert one_column("long", [1, None], mode="counts") == (2, 1, None, None)
        schema = schema_from_shorthand({"c": "long"})
        file = write(schema, [[(1,)]], write_metadata_metrics_default="none")
        assert (file.column_sizes, file.value_counts, file.lower_bounds) == ({}, {}, {})

    def test_fields_in_lists_and_maps_have_sizes_only(self):
        schema = schema_from_shorthand({"l": "list<int>", "m": "map<int, double>"})
        file = write(schema, [[((1, 2), {1: math.nan})]])
        assert set(file.column_sizes or ()) == {3, 4, 5}
        assert (file.value_counts, file.nan_value_counts, file.lower_bounds) == ({}, {}, {})


def leaf_values(rows: Sequence[Sequence[Any]], schema: Schema, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values of a field in no list or map, None below a null."""
    for row in rows:
        value: Any = row
        fields: Sequence[t.NestedField] = schema.fields
        for name in path:
            position = next(index for index, child in enumerate(fields) if child.name == name)
            value = None if value is None else value[position]
            type_ = fields[position].type
            fields = type_.fields if isinstance(type_, t.StructType) else ()
        yield value


def order_key(type_: Any, value: Any) -> Any:
    if isinstance(type_, t.StringType):
        return value.encode("utf-8")
    return value.bytes if isinstance(type_, t.UUIDType) else value


@st.composite
def schemas_and_rows(draw: st.DrawFn) -> tuple[Schema, list[list[tuple[Any, ...]]]]:
    schema = draw(strategies.schemas(depth=2))
    assume(t.FixedType(0) not in [column.type for column in leaf_columns(schema)])  # parquet has no such type
    row = st.tuples(*(strategies._maybe(child.type, child.required) for child in schema.fields))
    return schema, draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=3))


class TestAgainstCountingByHand:
    """What is taken while writing equals what one finds by looking at every value."""

    @pytest.mark.services
    @examples(120)
    @given(schemas_and_rows(), st.sampled_from(("truncate(2)", "truncate(16)", "full")))
    def test_counts_and_bounds_are_those_of_the_rows(self, case, mode):
        schema, parts = case
        file = write(schema, parts, write_metadata_metrics_default=mode)
        rows = [row for part in parts for row in part]
        assert file.record_count == len(rows)
        length = MetricsMode.parse(mode).length
        for column in leaf_columns(schema):
            if column.repeated:
                assert column.field_id not in (file.value_counts or {})
                continue
            self.check(file, column.field_id, column.type, list(leaf_values(rows, schema, column.path)), length)

    def check(self, file: DataFile, key: int, type_: Any, found: list[Any], length: int | None) -> None:
        present = [value for value in found if value is not None]
        numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        assert (file.value_counts or {})[key] == len(found)
        assert (file.null_value_counts or {})[key] == len(found) - len(present)
        nan = (file.nan_value_counts or {}).get(key)
        assert nan == (len(present) - len(numbers) if isinstance(type_, t.FloatType | t.DoubleType) else None)
        low, high = None, None
        if numbers:
            low = values.lower_bound(type_, min(numbers, key=lambda value: order_key(type_, value)), length)
            high = values.upper_bound(type_, max(numbers, key=lambda value: order_key(type_, value)), length)
        encoded = [None if bound is None else values.to_bytes(type_, bound) for bound in (low, high)]
        assert [(file.lower_bounds or {}).get(key), (file.upper_bounds or {}).get(key)] == encoded

    def test_decimals_of_every_physical_type_compare_as_numbers(self):
        for precision in (9, 18, 19, 38):
            type_ = t.DecimalType(precision, 2)
            low, middle, high = (values.from_json(type_, text) for text in ("-300.25", "-1.00", "2.50"))
            assert one_column(str(type_), [middle, high, low])[2:] == (low, high)
