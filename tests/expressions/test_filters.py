"""Predicates: SQL text to rows, with SQL's three-valued logic."""

import math
import operator as op
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_iceberg.errors import InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.arrow import row_mask
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.matching import matches
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from tests.support.data_files import filtered
from tests.support.sampling import examples

SCHEMA = schema_from_shorthand({
    "id": "long not null", "i": "int", "f": "float", "d": "double", "s": "string", "flag": "boolean", "dt": "date",
    "tm": "time", "ts": "timestamptz", "tn": "timestamp", "p": "decimal(5,2)", "u": "uuid", "b": "binary",
    "fx": "fixed[2]", "st": "struct<a: int, in: struct<c: string>>", "tags": "list<string>", "m": "map<string, int>",
    "nothing": "unknown", "with space": "int", "order": "int",
})  # fmt: skip
ARROW = schema_to_arrow(SCHEMA, with_field_ids=False)
NAN = math.nan


def parse(text: str | tree.Expression) -> tree.Expression:
    return parse_filter(text, SCHEMA)


def select(text: str | tree.Expression, rows: list[dict[str, Any]]) -> list[int]:
    """Return the positions of the rows that a filter selects."""
    full = [{"id": position, **row} for position, row in enumerate(rows)]
    table = pa.Table.from_pylist(full, schema=pa.schema([field.with_nullable(True) for field in ARROW]))
    return filtered(table, text, SCHEMA)["id"].to_pylist()


def of(column: str, text: str | tree.Expression, values: list[Any]) -> list[Any]:
    """Return the values of a column that a filter selects."""
    return [values[position] for position in select(text, [{column: value} for value in values])]


class TestThreeValuedLogic:
    """A row is selected where the predicate is true; null is not true, and neither is NOT null."""

    @pytest.mark.parametrize("text", ["i = 1", "i != 2", "i < 2", "i in (1)", "i not in (2)", "i between 0 and 1"])
    def test_null_is_selected_neither_by_a_predicate_nor_by_its_negation(self, text: str) -> None:
        assert of("i", text, [1, 2, None]) == [1]
        assert of("i", f"not ({text})", [1, 2, None]) == [2]

    def test_in_a_list_with_null(self) -> None:
        assert of("i", "i not in (1, null)", [1, 2, None]) == []
        assert of("i", "i in (1, null)", [1, 2, None]) == [1]
        assert of("i", "not (i not in (1, null))", [1, 2, None]) == [1]

    @pytest.mark.parametrize("text", ["i = null", "not (i = null)", "i != null", "null", "not null", "1 = null"])
    def test_a_comparison_with_null_selects_nothing_in_either_direction(self, text: str) -> None:
        assert of("i", text, [1, None]) == []

    def test_true_or_null_is_true_and_false_and_null_is_false(self) -> None:
        rows = [{"i": None, "s": "a"}, {"i": None, "s": "b"}, {"i": 1, "s": None}]
        assert select("i = 1 or s = 'a'", rows) == [0, 2]
        assert select("not (i = 1 and s = 'a')", rows) == [1]

    def test_is_null_and_null_safe_equality_are_never_null(self) -> None:
        assert of("i", "i is null", [1, None]) == [None]
        assert of("i", "not (i is null)", [1, None]) == [1]
        assert of("i", "i <=> 1", [1, 2, None]) == [1]
        assert of("i", "not (i <=> 1)", [1, 2, None]) == [2, None]
        assert of("i", "i <=> null", [1, None]) == [None]

    def test_a_boolean_column_is_a_predicate_and_is_true_tells_null_apart(self) -> None:
        assert of("flag", "flag is true", [True, False, None]) == [True]
        assert of("flag", "flag is not true", [True, False, None]) == [False, None]
        assert of("flag", "flag is not false", [True, False, None]) == [True, None]
        assert of("flag", "flag", [True, False, None]) == [True]
        assert of("flag", "not flag", [True, False, None]) == [False]

    def test_nested_values_can_be_asked_for_null_and_a_field_of_a_null_struct_is_null(self) -> None:
        values = [{"a": 1}, {"a": None}, None]
        assert of("st", "st.a is null", values) == [{"a": None}, None]
        assert of("st", "st.in.c is null", [{"in": {"c": "x"}}, {"in": None}, None]) == [{"in": None}, None]
        assert of("st", "not (st.a = 2)", values) == [{"a": 1}]
        assert of("tags", "tags is null", [[], None]) == [None]
        assert of("m", "m is not null", [[], None]) == [[]]
        assert of("st", "st is null", [{"a": None}, None]) == [None]


