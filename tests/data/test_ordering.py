"""Rows in order: sorting, ranges and z-order."""

import math
import struct
from itertools import pairwise, zip_longest

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.data.write.ordering import SortedRows, ZOrderedRows, choose_boundaries, cut_rows, sort_rows
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.format.transforms.transform import parse_transform
from airflow_iceberg.format.types import LongType, StringType
from tests.support.sampling import examples

COLUMNS = {"i": "long", "d": "double", "s": "string", "b": "boolean", "st": "struct<x: int>", "l": "list<int>"}
SCHEMA = schema_from_shorthand(COLUMNS)

nothing = st.none()
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": nothing | st.integers(-3, 3),
            "d": nothing | st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, -math.nan]),
            "s": nothing | st.sampled_from(["", "a", "ab", "b", "ä", "\uffff", "𝄞"]),
            "b": nothing | st.booleans(),
            "st": nothing | st.fixed_dictionaries({"x": nothing | st.integers(-2, 2)}),
            "l": nothing,
        }
    ),
    max_size=40,
)
COLUMN = st.sampled_from(["i", "d", "s", "b", "st.x", "truncate(2, i)", "bucket(3, s)"])
ORDERS = st.lists(
    st.tuples(COLUMN, st.sampled_from(["asc", "desc"]), st.sampled_from(["nulls first", "nulls last"])),
    min_size=1,
    max_size=3,
    unique_by=lambda field: field[0],
)


def table_of(rows: list[dict]) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema_to_arrow(SCHEMA, with_field_ids=False))
    return table.append_column("position", pa.array(range(len(rows)), pa.int64()))


def order_of(fields: list[tuple[str, str, str]]) -> SortedRows:
    return SortedRows(sort_order_from_shorthand([" ".join(field) for field in fields], SCHEMA), SCHEMA)


def java_double(value: float) -> int:
    """How Java's Double.compare orders doubles."""
    bits = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
    return bits ^ (0x7FFFFFFFFFFFFFFF if bits < 0 else 0)


def value_of(row: dict, column: str):
    """The value that a sort field is about, told without Arrow."""
    if column == "st.x":
        return None if row["st"] is None else row["st"]["x"]
    if column.startswith("truncate"):
        return parse_transform("truncate[2]").apply(row["i"], LongType())
    if column.startswith("bucket"):
        return parse_transform("bucket[3]").apply(row["s"], StringType())
    value = row[column]
    if isinstance(value, float):
        return java_double(value)
    return value.encode() if isinstance(value, str) else value


def is_above(one: dict, other: dict, fields: list[tuple[str, str, str]]) -> bool:
    """Tell whether a row has to come after another one, by the specification's words."""
    for column, direction, nulls in fields:
        first, second = value_of(one, column), value_of(other, column)
        if first == second:
            continue
        if first is None or second is None:
            return (first is None) == (nulls == "nulls last")
        return (first > second) == (direction == "asc")
    return False


class TestSorting:
    """Rows are ordered as a sort order says, and equal rows stay as they stood."""

    @pytest.mark.costly
    @given(rows=ROWS, fields=ORDERS)
    @examples(300)
    def test_every_row_is_at_its_place(self, rows, fields):
        positions = sort_rows(table_of(rows), order_of(fields))["position"].to_pylist()
        assert sorted(positions) == list(range(len(rows)))
        for before, after in pairwise(positions):
            assert not is_above(rows[before], rows[after], fields)
            if not is_above(rows[after], rows[before], fields):
                assert before < after

    def test_rows_of_a_partition_come_together(self):
        rows = [{"i": number % 2, "d": float(-number)} for number in range(6)]
        spec = spec_from_shorthand(["i"], SCHEMA)
        order = SortedRows(sort_order_from_shorthand(["d"], SCHEMA), SCHEMA, spec=spec)
        assert sort_rows(table_of(rows), order)["position"].to_pylist() == [4, 2, 0, 5, 3, 1]


