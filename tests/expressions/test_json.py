"""Predicates as JSON: the way into the plan of a job, and back."""

import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.expressions.binding import bind, parse, parse_filter
from airflow_iceberg.expressions.json import expression_from_json, expression_to_json
from airflow_iceberg.expressions.tree import Comparison, Expression, In, Not, StartsWith
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from tests.expressions.test_filters import SCHEMA

PREDICATES = [
    "true", "false", "null", "id = 1", "id <> 9223372036854775807", "id in (1, 2, null)", "id not in (1, 2)",
    "not (id > 1 or s is null and flag)", "i between 1 and 5", "f >= 0.1 or d < -1e300 or d = double('inf')",
    "isnan(d) or not isnan(f)", "s like 'a%' or s like '%b_' or s not like 'c%'", "s = 'it''s “ü” \\\\ \\0'",
    "dt > DATE '2026-01-01' or dt = '2026-01-02'",
    "ts >= TIMESTAMP '2026-01-01 00:00:00+02:00' and tn < '2026-01-01T10:00:00.123456'", "p = 1.50 or p > 999.99",
    "u = '1b4e28ba-2fa1-11d2-883f-0016d3cca427'", "b = X'00ff'", "st.in.c is not null and st.a <=> 5",
    "tm > '10:00:00'",
]  # fmt: skip


def over_json(expression: Expression, schema: Schema = SCHEMA) -> Expression:
    text = json.dumps(expression_to_json(expression), allow_nan=False)
    return expression_from_json(json.loads(text), schema)


class TestTheWayThere:
    """What comes back is what was sent: bound or not, with the very same literals."""

    @pytest.mark.parametrize("text", PREDICATES)
    def test_a_bound_predicate(self, text):
        bound = parse_filter(text, SCHEMA)
        assert over_json(bound) == bound

    @pytest.mark.parametrize("text", PREDICATES)
    def test_one_that_is_not_bound_yet(self, text):
        plain = parse(text)
        assert over_json(plain) == plain
        assert bind(over_json(plain), SCHEMA) == bind(plain, SCHEMA)

    @pytest.mark.parametrize("literal", [
        True, 7, 1.5, float("-inf"), Decimal("1.50"), "x", b"\x00\xff", uuid.UUID(int=5), dt.date(2026, 1, 2),
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), dt.time(1, 2, 3), None,
    ], ids=repr)  # fmt: skip
    def test_literals_keep_their_kind(self, literal):
        found = over_json(Comparison("=", "x", literal))
        assert isinstance(found, Comparison)
        assert found.literal == literal
        assert type(found.literal) is type(literal)

    def test_a_tree_that_was_built_in_python(self):
        tree = Not(In("id", (1, 2)))
        assert over_json(tree) == tree
        assert over_json(StartsWith("b", b"\x01")) == StartsWith("b", b"\x01")

    def test_a_column_is_found_by_its_id_whatever_it_is_called_now(self):
        renamed = schema_from_shorthand({"number": "long"})
        found = over_json(parse_filter("id = 1", SCHEMA), renamed)
        assert isinstance(found, Comparison)
        assert found.column.path == ("number",)


class TestWhatIsBroken:
    """A document that is no predicate is a format error, and what has no JSON form is refused before it is written."""

    @pytest.mark.parametrize("document", [
        {}, {"is": "maybe"}, {"is": "=", "column": {"name": "id", "id": 1}, "literals": []},
        {"is": "~", "column": {"name": "id", "id": 1}, "literals": [["int", "1"]]},
        {"is": "=", "column": {"name": "id", "id": 99}, "literals": [["int", "1"]]},
        {"is": "=", "column": {"name": "id", "id": 1}, "literals": [["int", "one"]]},
        {"is": "=", "column": {"name": "id", "id": 1}, "literals": [["colour", "red"]]}, {"is": "and", "of": [5]},
        "id = 1",
    ], ids=str)  # fmt: skip
    def test_it_is_named(self, document):
        with pytest.raises(FormatError, match="broken predicate") as error:
            expression_from_json(document, SCHEMA, path="s3://x/plan.json")
        assert error.value.path == "s3://x/plan.json"

    def test_a_literal_of_another_kind(self):
        with pytest.raises(InvalidInputError, match="is a list, which a job's plan cannot hold"):
            expression_to_json(Comparison("=", "x", [1]))