class TestFloatingPoint:
    """Spark's order: NaN is above every number and equal to itself, -0.0 equals 0.0."""

    def test_nan_is_above_every_number(self) -> None:
        assert select("d > 1e308", [{"d": NAN}, {"d": math.inf}, {"d": 1.0}]) == [0, 1]
        assert select("d >= cast('Infinity' as double)", [{"d": NAN}, {"d": math.inf}, {"d": 1.0}]) == [0, 1]
        assert select("d < 1", [{"d": NAN}, {"d": 0.0}]) == [1]

    def test_negated_comparisons_select_the_other_rows_that_are_not_null(self) -> None:
        rows = [{"d": NAN}, {"d": 0.0}, {"d": 1.0}, {"d": None}]
        for text in ("d < 1", "d = 1", "d > 0", "d in (0, 1)", "d <= 0"):
            assert sorted(select(text, rows) + select(f"not ({text})", rows)) == [0, 1, 2]

    def test_equality_with_nan_finds_nan(self) -> None:
        rows = [{"d": NAN}, {"d": 1.0}, {"d": None}]
        assert select("d = double('NaN')", rows) == [0]
        assert select("d != double('NaN')", rows) == [1]
        assert select("d in (double('NaN'), 1)", rows) == [0, 1]
        assert select("d not in (double('NaN'), 5)", rows) == [1]
        assert select("d < double('NaN')", rows) == [1]
        assert select("d > double('NaN')", rows) == []
        assert select("d <= double('NaN')", rows) == [0, 1]

    def test_isnan_is_false_for_null(self) -> None:
        rows = [{"d": NAN}, {"d": 1.0}, {"d": None}]
        assert select("isnan(d)", rows) == [0]
        assert select("not isnan(d)", rows) == [1, 2]

    @pytest.mark.parametrize("text", ["d = 0", "d = -0.0", "d in (0, 7)", "d >= 0 and d <= 0", "not (d != 0)"])
    def test_both_zeros_are_equal(self, text: str) -> None:
        assert select(text, [{"d": 0.0}, {"d": -0.0}, {"d": 1.0}]) == [0, 1]

    def test_not_in_leaves_both_zeros_out(self) -> None:
        assert select("d not in (0, 7)", [{"d": 0.0}, {"d": -0.0}, {"d": 1.0}]) == [2]

    def test_a_literal_is_rounded_to_a_float_column(self) -> None:
        tenth = float(pa.scalar(0.1, pa.float32()).as_py())
        assert select("f = 0.1", [{"f": tenth}, {"f": 0.5}]) == [0]

    def test_a_number_beyond_the_type_lies_between_its_largest_and_infinity(self) -> None:
        rows = [{"f": 3.0e38}, {"f": math.inf}, {"f": -math.inf}, {"f": NAN}, {"f": None}]
        assert select("f > 1e39", rows) == [1, 3]
        assert select("f <= 1e39", rows) == [0, 2]
        assert select("f < -1e39", rows) == [2]
        assert select("f >= -1e39", rows) == [0, 1, 3]
        assert select("f = 1e39", rows) == []
        assert select("f != 1e39", rows) == [0, 1, 2, 3]