class TestRanges:
    """Ranges cut rows so that all rows of one are before all rows of the next, and each row is in one."""

    @pytest.mark.costly
    @given(rows=ROWS, fields=ORDERS, ranges=st.integers(1, 6), parts=st.integers(1, 3))
    @examples(300)
    def test_cut_rows_are_sorted_rows(self, rows, fields, ranges, parts):
        table, order = table_of(rows), order_of(fields)
        boundaries = choose_boundaries(order.keys(table), order, ranges)
        found: dict[int, list[pa.Table]] = {}
        size = max(1, -(-len(rows) // parts))
        for start in range(0, len(rows), size):
            for number, piece in cut_rows(table.slice(start, size), order, boundaries):
                assert piece.num_rows
                found.setdefault(number, []).append(piece)
        ordered = [sort_rows(pa.concat_tables(pieces), order) for _, pieces in sorted(found.items())]
        positions = [number for piece in ordered for number in piece["position"].to_pylist()]
        assert positions == sort_rows(table, order)["position"].to_pylist()
        assert len(found) <= ranges

    def test_ranges_are_of_about_one_size(self):
        table, order = table_of([{"i": number} for number in range(1000)]), order_of([("i", "asc", "nulls first")])
        boundaries = choose_boundaries(order.keys(table), order, 4)
        assert [piece.num_rows for _, piece in cut_rows(table, order, boundaries)] == [250] * 4

    def test_rows_of_one_value_are_never_cut(self):
        table, order = table_of([{"i": 1}] * 100), order_of([("i", "asc", "nulls first")])
        boundaries = choose_boundaries(order.keys(table), order, 8)
        assert len(list(cut_rows(table, order, boundaries))) == 1


def z_value(row: dict, columns: list[str], text_bytes: int = 8) -> bytes:
    """The z-value of a row, told without Arrow and numpy."""
    parts = []
    for column in columns:
        value = row[column]
        if value is None:
            eight = bytes(text_bytes if column == "s" else 8)
        elif isinstance(value, float):
            eight = (java_double(value) + 2**63).to_bytes(8, "big")
        elif isinstance(value, str):
            eight = value.encode()[:text_bytes].ljust(text_bytes, b"\0")
        else:
            eight = (int(value) + 2**63).to_bytes(8, "big")
        parts.append(format(int.from_bytes(eight, "big"), f"0{8 * len(eight)}b"))
    bits = "".join("".join(turn) for turn in zip_longest(*parts, fillvalue=""))
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


class TestZOrder:
    """The bits of the columns by turns, most significant first."""

    @pytest.mark.costly
    @given(rows=ROWS, columns=st.lists(st.sampled_from(["i", "d", "s", "b"]), min_size=1, max_size=3, unique=True))
    @examples(200)
    def test_the_bits_are_interleaved(self, rows, columns):
        keys = ZOrderedRows(columns, SCHEMA).keys(table_of(rows))
        assert keys["z"].to_pylist() == [z_value(row, columns) for row in rows]

    @pytest.mark.costly
    @given(rows=ROWS, text_bytes=st.integers(1, 12), most_bytes=st.integers(1, 30))
    @examples(100)
    def test_text_may_count_for_more_or_less_and_the_whole_be_cut(self, rows, text_bytes, most_bytes):
        order = ZOrderedRows(["s", "i"], SCHEMA, text_bytes=text_bytes, most_bytes=most_bytes)
        expected = [z_value(row, ["s", "i"], text_bytes)[:most_bytes] for row in rows]
        assert order.keys(table_of(rows))["z"].to_pylist() == expected

    def test_rows_near_in_both_columns_come_together(self):
        rows = [{"i": x, "d": float(y)} for x in range(4) for y in range(4)]
        found = sort_rows(table_of(rows), ZOrderedRows(["i", "d"], SCHEMA))
        assert [row["i"] for row in found.to_pylist()][:4] != [0, 0, 0, 0]

    def test_a_column_without_an_order_is_refused(self):
        with pytest.raises(InvalidInputError, match="cannot sort by column 'l': type list<int> has no order"):
            ZOrderedRows(["i", "l"], SCHEMA)
        with pytest.raises(InvalidInputError, match="z-order needs at least one column"):
            ZOrderedRows([], SCHEMA)
