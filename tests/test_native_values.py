"""Numbers where texts are expected: `render_template_as_native_obj=True` makes them of digits, and messages say so."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.hooks import arguments
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.triggers.conditions import make_condition
from tests.support.builders import new_table

DAY = 20260101
CAME = "the number 20260101 (int)"


class TestWhatCame:
    """The value with its kind, in one form for all messages."""

    @pytest.mark.parametrize(("value", "words"), [
        (DAY, CAME), ("20260101", "the text '20260101'"), (True, "the truth value True (bool)"), (None, "None"),
        (1.5, "the number 1.5 (float)"), (Decimal("1.50"), "the number 1.50 (Decimal)"),
        (date(2026, 1, 1), "the date 2026-01-01 (date)"),
        (datetime.fromisoformat("2026-01-01"), "the time 2026-01-01 00:00:00 (datetime)"),
        ([1], "a value of type list"), (b"secret", "a value of type bytes"),
        pytest.param(10**5000, "the number of thousands of digits (int)", id="huge"),
        ("x" * 200, f"the text '{'x' * 99}…"),
    ])  # fmt: skip
    def test_it(self, value: Any, words: str) -> None:
        assert came(value) == words


class TestANumberInsteadOfAText:
    """Whatever took it says that a number came."""

    @pytest.fixture
    def table(self, tmp_path):
        table = new_table(tmp_path, schema={"id": "long", "d": "date", "s": "string"}, partition_by=["d"])
        table.append(pa.table({"id": [1], "d": pa.array([0], pa.date32()), "s": ["a"]}))
        table.create_branch(str(DAY))
        return table

    @pytest.mark.parametrize(("name", "call"), [
        ("a predicate", lambda t: t.delete(DAY)),
        ("a value for a text", lambda t: t.delete("s = :v", predicate_params={"v": DAY})),
        ("a value for a date", lambda t: t.delete("d = :v", predicate_params={"v": DAY})),
        ("values for a text", lambda t: t.delete("s in (:v)", predicate_params={"v": [DAY]})),
        ("a filter", lambda t: t.scan(DAY)),
        ("a branch that is written to", lambda t: t.append(pa.table({"id": [2]}), branch=DAY)),
        ("a branch that is read", lambda t: t.scan(ref=DAY)),
        ("a new branch", lambda t: t.create_branch(DAY)),
        ("a new tag", lambda t: t.create_tag(DAY)),
        ("a snapshot property", lambda t: t.append(pa.table({"id": [2]}), snapshot_properties={"day": DAY})),
        ("a branch that is waited for", lambda t: make_condition("row_count", {"branch": DAY, "min_rows": 1})),
        ("a tag that is waited for", lambda t: make_condition("partition", {"branch": "main", "tag": DAY})),
        ("a partition", lambda t: make_condition("partition", {"branch": "main", "partition": DAY})),
        ("columns", lambda t: make_condition("schema_change", {"columns": DAY})),
        ("a time", lambda t: arguments.timestamp_ms("older_than", DAY)),
        ("files", lambda t: Source.from_files(DAY)),
        ("a query", lambda t: Source.from_sql(DAY)),
    ])  # fmt: skip
    def test_is_told(self, table, name, call):
        with pytest.raises(InvalidInputError) as error:
            call(table)
        assert CAME in str(error.value), name