class TestLiterals:
    """A literal is compared exactly, whatever it was written as."""

    @pytest.mark.parametrize(("text", "expected"), [
        ("i > 1.5", [2, 3]), ("i >= 1.5", [2, 3]), ("i < 1.5", [1]), ("i <= -1.5", []), ("i = 2.0", [2]),
        ("i = 2.5", []), ("i != 2.5", [1, 2, 3]), ("i in (1.5, 2, '3')", [2, 3]), ("i not in (1.5, 2.5)", [1, 2, 3]),
        ("i < 3000000000", [1, 2, 3]), ("i > 3000000000", []), ("i != 3000000000", [1, 2, 3]),
        ("i >= -9999999999999999999999", [1, 2, 3]), ("i = 1e400", []), ("i < cast('Infinity' as double)", [1, 2, 3]),
        ("i = 2L", [2]), ("i = 2BD", [2]), ("i = cast('2' as int)", [2]), ("2 <= i", [2, 3]), ("(2) = (i)", [2]),
        ("i between 2 and 3", [2, 3]), ("i between 3 and 2", []), ("i not between 2 and 3", [1]), ("i == 2", [2]),
        ("i <> 2", [1, 3]), ("- 1 < i and i < +3", [1, 2]),
    ])  # fmt: skip
    def test_numbers_beside_an_int_column(self, text: str, expected: list[int]) -> None:
        assert of("i", text, [1, 2, 3, None]) == expected

    @pytest.mark.parametrize(("text", "expected"), [
        ("p = 1.2", ["1.20"]), ("p = 1.20", ["1.20"]), ("p < 1.234", ["-9.99", "1.20"]),
        ("p >= 1.234", ["1.24", "999.99"]), ("p = 1.234", []), ("p > 1000", []),
        ("p < 1000", ["-9.99", "1.20", "1.24", "999.99"]), ("p in (1.2, 1.234, 99999)", ["1.20"]),
        ("p = '1.20'", ["1.20"]),
    ])  # fmt: skip
    def test_numbers_beside_a_decimal_column(self, text: str, expected: list[str]) -> None:
        values = [Decimal(text) for text in ("-9.99", "1.20", "1.24", "999.99")]
        assert [str(value) for value in of("p", text, values)] == expected

    @pytest.mark.parametrize(("text", "expected"), [
        ("dt = '2026-01-01'", [1]), ("dt = date '2026-01-01'", [1]), ("dt >= date('2026-01-01')", [1, 2]),
        ("dt < timestamp '2026-01-01 12:00:00'", [0, 1]), ("dt = timestamp '2026-01-01 12:00:00'", []),
        ("dt < '2026-01-01 12:00:00'", [0]), ("dt = '2026-01-01 12:00:00'", [1]),
        ("dt = timestamp_ntz '2026-01-01'", [1]), ("dt < '1969-12-31'", []), ("cast('2026-01-01' as date) = dt", [1]),
    ])  # fmt: skip
    def test_days_beside_a_date_column(self, text: str, expected: list[int]) -> None:
        days = [date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 2)]
        assert select(text, [{"dt": day} for day in days]) == expected

    @pytest.mark.parametrize(("text", "expected"), [
        ("ts >= '2026-01-01'", [1, 2]), ("ts = date '2026-01-01'", [1]), ("ts = '2026-01-01T01:00:00+01:00'", [1]),
        ("ts = '2025-12-31 19:00:00-05'", [1]), ("ts = timestamp '2026-01-01 00:00:00'", [1]),
        ("ts = '2026-01-01T00:00:00Z'", [1]), ("ts > '2026-01-01 00:00:00.0000005'", [2]),
        ("ts = '2026-01-01 00:00:00.0000005'", []), ("ts < '2026-01-01 00:00'", [0]),
    ])  # fmt: skip
    def test_instants_beside_a_timestamptz_column_are_utc_unless_they_say_otherwise(self, text, expected):
        first = datetime(2026, 1, 1, tzinfo=UTC)
        moments = [first - timedelta(microseconds=1), first, first + timedelta(microseconds=1)]
        assert select(text, [{"ts": moment} for moment in moments]) == expected

    def test_python_values_are_literals_too(self) -> None:
        zone = timezone(timedelta(hours=1))
        assert parse(tree.Comparison("=", "ts", datetime(2026, 1, 1, 1, tzinfo=zone))) == parse("ts = '2026-01-01'")
        assert parse(tree.Comparison("<", "dt", date(2026, 1, 1))) == parse("dt < '2026-01-01'")
        assert parse(tree.Comparison("<", "p", 0.1)) == parse("p < 0.1")
        assert parse(tree.In("i", (3, 1, 1))) == parse("i in (1, 3)")

    def test_times_uuids_and_bytes(self) -> None:
        assert select("tm < '12:00:00.5'", [{"tm": 43_200_000_000}, {"tm": 43_200_500_000}]) == [0]
        uuid = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
        assert select(f"u = '{uuid}'", [{"u": bytes.fromhex(uuid.replace("-", ""))}, {"u": bytes(16)}]) == [0]
        assert of("b", "b >= X'01'", [b"", b"\x01", b"\xff\x00"]) == [b"\x01", b"\xff\x00"]
        assert of("fx", "fx = X'0001'", [b"\x00\x01", b"\x00\x02"]) == [b"\x00\x01"]

    @pytest.mark.parametrize(("text", "expected"), [
        ("s = 'it''s'", ["it's"]), ('s = "it\'s"', ["it's"]), ("s = 'it\\'s'", ["it's"]), ("s = 'ü'", ["ü"]),
        ("s > 'x'", ["x%y", "ü", "\U0001f600"]),
    ])  # fmt: skip
    def test_strings(self, text: str, expected: list[str]) -> None:
        assert of("s", text, ["", "it's", "x%y", "ü", "\U0001f600", None]) == expected

    def test_conditions_without_columns_are_folded(self) -> None:
        assert parse("1 = 1") == parse("true") == parse("'a' < 'b' and not false") == tree.ALWAYS_TRUE
        assert parse("1 = 2 or false") == parse("i = 1 and false") == tree.ALWAYS_FALSE
        assert parse("i = 1 or 1 = 1") == tree.ALWAYS_TRUE

    def test_nothing_compares_with_a_column_of_unknown_type_which_is_always_null(self) -> None:
        assert parse("nothing = 1 or nothing in ('a')") == tree.ALWAYS_FALSE
        assert of("nothing", "nothing is null", [None]) == [None]


