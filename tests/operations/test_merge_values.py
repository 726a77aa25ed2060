"""What SQL assigns to columns of other types, odd names, and what DuckDB would get wrong: merges in this process."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from tests.support.builders import new_table

COLUMNS = {"i": "int", "l": "long", "f": "float", "d": "double", "m": "decimal(9, 2)", "s": "string", "dt": "date"}
COLUMNS |= {"ts": "timestamp", "tz": "timestamptz", "u": "uuid", "b": "boolean", "tags": "list<string>"}
ROW = {"i": 1, "l": 2**60, "f": 0.5, "d": 1e10, "m": Decimal("1.25"), "s": "s", "dt": dt.date(2026, 1, 2), "b": True}
ROW |= {"ts": dt.datetime(2026, 1, 2, 3), "tz": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)}  # noqa: DTZ001
ROW |= {"u": uuid.UUID(int=7).bytes, "tags": ["a"]}


@pytest.fixture
def table(tmp_path):
    table = new_table(tmp_path, schema=COLUMNS)
    table.append(pa.Table.from_pylist([ROW], schema=schema_to_arrow(table.schema(), with_field_ids=False)))
    return table


class TestAssignment:
    """As Spark's ANSI store assignment."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("column", "expression", "expected"),
        [
            ("i", "-1.9", -1),
            ("i", "cast(2.9 as double)", 2),
            ("i", "null", None),
            ("tags", "null", None),
            ("l", "d / 4", 2_500_000_000),
            ("f", "cast(0.1 as double)", 0.10000000149011612),
            ("f", "cast(0.1 as decimal(38, 20))", 0.10000000149011612),
            ("d", "cast(-185.7 as decimal(9, 1))", -185.7),
            ("m", "1.005", Decimal("1.01")),
            ("m", "-1.005", Decimal("-1.01")),
            ("m", "cast(1.005 as double)", Decimal("1.01")),
            ("m", "cast(9.995 as decimal(4, 3))", Decimal("10.00")),
            ("s", "i", "1"),
            ("dt", "timestamp '1969-12-31 23:00:00'", dt.date(1969, 12, 31)),
            ("dt", "tz", dt.date(2026, 1, 2)),
            ("ts", "tz", dt.datetime(2026, 1, 2, 3)),  # noqa: DTZ001
            ("tz", "ts", dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)),
            ("tz", "dt", dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
        ],
    )
    def test_values_are_brought_to_the_column(self, table, column, expression, expected):
        changes = 0 if ROW[column] == expected else 1
        assert table.update({column: expression}).updated_records == changes
        assert table.scan().to_arrow()[column].to_pylist() == [expected]

    @pytest.mark.parametrize(
        ("column", "expression"),
        [
            *[("i", "l"), ("i", "1e30"), ("i", "'abc'"), ("i", "true"), ("i", "dt"), ("i", "cast('nan' as double)")],
            *[("m", "9999999.995"), ("m", "1e300"), ("m", "cast('nan' as double)"), ("b", "1"), ("dt", "1")],
            *[("s", "u"), ("u", "s"), ("tags", "s")],
        ],
    )
    def test_what_does_not_fit_is_an_error_of_the_column(self, table, column, expression):
        with pytest.raises(InvalidInputError, match=f"column '{column}"):
            table.update({column: expression})
        assert len(table.refresh().snapshots()) == 1


class TestNames:
    @pytest.mark.costly
    def test_blanks_quotes_dots_other_case_and_reserved_words(self, tmp_path):
        table = new_table(
            tmp_path, schema={"id": "long", "a b": "string", 'q"x': "string", "a.b": "int", "Select": "int"}
        )
        table.append(
            pa.table({"id": [1, 2], "a b": ["x", "y"], 'q"x': ["p", "q"], "a.b": _ints(1, 2), "Select": _ints(3, 4)})
        )
        source = pa.table(
            {"ID": [1, 5], "a b": ["X", "Z"], 'q"x': ["P", "Z"], "A.B": _ints(7, 8), "select": _ints(7, 8)}
        )
        table.merge(source, ["id"], "when matched then update set * when not matched then insert *")
        clauses = (
            'when matched and target."a.b" = 7 then update set "a.b" = source."A.B" + 1, '
            '"select" = target."Select" + 1, target."q""x" = \'new\''
        )
        assert table.merge(source, 'target."id" = source."ID"', clauses).updated_records == 1
        assert table.update({"a b": "\"a b\" || '!'"}, where='"a.b" > 2').updated_records == 2
        assert [list(row.values()) for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [
            [1, "X!", "new", 8, 8],
            [2, "y", "q", 2, 4],
            [5, "Z!", "Z", 8, 8],
        ]

    def test_columns_that_differ_by_case_are_rejected(self, tmp_path):
        """DuckDB would take the first of them for both."""
        table = new_table(tmp_path, schema={"id": "long", "ID": "long", "n": "int"})
        table.append(pa.table({"id": [1, 2], "ID": [2, 1], "n": _ints(1, 2)}))
        with pytest.raises(InvalidInputError, match="'id' and 'ID', which are one for DuckDB"):
            table.update({"n": "id"}, where='"ID" = 1')
        assert table.update({"n": "7"}, where='"ID" = 1').updated_records == 1
        assert table.scan("n = 7").to_arrow()["id"].to_pylist() == [2]


class TestDuckdbSeesAllRows:
    """DuckDB gives its filters to pyarrow, in which NaN is not above all numbers, and times have microseconds."""

    @pytest.mark.costly
    def test_not_a_number(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "x": "double"})
        table.append(pa.table({"id": [1, 2, 3, 4], "x": [1.0, float("nan"), -0.0, 3.0]}))
        assert table.update({"id": "id + 10"}, where="x > 1").updated_records == 2
        source = pa.table({"x": [1.0, float("nan"), 0.0]})
        assert table.merge(source, ["x"], "when matched then delete").deleted_records == 3
        assert table.scan().to_arrow()["id"].to_pylist() == [14]

    def test_nanoseconds(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "x": "timestamp_ns"}, properties={"format-version": "3"})
        start = 1_772_284_001_000_000_001
        table.append(pa.table({"id": [1, 2, 3], "x": _moments(start, start + 1, start + 2)}))
        source = pa.table({"x": _moments(start, start + 2)})
        assert table.merge(source, ["x"], "when matched then delete").deleted_records == 2
        assert table.scan().to_arrow()["x"].cast(pa.int64()).to_pylist() == [start + 1]

    @pytest.mark.costly
    def test_nanoseconds_with_a_zone_are_rejected_where_they_would_be_lost(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "x": "timestamptz_ns"}, properties={"format-version": "3"})
        start = 1_772_284_001_000_000_001
        table.append(pa.table({"id": [1], "x": _moments(start).cast(pa.timestamp("ns", "UTC"))}))
        with pytest.raises(UnsupportedError, match="column 'x' of 'target' has nanoseconds and a time zone"):
            table.update({"x": "x"})
        assert table.update({"id": "5"}).updated_records == 1
        assert table.scan().to_arrow()["x"].cast(pa.int64()).to_pylist() == [start]


def _ints(*values):
    return pa.array(values, pa.int32())


def _moments(*values):
    return pa.array(values, pa.int64()).cast(pa.timestamp("ns"))
