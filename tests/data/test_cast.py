"""Rows that come in take the shape of the table: by name, without loss, and with errors that say where to look."""

import datetime as dt
import math
import struct
import uuid
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_iceberg.data.cast.rows import check_columns, conform
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.arrow.types import array_from_values, values_from_array
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.types import ListType, LongType, NestedField
from tests.support import strategies
from tests.support.sampling import examples


def cast(array: pa.Array | pa.ChunkedArray, type_text: str) -> pa.ChunkedArray:
    table = conform(pa.table({"c": array}), schema_from_shorthand({"c": type_text}), source="a.parquet")
    table.validate(full=True)
    assert table.schema.equals(schema_to_arrow(schema_from_shorthand({"c": type_text})), check_metadata=True)
    return table.column("c")


def refusal(array: pa.Array | pa.ChunkedArray, type_text: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        cast(array, type_text)
    return str(caught.value)


def refusal_of(columns: dict[str, Any], schema: dict[str, Any], **options: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        conform(pa.table(columns), schema_from_shorthand(schema), source="a.parquet", **options)
    return str(caught.value)


SCHEMA = {"id": "long not null", "name": "string", "p": "struct<x: double, y: double not null>"}


class TestColumnsAreMatchedByName:
    """Names are matched case-sensitively at every level; the result has the table's order."""

    def test_the_order_of_the_source_does_not_matter(self):
        table = conform(pa.table({"name": ["a"], "id": [1]}), schema_from_shorthand(SCHEMA), source="a.parquet")
        assert table.column_names == ["id", "name", "p"]
        assert table.to_pylist() == [{"id": 1, "name": "a", "p": None}]

    def test_so_are_fields_of_structs_and_a_missing_optional_one_becomes_null(self):
        for row, expected in (({"y": 2.0, "x": 1.0}, {"x": 1.0, "y": 2.0}), ({"y": 2.0}, {"x": None, "y": 2.0})):
            rows = pa.table({"id": [1, 2], "p": [row, None]})
            assert conform(rows, schema_from_shorthand(SCHEMA), source="a")["p"].to_pylist() == [expected, None]

    def test_a_missing_column_becomes_its_write_default(self):
        column = NestedField(id=1, name="c", type=LongType(), required=True, write_default=7)
        schema = Schema((column, NestedField(id=2, name="o", type=LongType())))
        table = conform(pa.table({"o": [1, 2]}), schema, source="a")
        assert table.column("c").to_pylist() == [7, 7]

    MISSING = "required column '{}' ({}) is missing in a.parquet, which has {}"
    EXTRA = "column '{}' of a.parquet is not in the table: {}"
    ADVICE = "add it to the table or leave it out; the table has {}"

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"name": ["a"]}, MISSING.format("id", "long", "name")),
            ({"id": [1], "p": [{"x": 1.0}]}, MISSING.format("p.y", "double", "x")),
            ({"id": [1], "more": [1]}, EXTRA.format("more", ADVICE.format("id, name, p"))),
            ({"id": [1], "p": [{"y": 1.0, "z": 1.0}]}, EXTRA.format("p.z", ADVICE.format("x, y"))),
            ({"ID": [1]}, EXTRA.format("ID", "names are matched by case, and the table's column is 'id'")),
        ],
        ids=["missing", "missing in a struct", "extra", "extra in a struct", "another case"],
    )
    def test_a_name_that_does_not_fit_is_an_error(self, columns, message):
        assert refusal_of(columns, SCHEMA) == message

    def test_a_name_that_appears_twice_is_an_error(self):
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
        with pytest.raises(InvalidInputError, match=r"column 'id' appears twice in a\.parquet"):
            conform(twice, schema_from_shorthand(SCHEMA), source="a.parquet")

    def test_names_with_dots_are_names(self):
        schema = Schema((NestedField(id=1, name="a.b", type=LongType()),))
        assert conform(pa.table({"a.b": [1]}), schema, source="a").to_pylist() == [{"a.b": 1}]

    def test_columns_are_checked_without_rows(self):
        with pytest.raises(InvalidInputError, match="column 'id' is list<item: int64> in a and cannot become long"):
            check_columns(pa.schema({"id": pa.list_(pa.int64())}), schema_from_shorthand(SCHEMA), source="a")