class TestLike:
    """LIKE has % for any characters, _ for one, and a backslash, or what ESCAPE says, for these themselves."""

    VALUES = ("abc", "ab", "a%c", "a_c", "a\nc", "xabc", "aéc", "", None)

    @pytest.mark.parametrize(("pattern", "expected"), [
        ("'ab%'", ["abc", "ab"]), ("'%bc'", ["abc", "xabc"]), ("'a_c'", ["abc", "a%c", "a_c", "a\nc", "aéc"]),
        (r"'a\\%c'", ["a%c"]), (r"'a\\_%'", ["a_c"]), ("'a!%c' escape '!'", ["a%c"]), ("'abc'", ["abc"]),
        ("'%'", ["abc", "ab", "a%c", "a_c", "a\nc", "xabc", "aéc", ""]), ("''", [""]), ("'.*'", []),
    ])  # fmt: skip
    def test_patterns(self, pattern: str, expected: list[str]) -> None:
        values = list(self.VALUES)
        assert of("s", f"s like {pattern}", values) == expected
        rest = [value for value in values if value is not None and value not in expected]
        assert of("s", f"s not like {pattern}", values) == rest

    def test_a_pattern_that_begins_with_text_is_a_prefix_or_gives_one_for_pruning(self) -> None:
        assert isinstance(parse("s like 'ab%'"), tree.StartsWith)
        assert isinstance(parse("startswith(s, 'ab')"), tree.StartsWith)
        assert [type(part) for part in tree.predicates(parse("s like 'ab%c'"))] == [tree.StartsWith, tree.Like]

    def test_several_wildcards_take_time_by_the_length_of_a_text(self) -> None:
        """The value of a partition may be a text of megabytes, made for a pattern that anybody may write."""
        text = "ab" * 100_000
        for pattern, expected in (("%a%b%a%b%c", False), ("%a%b%a%c%", False), ("%a_a%%b%a%_b", True)):
            assert matches(parse(f"s like '{pattern}'"), text) is expected, pattern

    @pytest.mark.costly
    @given(st.text("ab%_\\\n", max_size=6), st.text("ab%_\\\n", max_size=6))
    def test_one_value_and_a_column_give_the_same_answer(self, pattern: str, value: str) -> None:
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            with pytest.raises(InvalidInputError, match="ends with the escape character"):
                parse(tree.Like("s", pattern))
            return
        for expression in (parse(tree.Like("s", pattern)), parse(tree.Not(tree.Like("s", pattern)))):
            expected = expression != tree.ALWAYS_FALSE and all(
                matches(part, value) for part in tree.predicates(expression)
            )
            assert of("s", expression, [value]) == ([value] if expected else [])


