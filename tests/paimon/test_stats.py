"""Statistics of files: which columns they are of, and their values."""

from typing import Any

import pytest

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.stats import ColumnStats, SimpleStats, StatsDecoder
from airflow_iceberg.paimon.types import PaimonField, parse_type
from tests.support.paimon_writer import encode_row, schema_of

COUNTED = ColumnStats(min=None, max=None, null_count=None)


COLUMNS = {"a": "INT", "b": "STRING", "c": "DOUBLE"}
ABC = schema_of(
    *(PaimonField(id=id_, name=name, type=parse_type(text)) for id_, (name, text) in enumerate(COLUMNS.items()))
)


def stats(types: list[str], low: tuple[Any, ...], high: tuple[Any, ...], counts: Any = None) -> SimpleStats:
    parsed = [parse_type(text) for text in types]
    return SimpleStats(min_values=encode_row(low, parsed), max_values=encode_row(high, parsed), null_counts=counts)


def decode(item: SimpleStats, dense: Any = None, written: Any = None) -> dict[str, ColumnStats]:
    decoder = StatsDecoder({0: ABC})
    return decoder.decode(item, schema_id=0, value_stats_cols=dense, write_cols=written, path="m")


class TestWhichColumns:
    """Dense statistics name their columns, partial files have those written, others those of their schema."""

    def test_all_of_the_schema(self):
        found = decode(stats(["INT", "STRING", "DOUBLE"], (1, "a", None), (2, "b", None), (0, -1, None)))
        assert found["a"] == ColumnStats(min=1, max=2, null_count=0)
        assert found["b"] == ColumnStats(min="a", max="b", null_count=None)
        assert found["c"] == COUNTED

    def test_dense_columns_or_none_at_all(self):
        assert decode(stats(["STRING"], ("a",), ("b",), (3,)), dense=["b"]).keys() == {"b"}
        assert decode(stats([], (), (), ()), dense=[]) == {}
        assert decode(SimpleStats(min_values=b"", max_values=b"", null_counts=None)) == {}

    def test_written_columns_without_those_of_the_system(self):
        assert decode(stats(["STRING"], ("a",), ("b",)), written=["b", "_ROW_ID"]).keys() == {"b"}
        assert decode(stats(["STRING", "BIGINT"], ("a", 1), ("b", 2)), written=["b", "_ROW_ID"]).keys() == {"b"}

    def test_what_contradicts_the_schema_is_refused(self):
        with pytest.raises(FormatError, match=r"^schema 0 has no field 'x' of m$"):
            decode(stats(["STRING"], ("a",), ("b",)), dense=["x"])
        with pytest.raises(FormatError, match=r"^2 null counts for 1 columns in '_VALUE_STATS._NULL_COUNTS' of m$"):
            decode(stats(["STRING"], ("a",), ("b",), (0, 0)), dense=["b"])
        with pytest.raises(FormatError, match=r"^a row has 2 fields, expected 3 in '_VALUE_STATS._MIN_VALUES' of m$"):
            decode(stats(["INT", "STRING"], (1, "a"), (1, "a")))


class TestTypes:
    """Both spellings of a type, Java's and Python's."""

    @pytest.mark.parametrize(("text", "printed"), [
        ("INT NOT NULL", "INT NOT NULL"), ("integer", "INT"), ("DECIMAL(9,2)", "DECIMAL(9, 2)"),
        ("NUMERIC", "DECIMAL(10, 0)"), ("DECIMAL(5)", "DECIMAL(5, 0)"), ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL", "TIMESTAMP_LTZ(3) NOT NULL"),
        ("TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(6)"), ("TIME(0) WITHOUT TIME ZONE", "TIME(0)"),
        ("DOUBLE PRECISION", "DOUBLE"), ("STRING", "STRING"), ("VARCHAR(2147483647)", "STRING"), ("CHAR", "CHAR(1)"),
        ({"type": "ARRAY NOT NULL", "element": "INT NOT NULL"}, "ARRAY<INT NOT NULL> NOT NULL"),
        ({"type": "VECTOR", "element": "FLOAT", "length": 3, "nullable": True}, "VECTOR<FLOAT, 3>"),
        ("GEOMETRY", "GEOMETRY"),
    ])  # fmt: skip
    def test_it_is_understood(self, text, printed):
        assert str(parse_type(text)) == printed

    @pytest.mark.parametrize(
        "text", ["", "INT NOT", "DECIMAL(39, 2)", "DECIMAL(2, 3)", "TIMESTAMP(10)", "A<B>", 7, None]
    )
    def test_what_is_no_type_is_refused(self, text):
        with pytest.raises(FormatError, match=r"in 'fields\[0\].type' of s$"):
            parse_type(text, where="fields[0].type", path="s")

    def test_a_newer_version_of_a_schema_is_refused(self):
        with pytest.raises(UnsupportedError, match=r"^version 4 of a schema \(known: 1 to 3\) of s$"):
            PaimonSchema.from_json(b'{"version": 4}', path="s")
