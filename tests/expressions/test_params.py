"""Placeholders of predicates: a value is a literal, whatever is in it."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.expressions import tree
from airflow_iceberg.expressions.binding import bind, filter_text, parse, parse_filter
from airflow_iceberg.expressions.json import expression_from_json, expression_to_json
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.injections import INJECTIONS
from tests.support.sampling import examples

SCHEMA = schema_from_shorthand({
    "id": "long not null", "i": "int", "d": "double", "s": "string", "flag": "boolean", "dt": "date", "tm": "time",
    "ts": "timestamptz", "tn": "timestamp", "p": "decimal(5,2)", "u": "uuid", "b": "binary", "st": "struct<a: int>",
})  # fmt: skip
TEN = Decimal("10.00")


def bound(text: str, **params: Any) -> tree.Expression:
    return parse_filter(text, SCHEMA, params=params)


def literal(text: str) -> tree.Expression:
    return parse_filter(text, SCHEMA)


class Colour(str, Enum):  # noqa: UP042 - a StrEnum prints itself as its text
    """A text that prints itself as something else."""

    RED = "red"


class TestAPlaceholderIsALiteral:
    """A placeholder stands where a literal may stand, and means what that literal means."""

    @pytest.mark.parametrize(("text", "value", "same"), [
        ("s = :x", "it's", "s = 'it''s'"), (":x < i", 3, "i > 3"), ("i=:x", 3, "i = 3"), ("i in (:x)", 3, "i = 3"),
        ("i in (:x)", [3, 4], "i in (3, 4)"), ("i in :x", (3, 4), "i in (3, 4)"), ("i in :x", 3, "i = 3"),
        ("i not in (:x, 5)", [3, 4], "i not in (3, 4, 5)"), ("not i in :x", [3, 4], "i not in (3, 4)"),
        ("i between :x and 9", 3, "i between 3 and 9"), ("s like :x", "a%", "s like 'a%'"), ("i = -:x", 3, "i = -3"),
        ("s not like :x escape '!'", "a!%", "s = '' or not (s like 'a!%' escape '!')"), ("i <=> :x", 3, "i <=> 3"),
        ("startswith(s, :x)", "a%", "s like 'a\\\\%%'"), ("flag = :x", True, "flag"), ("st.a = :x", 3, "st.a = 3"),
        ("i <=> :x", None, "i is null"), (":x <=> i", None, "i is null"), ("i = :x::int", "3", "i = 3"),
        ("dt = cast(:x as date)", "2026-01-01", "dt = '2026-01-01'"),
        ("dt = cast(:x as date)", date(2026, 1, 1), "dt = '2026-01-01'"),
        ("ts < cast(:x as date)", datetime(2026, 1, 1, 9, tzinfo=UTC), "ts < '2026-01-01'"),
        ("i = 1 or :x = 'a'", "a", "true"), ("i = 1 and :x = 'a'", "b", "false"),
    ])  # fmt: skip
    def test_wherever_it_stands(self, text: str, value: Any, same: str) -> None:
        expected = "s not like 'a\\\\%'" if "escape" in text else same
        assert bound(text, x=value) == literal(expected)

    @pytest.mark.parametrize("name", ["day", "date", "end", "order", "table", "x1", "_x", "größe", "Customer"])
    def test_names(self, name: str) -> None:
        assert bound(f"i = :{name}", **{name: 3}) == literal("i = 3")

    def test_one_value_can_stand_at_several_places(self) -> None:
        assert bound("i = :x or id = :x and s = :y", x=3, y="z") == literal("i = 3 or id = 3 and s = 'z'")

    def test_a_colon_in_a_text_a_comment_or_a_name_is_none(self) -> None:
        assert bound("s = ':x' /* :y */ -- :z") == literal("s = ':x'")
        assert bound("s = ':x' and i = :x", x=1) == literal("s = ':x' and i = 1")
        with pytest.raises(InvalidInputError, match="has no placeholder :x; a placeholder stands without quotes"):
            bound("s = ':x'", x="a")


class TestKindsOfValues:
    """A value is compared as its type says; a text by the type of the column, or it is an error."""

    @pytest.mark.parametrize(("column", "value", "same"), [
        ("i", 3, "3"), ("i", "3", "3"), ("i", " 3 ", "3"), ("i", "3.0", "3"), ("i", np.int64(3), "3"),
        ("d", 0.5, "0.5"), ("d", "0.5", "0.5"), ("d", Decimal("0.5"), "0.5"), ("d", "nan", "'nan'"),
        ("p", Decimal("9.99"), "9.99"), ("p", "9.99", "9.99"), ("p", 9.99, "9.99"), ("flag", "True", "true"),
        ("flag", False, "false"), ("s", "", "''"), ("s", "17", "'17'"), ("s", Colour.RED, "'red'"),
        ("dt", date(2026, 1, 2), "'2026-01-02'"), ("dt", "2026-01-02", "'2026-01-02'"),
        ("dt", datetime.fromisoformat("2026-01-02"), "'2026-01-02'"), ("tm", time(12, 30), "'12:30:00'"),
        ("tm", "12:30", "'12:30'"),
        ("ts", datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))), "'2026-01-02 02:00:00Z'"),
        ("ts", "2026-01-02 03:00:00+01:00", "'2026-01-02 02:00:00Z'"), ("ts", "2026-01-02", "'2026-01-02 00:00:00Z'"),
        ("tn", datetime.fromisoformat("2026-01-02T03:00"), "'2026-01-02 03:00:00'"), ("b", b"\x00'", "X'0027'"),
        ("u", UUID(int=5), "'00000000-0000-0000-0000-000000000005'"),
        ("u", "00000000-0000-0000-0000-000000000005", "'00000000-0000-0000-0000-000000000005'"),
    ])  # fmt: skip
    @pytest.mark.parametrize("text", ["{} = :x", "{} in (:x)"])
    def test_a_value_of_the_columns_type(self, text: str, column: str, value: Any, same: str) -> None:
        assert bound(text.format(column), x=value) == literal(f"{column} = {same}")

    @pytest.mark.parametrize(("column", "value"), [
        ("i", "abc"), ("i", ""), ("i", "None"), ("i", "1.5"), ("i", "3000000000"), ("i", "1 or 1=1"), ("i", "1_0"),
        ("i", "1e999999999"), ("i", "nan"), ("i", True), ("i", date(2026, 1, 1)), ("i", b"1"), ("p", "1.234"),
        ("d", "1d"), ("flag", "yes"), ("flag", 1), ("s", 17), ("s", True), ("s", b"a"), ("dt", "01.02.2026"),
        ("dt", "2026-02-30"), ("dt", "2026-01-01T00:00:00+00:00"), ("dt", datetime(2026, 1, 1, tzinfo=UTC)),
        ("dt", 5), ("ts", "yesterday"), ("ts", "2026-01-01 00:00:00.0000005"), ("tn", "2026-01-01T00:00:00Z"),
        ("tm", "25:00"), ("u", "5"), ("b", "a"),
    ])  # fmt: skip
    @pytest.mark.parametrize("text", ["{} = :x", "{} != :x", "{} in (:x)", "{} not in (:x)"])
    def test_a_value_that_the_column_cannot_hold_is_an_error_and_no_silent_answer(self, text, column, value):
        with pytest.raises(InvalidInputError):
            bound(text.format(column), x=value)

    def test_a_text_beyond_the_column_still_is_a_limit(self) -> None:
        assert bound("i < :x", x="3000000000") == literal("i is not null")
        assert bound("i > :x", x="1.5") == literal("i >= 2")

    @pytest.mark.parametrize(("value", "message"), [
        (None, ("predicate_params['x'] is None, and nothing is equal to null; write 'column is null', or "
               "'column <=> :x', which takes null for a value")),
        ({"a": 1}, ("predicate_params['x'] is a dict, expected text, a number, a truth value, a date, a time, bytes, a "
                   "uuid, or a list of them")),
        ([1], ("predicate_params['x'] is a list, and :x is compared with a single value in the filter 's = :x'; write "
              "column in (:x)")),
        ("\ud800", "predicate_params['x'] is no Unicode text: it has half of a character"),
    ])  # fmt: skip
    def test_values_that_are_none(self, value: Any, message: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            bound("s = :x", x=value)
        assert str(caught.value) == message

    @pytest.mark.parametrize("value", [[], [None], [[1]], [1, {}], ()])
    @pytest.mark.parametrize("text", ["i in (:x)", "i not in (:x)", "i in :x", "i not in (1, :x)"])
    def test_lists_that_are_none(self, value: Any, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"predicate_params\['x'\] is"):
            bound(text, x=value)

    def test_a_huge_number_takes_no_memory(self) -> None:
        with pytest.raises(InvalidInputError, match="cannot cast '1e999999999' to INT"):
            bound("i = cast(:x as int)", x="1e999999999")
        with pytest.raises(InvalidInputError, match="cannot cast"):
            literal("i = cast('1e999999999' as bigint)")
        assert bound("i < :x", x=10**5000) == literal("i is not null")


class TestNamesAndValuesFit:
    """Every placeholder has a value, and every value a placeholder."""

    @pytest.mark.parametrize(("text", "params", "message"), [
        ("i = :x", {}, "the filter 'i = :x' has the placeholder :x, and predicate_params has no value for it"),
        ("i = :x", {"X": 1, "y": 2}, ("the filter 'i = :x' has the placeholder :x, and predicate_params has no value "
                                     "for it (it has X, y)")),
        ("i = 1", {"x": 1}, ("predicate_params has 'x', and the filter 'i = 1' has no placeholder :x; a placeholder "
                            "stands without quotes, such as column = :x")),
        ("i = :x", {"x": 1, "y": 2}, ("predicate_params has 'y', and the filter 'i = :x' has no placeholder :y; a "
                                     "placeholder stands without quotes, such as column = :y")),
        ("i = :from", {"from": 1}, ("cannot parse the filter 'i = :from': something is missing near line 1, column 9; "
                                   "':from' cannot be the name of a placeholder if it is a word of SQL or a number")),
    ])  # fmt: skip
    def test_or_it_is_an_error(self, text: str, params: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            bound(text, **params)
        found = str(caught.value)
        assert found == message or ("column" in message and found.partition("; ")[2] == message.partition("; ")[2])

    @pytest.mark.parametrize("params", ["x", [("x", 1)], {1: 2}, 5])
    def test_something_else_than_names_with_values(self, params: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"predicate_params are a \w+, expected names with values"):
            parse("i = :x", params)

    def test_values_without_a_text(self) -> None:
        for row_filter in (None, tree.Comparison("=", "i", 3)):
            with pytest.raises(InvalidInputError, match="predicate_params are the values of placeholders in SQL"):
                parse(row_filter, {"x": 1})
            assert parse(row_filter, {}) == parse(row_filter)

    @pytest.mark.parametrize("text", [
        "i = ?", "i = @x", "i = $x", "i = ${x}", "i = {{ x }}", ":x", "upper(:x) = s", "upper(s) = :x", "i = :x + 1",
        "i is :x", "i = :x.y", "i = :x :y", "st:a = :x", "i = st:x", ":x in (1)", ":x is null", "i in (select :x)",
        "s = :x || 'a'", "i = interval :x day",
    ])  # fmt: skip
    def test_it_stands_for_a_value_and_for_nothing_else(self, text: str) -> None:
        with pytest.raises((UnsupportedError, InvalidInputError)):
            parse(text, {"x": 1})

    def test_other_placeholders_are_told_how_to_be_written(self) -> None:
        with pytest.raises(UnsupportedError) as caught:
            parse("i = ?")
        assert str(caught.value) == (
            "a placeholder is written :name and takes the place of a literal, such as column = :name; got the filter "
            "'i = ?'"
        )


class TestNoValueIsSyntax:
    """Whatever a value says, it selects the rows that are equal to it, and no other one."""

    @pytest.fixture
    def table(self, tmp_path: Any) -> Table:
        catalog = load_catalog("prod", type="hadoop", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("db")
        table = Table.create(catalog, "db.t", schema={"id": "long", "s": "string"})
        table.append(pa.table({"id": range(len(INJECTIONS) + 2), "s": [*INJECTIONS, "x", "other"]}))
        return table

    @pytest.mark.costly
    def test_reads(self, table: Table) -> None:
        for number, text in enumerate(INJECTIONS):
            for predicate, value in (("s = :v", text), ("s in (:v)", [text]), ("s in :v", text), ("s <=> :v", text)):
                found = table.scan(predicate, predicate_params={"v": value}).to_arrow()
                assert found["id"].to_pylist() == [number], (predicate, text)
            others = table.scan("s <> :v", predicate_params={"v": text}).count()
            assert others == len(INJECTIONS) + 1

    @pytest.mark.costly
    def test_deletes_and_overwrites_also_by_a_job(self, table: Table) -> None:
        left = {*INJECTIONS, "x", "other"}
        for number, text in enumerate(INJECTIONS):
            values = {"v": text}
            if number % 3 == 0:
                table.delete("s = :v", predicate_params=values)
            elif number % 3 == 1:
                table.overwrite(pa.table({"id": [0], "s": [text]}).slice(1), "s = :v", predicate_params=values)
            else:
                work = Work(table, run=partial(run_local, io=table.io))
                delete(work, DeleteRequest(predicate="s = :v", predicate_params=values, max_rows=1))
                table = table.refresh()
            left -= {text}
            assert set(table.scan().to_arrow()["s"].to_pylist()) == left, text

    def test_a_compaction_is_of_the_files_of_the_value(self, table: Table) -> None:
        table.append(pa.table({"id": [1], "s": ["zzz"]}))
        request = CompactRequest(
            where="s < :v", predicate_params={"v": "b' or 'a' = 'a"}, options={"rewrite-all": True}
        )
        work = Work(table, run=lambda plan: run_local(plan, table.io))
        assert compact(work, request).deleted_data_files == 1

    @pytest.mark.costly
    @given(text=st.text(st.characters(exclude_categories=["Cs"])), other=st.text())
    @examples(200)
    def test_a_text_is_the_text(self, text: str, other: str) -> None:
        assert bound("s = :x", x=text) == tree.Comparison("=", _column("s"), text)
        document = expression_to_json(parse("s = :x", {"x": text}))
        assert bind(expression_from_json(document, SCHEMA), SCHEMA) == bound("s = :x", x=text)


def _column(name: str) -> tree.Column:
    found = literal(f"{name} is null")
    assert isinstance(found, tree.IsNull)
    return found.column


class TestTheWayIntoAJob:
    """A plan holds the values as they are, bound or not."""

    @pytest.mark.parametrize("value", [
        "a'\\\x00\u2028", 5, 10**30, 0.1, math.inf, Decimal("1.10"), True, date(2026, 1, 1), time(1, 2),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))), b"\x00\xff", UUID(int=7),
    ], ids=str)  # fmt: skip
    def test_a_value_survives(self, value: Any) -> None:
        predicate = parse("s = :x or i in (:y, 7)", {"x": value, "y": [value]})
        assert expression_from_json(expression_to_json(predicate), SCHEMA) == predicate

    def test_a_bound_text_stays_one(self) -> None:
        predicate = expression_from_json(expression_to_json(parse("i = :x", {"x": "1.5"})), SCHEMA)
        with pytest.raises(InvalidInputError, match=r"column 'i' \(int\) holds no value '1.5', which is bound"):
            bind(predicate, SCHEMA)
        assert bind(parse("i = '1.5'"), SCHEMA) == tree.ALWAYS_FALSE

    def test_messages_have_the_values(self) -> None:
        assert filter_text("i = :x", {"x": "a"}) == "i = :x (x is 'a')"
        assert filter_text("i = 1", None) == "i = 1"