class TestColumns:
    """Columns are found by full name and bound by id."""

    @pytest.mark.parametrize("text", ["`with space` = 1", "`order` = 1", "order = 1", "`st`.`a` = 1", "st.in.c = 'x'"])
    def test_quoted_reserved_and_nested_names(self, text: str) -> None:
        (found,) = tree.predicates(parse(text))
        assert found.column.field_id == SCHEMA.find_field(found.column.name).id

    def test_case_matters_unless_told_otherwise(self) -> None:
        with pytest.raises(NotFoundError, match="no column 'ID'"):
            parse("ID = 1")
        assert parse_filter("ID = 1", SCHEMA, case_sensitive=False) == parse("id = 1")

    def test_no_filter_is_every_row_and_a_bound_one_stays(self) -> None:
        assert parse_filter(None, SCHEMA) == tree.ALWAYS_TRUE
        bound = parse("dt > '2026-01-01' and (i = 1 or s is null)")
        assert parse(bound) == bound

    def test_the_tree_can_be_built_in_python(self) -> None:
        junction = tree.And(tree.NotNull("i"), tree.NotIn("i", (1, 2)))
        built = tree.Not(tree.Or(junction, tree.IsNull("s"), tree.IsNan("d"), tree.Like("s", "a%")))
        assert parse(built) == parse(
            "not ((i is not null and i not in (1, 2)) or s is null or isnan(d) or s like 'a%')"
        )