class TestNulls:
    """A null in a required column is an error that gives its row, at every level."""

    @pytest.mark.parametrize(
        ("columns", "row"),
        [
            ({"id": pa.chunked_array([[1, 2], [3, None]])}, 4),
            ({"id": pa.array(["1", None])}, 2),
            ({"id": pa.nulls(3)}, 1),
        ],
        ids=["in a later chunk", "after a cast", "a column of type null"],
    )
    def test_at_the_top(self, columns, row):
        for first_row in (1, 1001):
            assert refusal_of(columns, SCHEMA, first_row=first_row) == (
                f"column 'id', row {row + first_row - 1} of a.parquet: null, and the column is required (long); "
                "fill it in the source or make the column optional"
            )

    def test_in_a_struct(self):
        text = refusal_of({"id": [1, 2, 3], "p": [{"x": 1.0, "y": 1.0}, None, {"x": None, "y": None}]}, SCHEMA)
        assert text.startswith("column 'p.y', row 3 of a.parquet: null")

    def test_below_a_null_struct_there_is_nothing_to_be_null(self):
        rows = pa.table({"id": [1, 2], "p": [None, {"x": 1.0, "y": 1.0}]})
        result = conform(rows, schema_from_shorthand(SCHEMA), source="a").column("p")
        assert result.to_pylist() == [None, {"x": 1.0, "y": 1.0}]
        assert result.chunk(0).field(1).null_count == 0

    def test_in_a_list(self):
        kind = ListType(element_id=2, element=LongType(), element_required=True)
        schema = Schema((NestedField(id=1, name="l", type=kind),))
        with pytest.raises(InvalidInputError, match=r"column 'l\.element', row 4 of a: null"):
            conform(pa.table({"l": [[1], None, [], [2, None]]}), schema, source="a")

    def test_in_a_sliced_array(self):
        full = pa.array([[{"y": None}], [{"y": 1.0}], [{"y": None}]], pa.list_(pa.struct({"y": pa.float64()})))
        schema = schema_from_shorthand({"l": "list<struct<y: double not null>>"})
        assert conform(pa.table({"l": full.slice(1, 1)}), schema, source="a").num_rows == 1
        with pytest.raises(InvalidInputError, match=r"column 'l\.element\.y', row 2 of a: null"):
            conform(pa.table({"l": full.slice(1)}), schema, source="a")


def naive(*parts: int) -> dt.datetime:
    """Return a date and time without a zone, as the type timestamp has it."""
    return dt.datetime(*parts)  # noqa: DTZ001


