"""Statistics of files: which columns they are of, how far bounds can be relied on, and what a newer schema keeps."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.stats import ColumnStats, SimpleStats, StatsDecoder, evolve_stats, usable_bounds
from airflow_iceberg.paimon.types import PaimonField, parse_type
from tests.support.paimon_writer import encode_row

COUNTED = ColumnStats(min=None, max=None, null_count=None)


def schema(number: int = 0, **columns: str) -> PaimonSchema:
    """Return a schema; a name like ``new_7`` is the column ``new`` with the id 7."""
    fields = tuple(
        PaimonField(id=int(name.split("_")[1]), name=name.split("_")[0], type=parse_type(text))
        for name, text in columns.items()
    )
    return PaimonSchema(
        version=3, id=number, fields=fields, highest_field_id=9, partition_keys=(), primary_keys=(), options={}
    )


ABC = schema(a_0="INT", b_1="STRING", c_2="DOUBLE")


def stats(types: list[str], low: tuple[Any, ...], high: tuple[Any, ...], counts: Any = None) -> SimpleStats:
    parsed = [parse_type(text) for text in types]
    return SimpleStats(min_values=encode_row(low, parsed), max_values=encode_row(high, parsed), null_counts=counts)


def decode(item: SimpleStats, dense: Any = None, written: Any = None) -> dict[str, ColumnStats]:
    decoder = StatsDecoder({0: ABC})
    return decoder.decode(item, schema_id=0, value_stats_cols=dense, write_cols=written, path="m")


class TestWhichColumns:
    """Dense statistics name their columns, partial files have those written, others those of their schema."""

    def test_all_of_the_schema(self) -> None:
        found = decode(stats(["INT", "STRING", "DOUBLE"], (1, "a", None), (2, "b", None), (0, -1, None)))
        assert found["a"] == ColumnStats(min=1, max=2, null_count=0)
        assert found["b"] == ColumnStats(min="a", max="b", null_count=None)
        assert found["c"] == COUNTED

    def test_dense_columns(self) -> None:
        assert decode(stats(["STRING"], ("a",), ("b",), (3,)), dense=["b"]).keys() == {"b"}

    def test_no_columns_at_all(self) -> None:
        assert decode(stats([], (), (), ()), dense=[]) == {}
        assert decode(SimpleStats(min_values=b"", max_values=b"", null_counts=None)) == {}

    def test_written_columns_without_those_of_the_system(self) -> None:
        assert decode(stats(["STRING"], ("a",), ("b",)), written=["b", "_ROW_ID"]).keys() == {"b"}
        assert decode(stats(["STRING", "BIGINT"], ("a", 1), ("b", 2)), written=["b", "_ROW_ID"]).keys() == {"b"}

    def test_a_dense_column_that_the_schema_does_not_have(self) -> None:
        with pytest.raises(FormatError, match=r"^schema 0 has no field 'x' of m$"):
            decode(stats(["STRING"], ("a",), ("b",)), dense=["x"])

    def test_more_null_counts_than_columns(self) -> None:
        with pytest.raises(FormatError, match=r"^2 null counts for 1 columns in '_VALUE_STATS._NULL_COUNTS' of m$"):
            decode(stats(["STRING"], ("a",), ("b",), (0, 0)), dense=["b"])

    def test_another_number_of_columns(self) -> None:
        with pytest.raises(FormatError, match=r"^a row has 2 fields, expected 3 in '_VALUE_STATS._MIN_VALUES' of m$"):
            decode(stats(["INT", "STRING"], (1, "a"), (1, "a")))


class TestUsableBounds:
    """Bounds of floats are not always bounds."""

    @pytest.mark.parametrize(
        ("low", "high", "usable"),
        [
            (math.inf, -math.inf, (None, None)),
            (math.nan, 1.0, (None, None)),
            (1.0, math.nan, (None, None)),
            (1.0, 2.0, (1.0, 2.0)),
            (None, 2.0, (None, 2.0)),
        ],
    )
    def test_nan_takes_them_away(self, low: float, high: float, usable: tuple[Any, Any]) -> None:
        item = ColumnStats(min=low, max=high, null_count=0)
        assert usable_bounds(item, parse_type("DOUBLE")) == usable

    def test_zeros_get_the_sign_that_includes_both(self) -> None:
        low, high = usable_bounds(ColumnStats(min=0.0, max=-0.0, null_count=0), parse_type("FLOAT"))
        assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)


class TestEvolvedSchemas:
    """Statistics follow the field id; a widened type keeps its bounds, any other change loses them."""

    KNOWN = ColumnStats(min=1, max=2, null_count=0)

    def evolved(self, old: str, new: str, known: ColumnStats) -> ColumnStats | None:
        return evolve_stats({"a": known}, schema(a_1=old), schema(b_1=new)).get("b")

    def test_a_renamed_column_keeps_them(self) -> None:
        assert self.evolved("INT", "INT", self.KNOWN) == self.KNOWN

    def test_a_name_used_again_for_another_column_has_none(self) -> None:
        assert evolve_stats({"a": self.KNOWN}, schema(a_1="INT"), schema(a_2="INT")) == {}

    @pytest.mark.parametrize(("old", "new"), [("TINYINT", "BIGINT"), ("INT", "BIGINT"), ("FLOAT", "DOUBLE")])
    def test_a_widened_number_keeps_them(self, old: str, new: str) -> None:
        assert self.evolved(old, new, self.KNOWN) == self.KNOWN

    def test_a_decimal_gets_the_new_scale(self) -> None:
        known = ColumnStats(min=Decimal("1.5"), max=Decimal("-0.1"), null_count=0)
        found = self.evolved("DECIMAL(9, 1)", "DECIMAL(20, 3)", known)
        assert found is not None
        assert (str(found.min), str(found.max)) == ("1.500", "-0.100")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("INT", "STRING"),
            ("BIGINT", "INT"),
            ("STRING", "VARCHAR(3)"),
            ("DECIMAL(9, 2)", "DECIMAL(9, 1)"),
            ("TIMESTAMP(6)", "TIMESTAMP(3)"),
            ("INT", "DOUBLE"),
        ],
    )
    def test_any_other_change_loses_them(self, old: str, new: str) -> None:
        assert self.evolved(old, new, self.KNOWN) == COUNTED


class TestTypes:
    """Both spellings of a type, Java's and Python's."""

    @pytest.mark.parametrize(
        ("text", "printed"),
        [
            ("INT NOT NULL", "INT NOT NULL"),
            ("integer", "INT"),
            ("DECIMAL(9,2)", "DECIMAL(9, 2)"),
            ("NUMERIC", "DECIMAL(10, 0)"),
            ("DECIMAL(5)", "DECIMAL(5, 0)"),
            ("TIMESTAMP", "TIMESTAMP(6)"),
            ("TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL", "TIMESTAMP_LTZ(3) NOT NULL"),
            ("TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(6)"),
            ("TIME(0) WITHOUT TIME ZONE", "TIME(0)"),
            ("DOUBLE PRECISION", "DOUBLE"),
            ("STRING", "STRING"),
            ("VARCHAR(2147483647)", "STRING"),
            ("CHAR", "CHAR(1)"),
            ({"type": "ARRAY NOT NULL", "element": "INT NOT NULL"}, "ARRAY<INT NOT NULL> NOT NULL"),
            ({"type": "VECTOR", "element": "FLOAT", "length": 3, "nullable": True}, "VECTOR<FLOAT, 3>"),
            ("GEOMETRY", "GEOMETRY"),
        ],
    )
    def test_it_is_understood(self, text: Any, printed: str) -> None:
        assert str(parse_type(text)) == printed

    @pytest.mark.parametrize(
        "text", ["", "INT NOT", "DECIMAL(39, 2)", "DECIMAL(2, 3)", "TIMESTAMP(10)", "A<B>", 7, None]
    )
    def test_what_is_no_type_is_refused(self, text: Any) -> None:
        with pytest.raises(FormatError, match=r"in 'fields\[0\].type' of s$"):
            parse_type(text, where="fields[0].type", path="s")

    def test_a_newer_version_of_a_schema_is_refused(self) -> None:
        with pytest.raises(UnsupportedError, match=r"^version 4 of a schema \(known: 1 to 3\) of s$"):
            PaimonSchema.from_json(b'{"version": 4}', path="s")