class TestRefusals:
    """What cannot be understood or compared is an error that says why, never another answer."""

    @pytest.mark.parametrize(("text", "message"), [
        ("", "the filter is empty; for every row leave it out, or write 'true'"), ("  ", "the filter is empty"),
        ("id = 1; id = 2", "expected one predicate, got 2 statements"),
        ("id =", "cannot parse the filter 'id =': something is missing near line 1"),
        ("id = 'abc'", r"cannot compare column 'id' \(long\) with 'abc'"),
        ("s = 5", r"cannot compare column 's' \(string\) with 5; write a string in quotes"),
        ("flag = 3", r"cannot compare column 'flag' \(boolean\) with 3"),
        ("i = true", r"cannot compare column 'i' \(int\) with True"),
        ("i", r"cannot compare column 'i' \(int\) with True, and by itself it is no predicate"),
        ("b = 'x'", "write bytes as X'1F'"), ("fx = X'00'", r"cannot compare column 'fx' \(fixed\[2\]\) with 1 bytes"),
        ("ts > 5", r"cannot compare column 'ts' \(timestamptz\) with 5"),
        ("tn > '2026-01-01T00:00:00Z'", "which has no time zone"),
        ("dt = '2026-13-01'", "invalid date '2026-13-01' compared with column 'dt'"),
        ("ts = '2026-01-01 25:00:00'", "'25:00:00' is not a time of day"),
        ("u = 'abc'", r"cannot compare column 'u' \(uuid\) with 'abc'"),
        ("tags = 'a'", r"only IS \[NOT\] NULL is possible"),
        ("tags.element = 'a'", "column 'tags.element' is inside a list or map"),
        ("isnan(i)", "needs a float or double column, 'i' is int"),
        ("i like '1%'", "LIKE needs a string column, 'i' is int"),
        ("s like 5", "LIKE needs a pattern in quotes, such as 'abc%', got 5"),
        ("dt > 5", "write a date as '2026-01-31'"), ("flag = 1", "write true or false"), ("i = 'x'", "write a number"),
        ("i < 'nan'", r"cannot compare column 'i' \(int\) with 'nan'; write a number"),
        ("id > '-Infinity'", r"cannot compare column 'id' \(long\) with '-Infinity'; write a number"),
        ("p <> 'inf'", r"cannot compare column 'p' \(decimal\(5, 2\)\) with 'inf'; write a number"),
        ("i = '1_0'", r"cannot compare column 'i' \(int\) with '1_0'; write a number"),
        ("d = '1_0'", r"cannot compare column 'd' \(double\) with '1_0'; write a number"),
        ("i = 1; delete", "expected table name near line 1, column 13$"),
        ("i = cast('x' as int)", "cannot cast 'x' to INT"), ("'a' = 1", "cannot compare 'a' with 1"),
        ("(" * 3000 + "i = 1" + ")" * 3000, "nested too deeply"),
    ])  # fmt: skip
    def test_wrong_input(self, text: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            parse(text)

    @pytest.mark.parametrize(
        "text", ["i = id", "i in (select 1)", "select 1", "s ilike 'a'", "m['a'] = 1", "i in (id)"]
    )
    def test_sql_that_is_not_implemented(self, text: str) -> None:
        with pytest.raises(UnsupportedError):
            parse(text)

    @pytest.mark.parametrize(("text", "shown", "instead"), [
        ("upper(s) = 'X'", "UPPER(s)", "list the spellings that occur, such as s in ('abc', 'ABC')"),
        ("'x' = lower(st.in.c)", "LOWER(st.in.c)", "list the spellings that occur, such as st.in.c in ("),
        (
            "date(ts) = '2026-01-31'",
            "CAST(ts AS DATE)",
            "use a range, such as ts >= '2026-01-31' and ts < '2026-02-01'",
        ),
        ("ts::date > '2026-01-31'", "CAST(ts AS DATE)", "use a range, such as ts >= "),
        ("cast(ts as date) in ('2026-01-31')", "CAST(ts AS DATE)", "use a range, such as ts >= "),
        ("date_trunc('day', ts) = '2026-01-31'", "DATE_TRUNC('DAY', ts)", "use a range, such as ts >= "),
        ("year(ts) = 2026", "YEAR(ts)", "use a range, such as ts >= "),
        ("substring(s, 1, 2) = 'ab'", "SUBSTRING(s, 1, 2)", "use LIKE with % and _, such as s like 'abc%'"),
        ("coalesce(i, 0) = 0", "COALESCE(i, 0)", "write null as a condition of its own, such as (i = 0 or i is "),
        ("i + 1 > 10", "i + 1", "calculate the literal instead: i > 9 for i + 1 > 10"),
        ("-i > 3", "-i", "calculate the literal instead"),
        ("cast(i as string) = '1'", "CAST(i AS STRING)", "use = != < <= > >= IN BETWEEN LIKE IS NULL, joined"),
        ("my_udf(i) = 1", "MY_UDF(i)", "use = != < <= > >= IN BETWEEN LIKE IS NULL, joined"),
    ])  # fmt: skip
    def test_a_function_of_a_column_says_how_to_do_without(self, text: str, shown: str, instead: str) -> None:
        with pytest.raises(UnsupportedError) as caught:
            parse(f"id = 1 or {text}")
        start = "a function, cast or calculation on a column is not supported in a filter: "
        assert str(caught.value).startswith(f"{start}'{shown}' in 'id = 1 or {text}'; compare the column ")
        assert f" itself with literals: {instead}" in str(caught.value)

    def test_a_calculated_value_is_to_be_written_as_a_literal(self) -> None:
        with pytest.raises(UnsupportedError) as caught:
            parse("ts > current_timestamp()")
        assert str(caught.value) == (
            "a calculated value is not supported in a filter: 'CURRENT_TIMESTAMP()' in 'ts > current_timestamp()'; "
            "write the value as a literal, such as 42, 'text' or DATE '2026-01-31' (a DAG can calculate it with a "
            "template in predicate_params)"
        )

    def test_an_unknown_column_is_named_with_those_that_exist(self) -> None:
        with pytest.raises(NotFoundError, match=r"no column 'nope' \(columns: id, i, f"):
            parse("nope = 1")

    def test_a_filter_that_is_no_filter(self) -> None:
        with pytest.raises(InvalidInputError, match="expected a filter as SQL text or an expression, got the number 5"):
            parse_filter(5, SCHEMA)  # type: ignore[arg-type]

    @pytest.mark.costly
    def test_thousands_of_alternatives_are_fine(self) -> None:
        text = " or ".join(f"i = {number}" for number in range(5000))
        assert of("i", text, [4999, 5000]) == [4999]


# --- against an evaluator that knows nothing of ours ------------------------------------------------------------------

Tri = bool | None


@dataclass(frozen=True)
class Sql:
    """A predicate as text, and what SQL says about a row."""

    text: str
    answer: Callable[[dict[str, Any]], Tri]


def rank(value: Any) -> Any:
    """Order values as Spark does."""
    if isinstance(value, float):
        return (1, 0) if math.isnan(value) else (0, value if math.isinf(value) else Fraction(value))
    return (0, Fraction(value)) if isinstance(value, (int, Decimal)) else value


def kleene_not(value: Tri) -> Tri:
    return None if value is None else not value


def kleene_and(values: list[Tri]) -> Tri:
    return False if False in values else None if None in values else True


def lift(column: str, literal: Any, holds: Callable[[Any, Any], bool]) -> Callable[[dict[str, Any]], Tri]:
    def answer(row: dict[str, Any]) -> Tri:
        left = row[column]
        return None if left is None or literal is None else holds(rank(left), rank(literal))

    return answer


OPERATORS: dict[str, Callable[[Any, Any], bool]] = dict(
    zip(("=", "!=", "<", "<=", ">", ">="), (op.eq, op.ne, op.lt, op.le, op.gt, op.ge), strict=True)
)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 1e300, math.inf, -math.inf, NAN])
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-3, 3), st.sampled_from([-(2**31), 2**31 - 1])),
    "d": FLOATS,
    "s": st.text("ab", max_size=3),
    "p": st.integers(-99999, 99999).map(lambda units: Decimal(units).scaleb(-2)),
    "dt": st.dates(date(1969, 12, 30), date(1970, 1, 3)),
    "flag": st.booleans(),
}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    **COLUMNS,
    "i": st.one_of(COLUMNS["i"], st.sampled_from([Decimal("1.5"), Decimal("-0.5"), 2**31, -(2**40)])),
    "p": st.one_of(COLUMNS["p"], st.sampled_from([Decimal("1.005"), Decimal(1000), Decimal("-1e9")])),
}