ACCEPTED = [
    (pa.array([1, None], pa.int8()), "long", [1, None]),
    (pa.array([2**31 - 1], pa.uint64()), "int", [2**31 - 1]),
    (pa.array([1.0, -0.0, None]), "int", [1, 0, None]),
    (pa.array([Decimal("12.00")]), "long", [12]),
    (pa.array(["-12", "007"]), "long", [-12, 7]),
    (pa.array([1.5], pa.float32()), "double", [1.5]),
    (pa.array([1.5, math.inf]), "float", [1.5, math.inf]),
    (pa.array([2**62, 2**53, -(2**63)]), "double", [2.0**62, 2.0**53, -(2.0**63)]),
    (pa.array(["1e3", "-inf", "0.1"]), "double", [1000.0, -math.inf, 0.1]),
    (pa.array([Decimal("0.10"), Decimal("1234567.25")]), "double", [0.1, 1234567.25]),
    (pa.array([7], pa.int8()), "decimal(2,1)", [Decimal("7.0")]),
    (pa.array([2**64 - 1], pa.uint64()), "decimal(38,2)", [Decimal(2**64 - 1)]),
    (pa.array([Decimal("1.50")]), "decimal(9,1)", [Decimal("1.5")]),
    (pa.array([0.1, 1e7 - 0.25]), "decimal(9,2)", [Decimal("0.10"), Decimal("9999999.75")]),
    (pa.array([0.1], pa.float32()), "decimal(9,2)", [Decimal("0.10")]),
    (pa.array([0.1]), "decimal(38,20)", [Decimal("0.1")]),
    (pa.array(["1.230", "1e1", "-.5"]), "decimal(9,2)", [Decimal("1.23"), Decimal(10), Decimal("-0.5")]),
    (pa.array(["true", "FALSE", "1", "0", None]), "boolean", [True, False, True, False, None]),
    (pa.array(["2026-01-31"]), "date", [dt.date(2026, 1, 31)]),
    (pa.array([naive(2026, 1, 31)], pa.timestamp("ns")), "date", [dt.date(2026, 1, 31)]),
    (pa.array([86_400_000], pa.date64()), "date", [dt.date(1970, 1, 2)]),
    (pa.array(["10:15", "10:15:30.5"]), "time", [dt.time(10, 15), dt.time(10, 15, 30, 500000)]),
    (pa.array([1], pa.time32("s")), "time", [dt.time(0, 0, 1)]),
    (pa.array([1_000], pa.timestamp("ns")), "timestamp", [naive(1970, 1, 1, 0, 0, 0, 1)]),
    (pa.array([dt.date(2026, 1, 31)]), "timestamp", [naive(2026, 1, 31)]),
    (pa.array(["2026-01-31T10:00:00.123456000"]), "timestamp", [naive(2026, 1, 31, 10, 0, 0, 123456)]),
    (pa.array([0], pa.timestamp("s", "Europe/Berlin")), "timestamptz", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
    (pa.array(["2026-01-31 10:00:00+02:00"]), "timestamptz", [dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)]),
    (pa.array([12, None]), "string", ["12", None]),
    (pa.array([True]), "string", ["true"]),
    (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
    (pa.array(["a"], pa.large_string()), "string", ["a"]),
    (pa.array(["a"], pa.string_view()), "string", ["a"]),
    (pa.array(["1", "1"]).dictionary_encode(), "int", [1, 1]),
    (pa.array([b"abc"]), "fixed[3]", [b"abc"]),
    (pa.array([b"abc"], pa.binary(3)), "binary", [b"abc"]),
    (pa.array([b"abc"], pa.large_binary()), "binary", [b"abc"]),
    (pa.array([None, "00000000-0000-0000-0000-00000000000A"]), "uuid", [None, uuid.UUID(int=10).bytes]),
    (pa.array(["0" * 31 + "a"]), "uuid", [uuid.UUID(int=10).bytes]),
    (pa.array([bytes(16)]), "uuid", [bytes(16)]),
    (pa.array([bytes(16)], pa.binary(16)).cast(pa.uuid()), "uuid", [bytes(16)]),
    (pa.nulls(2), "list<int>", [None, None]),
    (pa.nulls(2), "unknown", [None, None]),
    (pa.array([[1], None, []], pa.large_list(pa.int64())), "list<int>", [[1], None, []]),
    (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "list<int>", [[1, 2]]),
    (pa.array([[1], None], pa.list_view(pa.int64())), "list<int>", [[1], None]),
    (
        pa.array([[("a", "1")], None, []], pa.map_(pa.large_string(), pa.string())),
        "map<string, int>",
        [[("a", 1)], None, []],
    ),
]

REFUSED = [
    (pa.array([1, 2**31]), "int", "value 2147483648 (int64) does not fit int"),
    (pa.array([1, 2**63], pa.uint64()), "long", "value 9223372036854775808 (uint64) does not fit long"),
    (pa.array([1.0, 1.5]), "int", "value 1.5 (double) does not fit int"),
    (pa.array([1.0, math.nan]), "long", "value nan (double) does not fit long"),
    (pa.array(["1", "0x10"]), "long", "value '0x10' (string) does not fit long"),
    (pa.array(["1", " 1"]), "long", "value ' 1' (string) does not fit long"),
    (pa.array(["1", ""]), "double", "value '' (string) does not fit double"),
    (pa.array([1.0, 0.1]), "float", "value 0.1 (double) does not fit float"),
    (pa.array([1, 2**53 + 1]), "double", "value 9007199254740993 (int64) does not fit double"),
    (pa.array([1, 2**24 + 1]), "float", "value 16777217 (int64) does not fit float"),
    (pa.array(["1", "1e400"]), "double", "value '1e400' (string) does not fit double"),
    (pa.array([Decimal(1), Decimal("0.12345678901234567890")]), "double", "does not fit double"),
    (pa.array([1, 10]), "decimal(2,1)", "value 10 (int64) does not fit decimal(2, 1)"),
    (pa.array([1, 2**62]), "decimal(38,30)", "value 4611686018427387904 (int64) does not fit decimal(38, 30)"),
    (pa.array([Decimal("1.50"), Decimal("1.55")]), "decimal(9,1)", "value Decimal('1.55') (decimal128(3, 2))"),
    (pa.array([0.5, 0.125]), "decimal(9,2)", "value 0.125 (double) does not fit decimal(9, 2)"),
    (pa.array([0.5, 0.1 + 0.2]), "decimal(9,2)", "value 0.30000000000000004 (double) does not fit decimal(9, 2)"),
    (pa.array([0.5, math.inf]), "decimal(9,2)", "value inf (double) does not fit decimal(9, 2)"),
    (pa.array(["1", "1.234"]), "decimal(9,2)", "value '1.234' (string) does not fit decimal(9, 2)"),
    (pa.array(["1", "NaN"]), "decimal(9,2)", "value 'NaN' (string) does not fit decimal(9, 2)"),
    (pa.array(["1", "1.2345678901234567e52"]), "decimal(38,2)", "'1.2345678901234567e52' (string) does not fit"),
    (pa.array(["1", "1e-300"]), "decimal(9,2)", "value '1e-300' (string) does not fit decimal(9, 2)"),
    (pa.array(["1", "1" * 70]), "decimal(38,30)", "(string) does not fit decimal(38, 30)"),
    (pa.array([Decimal(1), Decimal("1" * 70)], pa.decimal256(76, 0)), "decimal(38,30)", "does not fit decimal(38, 30)"),
    (pa.array(["true", "ja"]), "boolean", "value 'ja' (string) does not fit boolean"),
    (pa.array(["2026-01-31", "2026-02-30"]), "date", "value '2026-02-30' (string) does not fit date"),
    (pa.array([0, 1], pa.timestamp("us")), "date", "(timestamp[us]) does not fit date"),
    (pa.array(["10:15", "24:00"]), "time", "value '24:00' (string) does not fit time"),
    (pa.array([0, 1], pa.timestamp("ns")), "timestamp", "(timestamp[ns]) does not fit timestamp"),
    (pa.array(["2026-01-31", "2026-01-31T10:00:00Z"]), "timestamp", "'2026-01-31T10:00:00Z' (string)"),
    (pa.array(["2026-01-31T10:00Z", "2026-01-31T10:00"]), "timestamptz", "'2026-01-31T10:00' (string)"),
    (pa.array(["2026-01-31T10:00Z", "2026-01-31 10:00:00.5"]), "timestamptz", "it has no offset from UTC; write one"),
    (pa.array(["2026-01-31T10:00Z", "2026-01-31"]), "timestamptz", "it has no offset from UTC; write one"),
    (pa.array(["2026-01-31", "2026-01-31 10:00+01:00"]), "timestamp", "it has an offset from UTC, which would be lost"),
    (pa.array(["2026-01-31T10:00Z", "yesterday"]), "timestamptz", "timestamptz; change the value or the column's type"),
    (pa.array([b"abc", b"ab"]), "fixed[3]", "value b'ab' (binary) does not fit fixed[3]"),
    (pa.array(["0" * 32, "0" * 31]), "uuid", "(string) does not fit uuid"),
    (pa.array([[1], [2, 2**31]]), "list<int>", "value 2147483648 (int64) does not fit int"),
]

IMPOSSIBLE = [
    (pa.array([1]), "boolean", "column 'c' is int64 in a.parquet and cannot become boolean"),
    (pa.array([True]), "int", "column 'c' is bool in a.parquet and cannot become int"),
    (pa.array([1.5]), "string", "column 'c' is double in a.parquet and cannot become string"),
    (pa.array(["a"]), "binary", "column 'c' is string in a.parquet and cannot become binary"),
    (pa.array([0], pa.timestamp("us")), "timestamptz", "column 'c' is timestamp[us] in a.parquet and cannot become"),
    (pa.array([0], pa.timestamp("us")), "timestamptz", "timestamptz: it has no time zone; give it one in the source"),
    (pa.array([0], pa.timestamp("us", "UTC")), "timestamp", "column 'c' is timestamp[us, tz=UTC] in a.parquet and can"),
    (pa.array([0], pa.timestamp("us", "UTC")), "timestamp", "timestamp: it has a time zone, which would be lost"),
    (pa.array([0], pa.date32()), "timestamptz", "cannot become timestamptz: it has no time zone"),
    (pa.array([b"abcd"], pa.binary(4)), "fixed[3]", "is fixed_size_binary[4] in a.parquet and cannot become fixed[3]"),
    (pa.array([1]), "unknown", "cannot become unknown"),
    (pa.array([1]), "list<int>", "cannot become list<int>"),
    (pa.array([{"a": 1}]), "map<string, int>", "cannot become map<string, int>"),
    (pa.array([[True]]), "list<int>", "column 'c.element' is bool in a.parquet and cannot become int"),
]


class TestCasts:
    """Only casts that lose nothing are made."""

    @pytest.mark.parametrize(("array", "type_text", "expected"), ACCEPTED, ids=lambda value: str(value)[:30])
    def test_what_loses_nothing_is_cast(self, array, type_text, expected):
        assert cast(array, type_text).to_pylist() == expected

    @pytest.mark.parametrize(("array", "type_text", "expected"), REFUSED, ids=lambda value: str(value)[:30])
    def test_the_first_value_that_does_not_fit_is_named_with_its_row(self, array, type_text, expected):
        text = refusal(pa.chunked_array([array.slice(0, 1)] * 3 + [array]), type_text)
        assert ", row 5 of a.parquet: value " in text
        assert expected in text

    @pytest.mark.parametrize(("array", "type_text", "expected"), IMPOSSIBLE, ids=lambda value: str(value)[:30])
    def test_types_that_never_fit_are_refused_as_such(self, array, type_text, expected):
        assert expected in refusal(array, type_text)
        assert expected in refusal(array.slice(0, 0), type_text)

    def test_a_long_value_is_shortened(self):
        text = refusal(pa.array(["x" * 1000]), "int")
        assert text.startswith(f"column 'c', row 1 of a.parquet: value '{'x' * 58}… (string) does not fit int")

    def test_geometry_is_not_written_yet(self):
        with pytest.raises(UnsupportedError, match="columns of type geometry are not written yet"):
            check_columns(pa.schema({"c": pa.string()}), schema_from_shorthand({"c": "geometry"}), source="a")

    def test_values_below_a_null_are_not_looked_at(self):
        child = pa.array([1, 2**40])
        array = pa.StructArray.from_arrays([child], ["x"], mask=pa.array([False, True]))
        assert cast(array, "struct<x: int>").to_pylist() == [{"x": 1}, None]

    def test_values_outside_a_slice_are_not_looked_at(self):
        array = pa.array([[2**40], [1, 2], [2**40]]).slice(1, 1)
        assert cast(array, "list<int>").to_pylist() == [[1, 2]]
        maps = pa.array([[("a", 2**40)], [("b", 1)]], pa.map_(pa.string(), pa.int64())).slice(1)
        assert cast(maps, "map<string, int>").to_pylist() == [[("b", 1)]]


class TestNothingIsCopied:
    """What is of the table's type already is passed on as it is."""

    @pytest.mark.parametrize("type_text", ["long", "string", "list<string>", "struct<a: int, b: list<int>>"])
    def test_equal_types_keep_their_buffers(self, type_text):
        schema = schema_from_shorthand({"c": type_text})
        column = pa.chunked_array([pa.nulls(3, schema_to_arrow(schema, with_field_ids=False).field(0).type)])
        result = conform(pa.table({"c": column}), schema, source="a").column("c")
        before = [buffer and buffer.address for buffer in column.chunk(0).buffers()]
        assert [buffer and buffer.address for buffer in result.chunk(0).buffers()] == before

    def test_empty_tables_and_batches_without_rows_pass(self):
        schema = schema_from_shorthand(SCHEMA)
        assert conform(pa.table({"id": pa.array([], pa.int8())}), schema, source="a").num_rows == 0
        empty = pa.chunked_array([], type=pa.struct({"y": pa.int64()}))
        assert conform(pa.table({"id": pa.array([], pa.string()), "p": empty}), schema, source="a").num_rows == 0


def nearest_float(number: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.inf


# (precision, scale)
DECIMALS = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


class TestAgainstPython:
    """Python's exact numbers decide what fits."""

    @examples(100)
    @given(st.integers(-(2**63), 2**63 - 1), DECIMALS)
    def test_integers_to_decimals(self, number, kind):
        self.compare(pa.array([number]), kind, Decimal(number))

    @pytest.mark.costly
    @examples(100)
    @given(st.decimals(-(10**20), 10**20, allow_nan=False, allow_infinity=False, places=6), DECIMALS)
    def test_decimals_and_their_text_to_decimals(self, number, kind):
        for array in (pa.array([number], pa.decimal128(38, 6)), pa.array([str(number)])):
            self.compare(array, kind, number)

    @examples(100)
    @given(st.integers(-(10**20), 10**20), st.integers(-330, 330), DECIMALS, st.booleans())
    def test_text_with_an_exponent_to_decimals(self, digits, exponent, kind, zeros):
        text = f"{digits}{'.' + '0' * 50 if zeros else ''}e{exponent}"
        self.compare(pa.array([text, None]).slice(0, 1), kind, Decimal(text))

    @examples(100)
    @given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30), DECIMALS)
    @example(1.9, (2, 1))
    @example(1.9000000000000001, (2, 1))
    @example(-0.0, (1, 0))
    @example(99999999999999.9, (15, 1))
    def test_floats_to_decimals(self, number, kind):
        self.compare(pa.array([number]), kind, Decimal(repr(number)))

    def compare(self, array: pa.Array, kind: tuple[int, int], number: Decimal) -> None:
        (precision, scale), type_text = kind, f"decimal{kind}"
        _, digits, exponent = number.normalize(Context(prec=200)).as_tuple()
        fits = -exponent <= scale and len(digits) + exponent + scale <= precision
        if fits or number == 0:
            assert cast(array, type_text).to_pylist() == [number]
        else:
            refusal(array, type_text)

    @examples(100)
    @given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 62).map(lambda power: 2**power)))
    def test_integers_to_floats(self, number):
        self.check(number, "double", float(number) == number)
        self.check(number, "float", nearest_float(float(number)) == number)

    @examples(100)
    @given(st.floats(allow_nan=False))
    def test_doubles_to_floats_and_integers(self, number):
        self.check(number, "float", nearest_float(number) == number)
        self.check(number, "long", number.is_integer() and -(2**63) <= number < 2**63)

    def check(self, number: float, type_text: str, fits: bool) -> None:
        if fits:
            assert cast(pa.array([number]), type_text).to_pylist() == [number]
        else:
            refusal(pa.array([number]), type_text)

    @pytest.mark.costly
    @examples(60)
    @given(strategies.schemas(), st.data())
    def test_rows_of_any_schema_pass_unchanged(self, schema, data):
        target = schema_to_arrow(schema)
        arrays = []
        for child in schema.fields:
            found = data.draw(st.lists(strategies._maybe(child.type, child.required), min_size=3, max_size=3))
            arrays.append(array_from_values(child.type, found))
        table = pa.Table.from_arrays(arrays, schema=target)
        result = conform(table, schema, source="a")
        result.validate(full=True)
        for child in schema.fields:
            before, after = (values_from_array(child.type, rows.column(child.name)) for rows in (table, result))
            assert repr(after) == repr(before)