def text_of(value: Any) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, (str, date)):
        return f"'{value}'"
    return "null" if value is None else str(value)


@st.composite
def leaves(draw: st.DrawFn) -> Sql:
    column = draw(st.sampled_from(sorted(COLUMNS)))
    literals = st.one_of(st.none(), LITERALS[column]) if draw(st.integers(0, 4)) == 0 else LITERALS[column]
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "between"]))
    if kind == "null":
        return Sql(f"{column} is null", lambda row: row[column] is None)
    if kind == "compare":
        sign, literal = draw(st.sampled_from(sorted(OPERATORS))), draw(literals)
        return Sql(f"{column} {sign} {text_of(literal)}", lift(column, literal, OPERATORS[sign]))
    found = draw(st.lists(literals, min_size=2, max_size=2 if kind == "between" else 4))
    if kind == "between":
        low, high = lift(column, found[0], op.ge), lift(column, found[1], op.le)
        text = f"{column} between {text_of(found[0])} and {text_of(found[1])}"
        return Sql(text, lambda row: kleene_and([low(row), high(row)]))
    equals = [lift(column, literal, op.eq) for literal in found]
    return Sql(
        f"{column} in ({', '.join(map(text_of, found))})",
        lambda row: kleene_not(kleene_and([kleene_not(equal(row)) for equal in equals])),
    )


def negated(part: Sql) -> Sql:
    return Sql(f"not ({part.text})", lambda row: kleene_not(part.answer(row)))


def joined(parts: list[Sql], word: str) -> Sql:
    text = f" {word} ".join(f"({part.text})" for part in parts)
    if word == "and":
        return Sql(text, lambda row: kleene_and([part.answer(row) for part in parts]))
    return Sql(text, lambda row: kleene_not(kleene_and([kleene_not(part.answer(row)) for part in parts])))


def sql_predicates() -> st.SearchStrategy[Sql]:
    def deeper(inner: st.SearchStrategy[Sql]) -> st.SearchStrategy[Sql]:
        several = st.builds(joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"]))
        return st.one_of(inner.map(negated), several)

    return st.recursive(leaves(), deeper, max_leaves=5)


ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in COLUMNS.items()}), max_size=8
)


class TestAgainstBruteForce:
    """Any predicate selects the rows for which an evaluator written for this test says true."""

    @pytest.mark.costly
    @examples(300)
    @given(sql_predicates(), ROWS)
    @example(
        Sql("not (d in (0.0, null))", lambda row: None if row["d"] is None or row["d"] != 0 else False),
        [{"i": None, "d": -0.0, "s": None, "p": None, "dt": None, "flag": None}],
    )
    def test_the_same_rows_are_selected(self, predicate: Sql, rows: list[dict[str, Any]]) -> None:
        expected = [position for position, row in enumerate(rows) if predicate.answer(row) is True]
        assert select(predicate.text, rows) == expected

    @pytest.mark.costly
    @examples(100)
    @given(sql_predicates(), ROWS)
    def test_a_mask_over_arrays_is_the_same_as_an_arrow_expression(self, predicate, rows):
        bound = parse(predicate.text)
        if bound in (tree.ALWAYS_TRUE, tree.ALWAYS_FALSE):
            return
        table = pa.Table.from_pylist([{"id": at, **row} for at, row in enumerate(rows)], schema=ARROW)
        batch = table.combine_chunks()
        mask = row_mask(bound, lambda column: batch[column.path[0]])
        assert pc.filter(batch["id"], mask).to_pylist() == select(predicate.text, rows)


class TestBackslashes:
    """As in Spark SQL a backslash escapes the next character of a text, unless the literal is raw."""

    @pytest.mark.parametrize(
        ("literal", "value"), [(r"'C:\new'", "C:\new"), (r"'C:\\new'", r"C:\new"), (r"r'C:\new'", r"C:\new")]
    )
    def test_a_path_of_windows(self, literal, value):
        schema = schema_from_shorthand({"path": "string"})
        assert parse_filter(f"path = {literal}", schema).literal == value
